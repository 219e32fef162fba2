"""Bookkeeping of the placement contest: demand, judge, simulated plans, and that no arm sees what comes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest

import benchmarks.fleet_contest.demand as contest_demand_module
from benchmarks.bench_fleet import spans
from benchmarks.bench_forecast import synthetic_rates
from benchmarks.fleet_contest.arms import (
    Arm,
    OwnSettings,
    carry_out,
    clairvoyant,
    instances,
    own,
    regret,
    slices,
    static,
    yesterday,
)
from benchmarks.fleet_contest.demand import (
    DAY,
    HOUR,
    TUNING_DAYS,
    ContestDemand,
    contest_demand,
    mean_rates,
    shifted,
)
from benchmarks.fleet_contest.flow_judge import joined, judge, serving
from benchmarks.fleet_contest.picture import drawing
from benchmarks.fleet_contest.setting import Contest, contest_fleet, measured_table, with_forecasts
from benchmarks.fleet_contest.sim_judge import DRAIN_S, PACE, WINDOW_S, changes, requests, simulate_plan
from planner.demand import LEVELS
from planner.sim.changes import Drain, Start
from solver.child import ChildSolver
from solver.placement_rivals.instance_change import ChangeSettings
from solver.placement_rivals.slice_cover import Limits

FLEET = contest_fleet()
TABLE = measured_table(FLEET, measure=False)
KEYS = (
    ("analyst@v1", "interactive", "anywhere", "west"),
    ("chat@v1", "batch", "anywhere", "north"),
    ("chat@v1", "interactive", "anywhere", "east"),
    ("chat@v1", "interactive", "east-only", "east"),
)


@pytest.fixture(scope="module")
def child() -> Iterator[ChildSolver]:
    with ChildSolver() as solver:
        yield solver


def contest(tokens: np.ndarray, quantiles: np.ndarray | None = None) -> Contest:
    """A contest of four commodities with this demand, shape (4, windows); forecasts are the mean with a spread."""
    demand = ContestDemand(KEYS, np.asarray(tokens, dtype=np.float64), "")
    if quantiles is None:
        spread = np.array([0.7, 1.0, 1.3, 1.7])
        quantiles = np.broadcast_to(
            demand.tokens_per_s.mean(axis=1)[:, None, None] * spread, (tokens.shape[1], 4, HOUR, len(LEVELS))
        )
    return with_forecasts(FLEET, TABLE, demand, quantiles)


def at(one: Contest, site: str, config: str) -> int:
    """Number of a placement."""
    places, sites = one.template.problem.placements, one.template.problem.sites.names
    found = [i for i in range(len(places)) if places.config[i] == config and sites[int(places.site[i])] == site]
    return found[0]


class TestDemand:
    def test_a_region_lives_hours_later(self) -> None:
        day = np.arange(DAY, dtype=np.float64)
        assert shifted(day, "east").tolist() == day.tolist()
        assert shifted(day, "west")[8 * HOUR] == 0.0

    def test_levels_and_rights(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(
            contest_demand_module, "tier_rates", lambda tier: (synthetic_rates(len(tier), clients=8), "/synthetic")
        )
        found = contest_demand(FLEET, TABLE, 0.5, seed=3)
        assert found.mark == "/synthetic"
        assert list(found.keys) == sorted(found.keys)
        for model, rate in mean_rates(FLEET, TABLE).items():
            mine = [row for row, key in enumerate(found.keys) if key[0] == model]
            if mine:
                mean = found.tokens_per_s[mine, : TUNING_DAYS * DAY].sum(axis=0).mean()
                assert mean == pytest.approx(0.5 * rate)
        for _, _, tenant, origin in found.keys:
            assert tenant in ("anywhere", f"{origin}-only")
        again = contest_demand(FLEET, TABLE, 0.5, seed=3)
        assert (again.tokens_per_s == found.tokens_per_s).all()


class TestFlowJudge:
    def test_serves_the_lesser_of_demand_and_capacity(self) -> None:
        tokens = np.zeros((4, 3))
        tokens[2] = [100.0, 1e6, 1e6]
        one = contest(tokens)
        replicas = np.zeros((3, len(one.price)), dtype=np.int64)
        replicas[:, at(one, "east", "chat-h100")] = [1, 1, 2]
        found = judge(one, 0, replicas)
        rate, load_s = TABLE.configs["chat-h100"].rate("interactive"), one.load_s[at(one, "east", "chat-h100")]
        expected = [100.0, rate, rate * (2.0 - load_s / 600.0)]
        assert found.served[:, 2] == pytest.approx(expected)
        assert found.goodput == pytest.approx(np.mean(expected))
        assert found.attainment == pytest.approx(sum(expected) / tokens.sum())
        assert found.gpu_hours == pytest.approx(4 / 6)
        assert found.goodput_per_gpu_hour == pytest.approx(sum(expected) * 600.0 / (4 / 6))
        assert found.moves == 1

    def test_bound_demand_stays_in_its_region(self) -> None:
        tokens = np.zeros((4, 1))
        tokens[3] = 100.0
        one = contest(tokens)
        replicas = np.zeros((1, len(one.price)), dtype=np.int64)
        replicas[0, at(one, "north", "chat-h100")] = 4
        assert judge(one, 0, replicas).goodput == 0.0
        replicas[0, at(one, "east", "chat-h100")] = 1
        assert judge(one, 0, replicas).goodput == pytest.approx(100.0)

    def test_a_stopped_replica_serves_nothing_more(self) -> None:
        one = contest(np.ones((4, 3)))
        replicas = np.zeros((3, len(one.price)), dtype=np.int64)
        replicas[:, 0] = [2, 1, 1]
        assert serving(one, replicas)[:, 0].tolist() == [2.0, 1.0, 1.0]

    def test_spans_are_joined_by_their_length(self) -> None:
        tokens = np.zeros((4, 3))
        tokens[2] = [100.0, 200.0, 600.0]
        one = contest(tokens)
        replicas = np.zeros((3, len(one.price)), dtype=np.int64)
        replicas[:, at(one, "east", "chat-h100")] = 1
        whole, parts = judge(one, 0, replicas), [judge(one, 0, replicas[:1]), judge(one, 1, replicas[1:])]
        for what in ("goodput", "value", "attainment", "gpu_hours", "moves"):
            assert getattr(joined(parts), what) == pytest.approx(getattr(whole, what))

    def test_days_that_follow_each_other_are_one_span(self) -> None:
        assert spans((4, 5, 8)) == [(4 * DAY, 6 * DAY), (8 * DAY, 9 * DAY)]


class TestSimulatedPlan:
    def test_is_carried_out_to_the_last_request(self) -> None:
        tokens = np.zeros((4, 3))
        tokens[2] = 4000.0
        one = contest(tokens)
        replicas = np.zeros((3, len(one.price)), dtype=np.int64)
        replicas[:, at(one, "east", "chat-h100")] = [2, 2, 1]
        replicas[:, at(one, "west", "chat-h200")] = [0, 1, 1]
        found = simulate_plan(one, 0, replicas, seed=1)
        total = found.total
        assert total.offered == len(list(requests(one, 0, 3, seed=1)))
        assert total.completed + total.failed + total.cancelled + total.rejected + total.running == total.offered
        assert total.attainment_offered > 0.8
        assert found.residency_breaches == 0
        assert found.endpoint_requests.all()
        # Two replicas for two windows, then one; another from the second window on; then the run drains.
        least = (2 * 2 + 1 + 2) * WINDOW_S / 3600.0
        assert least - 0.01 < found.gpu_hours < least + 0.05

    def test_starts_loads_and_drains(self) -> None:
        one = contest(np.ones((4, 4)))
        first, second = at(one, "east", "chat-h100"), at(one, "east", "coder-h100")
        other = at(one, "north", "chat-a100")
        replicas = np.zeros((4, len(one.price)), dtype=np.int64)
        replicas[:, first] = [2, 1, 1, 2]
        replicas[:, second] = [0, 1, 1, 1]
        replicas[:, other] = [0, 0, 1, 1]
        starts, drains = changes(one, replicas)
        # Endpoints 0 and 1 are chat, 2 is the coder that takes over a GPU, 3 stands in another pool.
        assert drains == [Drain(WINDOW_S, 1)]
        assert starts == [
            Start(3 * WINDOW_S, 1, one.load_s[first] / PACE),
            Start(WINDOW_S + DRAIN_S, 2, one.load_s[second] / PACE),
            Start(2 * WINDOW_S, 3, one.load_s[other] / PACE),
        ]

    def test_requests_follow_the_demand(self) -> None:
        tokens = np.zeros((4, 2))
        tokens[1], tokens[2] = [12_000.0, 0.0], [8_000.0, 16_000.0]
        one = contest(tokens)
        found = list(requests(one, 0, 2, seed=5))
        assert [r.request_id for r in found] == list(range(len(found)))
        assert [r.arrival_s for r in found] == sorted(r.arrival_s for r in found)
        batch = [r for r in found if r.workload_class == "batch"]
        assert max(r.arrival_s for r in batch) < WINDOW_S
        # 12,000 tokens/s of 1,200 each for 50 s, and 8,000 then 16,000 of 800 each.
        assert len(batch) == pytest.approx(500, abs=5 * 500**0.5)
        assert len(found) - len(batch) == pytest.approx(1500, abs=5 * 1500**0.5)
        assert np.mean([r.output_tokens for r in batch]) == pytest.approx(1200, rel=0.15)
        assert found == list(requests(one, 0, 2, seed=5))
        assert found != list(requests(one, 0, 2, seed=6))


def arms() -> list[Arm]:
    """One of each rule, planning often."""
    change = ChangeSettings((0,), slow_share=1.0, own_site=False)
    return [
        static(1.0),
        yesterday(1.0),
        regret(1.0, 2),
        replace(slices(1.0, Limits.IN_TURN), every=2),
        replace(instances(1.0, change), every=3),
        own(OwnSettings(every=2)),
    ]


def test_the_picture_is_drawn() -> None:
    lines = {"demand": np.array([0.0, 500.0]), "static": np.array([1000.0, 1000.0])}
    picture = ElementTree.fromstring(drawing({"chat@v1": lines}, 1))
    points = [line.attrib["points"] for line in picture.iter("{http://www.w3.org/2000/svg}polyline")]
    # The panel is 130 high and ends at 176: nothing is at the bottom, the largest value at the top.
    assert points == ["70.0,176.0 940.0,111.0", "70.0,46.0 940.0,46.0"]


class TestArms:
    @pytest.mark.parametrize("arm", arms(), ids=lambda arm: arm.name)
    def test_sees_nothing_that_comes_later(self, arm: Arm, child: ChildSolver) -> None:
        first, change, last = TUNING_DAYS * DAY, TUNING_DAYS * DAY + 3, TUNING_DAYS * DAY + 5
        rng = np.random.default_rng(1)
        tokens = rng.uniform(500.0, 4000.0, (4, last))
        quantiles = np.sort(rng.uniform(100.0, 5000.0, (last, 4, HOUR, len(LEVELS))), axis=-1)
        other, told = tokens.copy(), quantiles.copy()
        other[:, change:] *= 3.0
        told[change + 1 :] *= 3.0
        plans = [
            carry_out(contest(t, q), arm, first, last, child) for t, q in ((tokens, quantiles), (other, told))
        ]
        assert (plans[0][:4] == plans[1][:4]).all()
        assert plans[0].any()

    @pytest.mark.parametrize("arm", arms(), ids=lambda arm: arm.name)
    def test_keeps_the_gpu_limits(self, arm: Arm, child: ChildSolver) -> None:
        tokens = np.full((4, TUNING_DAYS * DAY + 3), 60_000.0)
        one = contest(tokens)
        plan = carry_out(one, arm, TUNING_DAYS * DAY, tokens.shape[1], child)
        problem = one.template.problem
        for replicas in plan:
            used = np.bincount(
                problem.placements.pool, replicas * problem.placements.gpus, len(problem.pools.gpus)
            )
            assert (used <= problem.pools.gpus).all()

    def test_the_clairvoyant_places_what_will_be_needed(self, child: ChildSolver) -> None:
        tokens = np.zeros((4, 12))
        tokens[2, 6:] = 1000.0
        plan = carry_out(contest(tokens), clairvoyant(6), 0, 12, child)
        assert not plan[:6].any()
        assert plan[6:].any(axis=1).all()
