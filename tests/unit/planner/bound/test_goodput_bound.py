"""The bound on cases solved by hand, and what it refuses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from data.catalog.types import ServiceTimes
from data.errors import SettingError, TraceError
from data.fleet.reference import reference_fleet
from data.fleet.types import EngineSettings, Fleet, Model, Site, Tenant, WorkloadClass
from data.plan import PlanDocument, PlannedReplicas, PlanStatus
from data.plan_io import write_plan
from data.synth.profiles import PROFILES
from data.types import Request, Slo
from planner.bound import GoodputBound, goodput_bound, scenario_bound
from planner.fleet_streams import fleet_streams
from planner.scenario import Scenario
from planner.sim.settings import FailureEvent, SimSettings, SiteFailure
from planner.trace_source import Shaped, SynthTrace
from router.endpoints import EndpointSpec

PREFILL_ONLY = ServiceTimes(p0=0.0, p1=1e-3, p2=0.0, d0=1e-9, d1=0.0, d2=0.0)
"""1,000 prompt tokens take a second; decoding is free."""
DECODE_MOSTLY = ServiceTimes(p0=0.0, p1=0.1, p2=0.0, d0=0.04, d1=0.01, d2=0.0)
QUIET = SimSettings(step_noise=0.0)


def fleet(slo: Slo, max_seqs: int = 4, caching: bool = True) -> Fleet:
    engine = EngineSettings(1000, max_seqs, 16, prefix_caching=caching)
    return Fleet(
        name="hand",
        sites=(Site("A", "entry", "home"),),
        links=(),
        pools=(),
        models=(Model("m", "1", "m", 100_000, engine),),
        configs=(),
        classes=(WorkloadClass("chat", slo),),
        tenants=(Tenant("t"),),
    )


def replicas(count: int, times: ServiceTimes, kv_tokens: int = 100_000, max_seqs: int = 4) -> list[EndpointSpec]:
    one = EndpointSpec("0", "A", "m@1", "card", "X", 1, times, kv_tokens, 1000, max_seqs, 100_000)
    return [replace(one, endpoint_id=str(at)) for at in range(count)]


def requests(count: int, tokens: int, output: int = 2, gap_s: float = 0.0) -> list[Request]:
    return [Request(at, at * gap_s, tokens, output, output) for at in range(count)]


def bound(
    times: ServiceTimes, slo: Slo, offered: Sequence[Request], count: int = 1, settings: SimSettings = QUIET
) -> GoodputBound:
    return goodput_bound(fleet(slo), replicas(count, times), offered, settings)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_prompts_that_come_at_once_share_the_time_to_the_first_token(count: int) -> None:
    found = bound(PREFILL_ONLY, Slo(ttft_s=1.0, tpot_s=1.0), requests(8, 500), count)
    assert found.good_tokens == pytest.approx(2 * 2 * count, rel=1e-3)
    assert found.offered_tokens == found.possible_tokens == 16
    assert found.priced[0].row.start_s == 0.0
    assert found.priced[0].name == "card, budget"


def test_the_worthier_responses_are_kept() -> None:
    offered = [Request(at, 0.0, 500, 10 * (at + 1), 100) for at in range(4)]
    assert bound(PREFILL_ONLY, Slo(ttft_s=1.0, tpot_s=1.0), offered).good_tokens == pytest.approx(70, rel=1e-3)


def test_a_light_load_is_bounded_by_what_is_offered() -> None:
    found = bound(PREFILL_ONLY, Slo(ttft_s=1.0, tpot_s=1.0), requests(50, 500, gap_s=1.0))
    assert found.good_tokens == found.offered_tokens == 100
    assert found.priced == ()
    # The last arrival is at 49 s, and its response ends half a second later at the earliest.
    assert found.goodput_tokens_per_s == pytest.approx(100 / 49.5)


def test_a_prompt_that_no_replica_can_serve_in_time_is_not_possible() -> None:
    found = bound(PREFILL_ONLY, Slo(ttft_s=1.0), [*requests(1, 900), Request(1, 5.0, 1100, 7, 7)])
    assert (found.possible_tokens, found.offered_tokens) == (2, 9)
    assert found.good_tokens == 2


@pytest.mark.parametrize(("tpot_s", "good"), [(0.05, 20), (0.0499, 0)])
def test_a_pace_below_a_step_of_one_is_not_possible(tpot_s: float, good: int) -> None:
    assert bound(DECODE_MOSTLY, Slo(ttft_s=9.0, tpot_s=tpot_s), requests(1, 1, 20)).good_tokens == good


def test_what_memory_and_context_cannot_hold_is_not_possible() -> None:
    slo = Slo(ttft_s=100.0)
    narrow = replicas(1, PREFILL_ONLY, kv_tokens=800)
    assert goodput_bound(fleet(slo), narrow, requests(1, 790, 20), QUIET).good_tokens == 0
    assert goodput_bound(fleet(slo), narrow, requests(1, 780, 20), QUIET).good_tokens == 20


def test_the_target_of_tpot_sets_the_pace_of_steps() -> None:
    # 0.04 s for a step and 0.01 s for each of its members within 0.06 s: two at a time, 0.03 s a token. A prompt
    # takes 0.1 s, and all have 60.5 s.
    found = bound(DECODE_MOSTLY, Slo(ttft_s=0.5, tpot_s=0.06), requests(6, 1, 1001))
    assert found.good_tokens == pytest.approx(1001 * 60.5 / 30.1, rel=1e-3)
    assert any("pace" in one.name for one in found.priced)


def test_places_share_the_fixed_cost_of_a_step() -> None:
    # Four places: a step of 0.08 s for four tokens, well within the target.
    found = bound(DECODE_MOSTLY, Slo(deadline_s=8.0), requests(100, 1, 11))
    assert found.good_tokens == pytest.approx(11 * 8.0 / 0.3, rel=1e-3)
    assert any("places" in one.name for one in found.priced)


def test_a_prefix_is_computed_once_unless_caching_is_off() -> None:
    slo = Slo(ttft_s=1.0)
    prompts = [Request(at, 0.0, 512, 5, 5, block_hashes=(1, 2), block_tokens=256) for at in range(8)]
    once = goodput_bound(fleet(slo), replicas(1, PREFILL_ONLY), prompts, QUIET)
    each = goodput_bound(fleet(slo, caching=False), replicas(1, PREFILL_ONLY), prompts, QUIET)
    assert once.good_tokens == 40
    assert each.good_tokens == pytest.approx(5 / 0.512, rel=1e-3)


def test_leaving_out_the_first_holder_does_not_give_a_prefix_away() -> None:
    # Two prefixes of 0.8 s, four requests each, one second. Charged to the first holder alone, three quarters of
    # one request are lost; charged to all, five of eight requests fit.
    prompts = [Request(at, 0.0, 800, 5, 5, (at % 2,), 800) for at in range(8)]
    found = goodput_bound(fleet(Slo(ttft_s=1.0)), replicas(1, PREFILL_ONLY), prompts, QUIET)
    assert found.good_tokens == pytest.approx(25, rel=1e-3)


def test_noise_widens_the_bound_and_more_so_in_short_intervals() -> None:
    slo, burst = Slo(ttft_s=1.0, tpot_s=1.0), requests(8, 500)
    calm = bound(PREFILL_ONLY, slo, burst).good_tokens
    noisy = bound(PREFILL_ONLY, slo, burst, settings=SimSettings(step_noise=0.02)).good_tokens
    assert calm < noisy < 1.12 * calm


def test_nothing_is_good_that_ends_after_the_time_limit() -> None:
    settings = SimSettings(step_noise=0.0, time_limit_s=10.25)
    found = bound(PREFILL_ONLY, Slo(ttft_s=1.0, tpot_s=1.0), requests(20, 500, gap_s=1.0), settings=settings)
    assert found.requests == 11
    assert found.good_tokens == 20
    assert found.goodput_tokens_per_s == pytest.approx(20 / 10.25)


def test_a_class_without_targets_is_bounded_by_its_time_out_alone() -> None:
    kind = WorkloadClass("any", Slo(), client_timeout_s=2.0)
    timed = replace(fleet(Slo()), classes=(kind,))
    offered = requests(9, 500)
    assert bound(PREFILL_ONLY, Slo(), offered).good_tokens == 18
    assert goodput_bound(timed, replicas(1, PREFILL_ONLY), offered, QUIET).good_tokens == pytest.approx(
        8, rel=1e-3
    )
    patient = replace(QUIET, client_timeout_s=4.0)
    assert goodput_bound(timed, replicas(1, PREFILL_ONLY), offered, patient).good_tokens == pytest.approx(
        16, rel=1e-3
    )


def test_unknown_names_are_never_good() -> None:
    offered = [Request(0, 0.0, 10, 3, 3, model="other@1"), Request(1, 0.0, 10, 4, 4, workload_class="odd")]
    assert bound(PREFILL_ONLY, Slo(ttft_s=1.0), [*offered, Request(2, 0.0, 10, 5, 5)]).good_tokens == 5


@pytest.mark.parametrize(
    "settings",
    [
        SimSettings(failures=(FailureEvent(1.0, 0, "slow", 1.0, 0.5),)),
        SimSettings(site_failures=(SiteFailure(1.0, "A", "slow", 1.0, 0.5),)),
    ],
)
def test_engines_that_get_faster_are_refused(settings: SimSettings) -> None:
    with pytest.raises(SettingError, match="faster"):
        bound(PREFILL_ONLY, Slo(), requests(1, 5), settings=settings)


def test_closed_loop_turns_and_empty_traces_are_refused() -> None:
    with pytest.raises(TraceError, match="parent_id"):
        bound(PREFILL_ONLY, Slo(), [*requests(1, 5), Request(1, 1.0, 5, 5, 5, parent_id=0)])
    with pytest.raises(TraceError, match="no request"):
        bound(PREFILL_ONLY, Slo(), [])


def lively(speed: float = 1.0) -> Scenario:
    built = reference_fleet("mixed-pool")
    source = SynthTrace(tuple(fleet_streams(built, PROFILES["document"], 10.0)), 30.0, "document")
    return Scenario(built, Shaped(source, speed=speed), QUIET)


def test_a_scenario_is_bounded_seed_by_seed() -> None:
    scenario = lively(0.1)
    found = scenario_bound(scenario, 1)
    assert found.offered_tokens == sum(one.output_tokens for one in scenario.requests(1))
    # Some prompts are too long for any card of the fleet.
    assert found.good_tokens == found.possible_tokens < found.offered_tokens
    assert found.offered_tokens != scenario_bound(scenario, 2).offered_tokens
    rushed = scenario_bound(lively(100.0), 1)
    assert rushed.good_tokens < 0.9 * rushed.possible_tokens


def plan(replicas: int, minute: int) -> PlanDocument:
    row = PlannedReplicas("main", "assistant-h100", "assistant@v1", "H100", 1, replicas)
    when = f"2026-01-01T00:{minute:02}:00Z"
    return PlanDocument(f"p{minute}", None, when, when, when, "mixed-pool", {}, PlanStatus.GREEDY, 1.0, 1.0, 1.0,
                        "none", (row,))  # fmt: skip


def test_a_plan_is_bounded_by_its_own_placement_and_plans_that_change_it_are_refused(tmp_path: Path) -> None:
    write_plan(plan(1, 0), tmp_path / "a.json")
    rushed = lively(100.0)
    alone = scenario_bound(rushed, 1, str(tmp_path / "a.json"))
    assert 0 < alone.good_tokens < 0.95 * scenario_bound(rushed, 1).good_tokens
    write_plan(plan(2, 5), tmp_path / "b.json")
    with pytest.raises(SettingError, match="placement changes"):
        scenario_bound(rushed, 1, str(tmp_path))
