"""One real step on a tiny fleet: what is seen, planned, tried, and what stays as it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from data.catalog.load import load_catalog
from data.errors import InputError
from data.fleet.types import Fleet, Placed
from planner.demand import DemandTable
from planner.loop.settings import LoopSettings
from planner.loop.shadow import Window, shadow
from planner.loop.sources import FileSource
from planner.loop.step import StepJob, StepResult, run_step
from planner.loop.what_if import WhatIfJob, scaled, surviving, what_if, without_gpus
from planner.loop.window_requests import drawn_window
from planner.settings import PlannerSettings
from router.slomax.feedback_state import FeedbackState, PoolState, SavedFeedback, save_feedback
from solver.backends import solve_here
from solver.settings import PlacementSettings

MakeDemand = Callable[..., DemandTable]
NOW_S = 1_800_000_000.0
LOOP = LoopSettings(shadow_requests=60, shadow_seeds=1, window_s=60.0, shadow_policy="least_request")
PLANNER = PlannerSettings(placement=PlacementSettings(time_limit_s=5.0))
LINE = "  - {model: chat@v1, workload_class: interactive, tenant: acme, origin: eu-1, %s}"


def demand_file(folder: Path, what: str) -> Path:
    path = folder / "demand.yaml"
    path.write_text("demand:\n" + LINE % what + "\n")
    return path


@pytest.fixture
def step(fleet: Fleet, tmp_path: Path) -> Callable[..., StepResult]:
    def taken(what: str, before: StepResult | None = None, recent: int = 1) -> StepResult:
        source = FileSource(demand_file(tmp_path, what))
        running = None if before is None else before.plan
        known = () if before is None else (before.demand,) * recent
        return run_step(StepJob(fleet, (source,), running, known, NOW_S, PLANNER, LOOP), solve_here)

    return taken


Step = Callable[..., StepResult]


@pytest.fixture(scope="module")
def first(fleet: Fleet, tmp_path_factory: pytest.TempPathFactory) -> StepResult:
    """A first step for a demand that needs more than what stands."""
    source = FileSource(demand_file(tmp_path_factory.mktemp("first"), "tokens_per_s: 12000"))
    return run_step(StepJob(fleet, (source,), None, (), NOW_S, PLANNER, LOOP), solve_here)


def replicas(result: StepResult) -> int:
    return sum(row.replicas for row in result.plan.replicas)


def test_demand_that_grows_is_planned_for_and_tried(first: StepResult) -> None:
    result = first
    assert replicas(result) > 2
    assert result.shadow is not None
    assert result.shadow.candidate > 0
    assert set(result.seconds) == {"observe", "plan", "simulate"}
    assert result.level is None, "a demand file does not know how the fleet serves"


def test_the_same_demand_again_makes_no_move(step: Step, first: StepResult) -> None:
    again = step("tokens_per_s: 12000", first)
    assert again.plan.replicas == first.plan.replicas
    assert (again.plan.moves, again.shadow) == ((), None)


@pytest.mark.parametrize("what", ["missing: true", "counter: [null, 5120]"])
def test_missing_demand_holds_what_runs_f098(step: Step, first: StepResult, what: str) -> None:
    """F098, case 2: a series that is absent is no reason to scale down."""
    assert replicas(step(what, first)) == replicas(first)


def test_zero_demand_scales_down_once_it_is_known_for_two_steps_f098(step: Step, first: StepResult) -> None:
    """F098, case 1."""
    one = step("counter: [5120, 5120]", first)
    assert replicas(one) == replicas(first)
    two = step("counter: [5120, 5120]", one)
    assert replicas(two) < replicas(first)


def test_a_counter_that_was_reset_counts_from_zero_f098(step: Step) -> None:
    """F098, case 3."""
    result = step("counter: [512000000, 2160000]")
    assert result.demand.rows[0].median == pytest.approx(12000.0)
    assert any("reset" in note for note in result.notes)


def test_no_answer_from_any_source_is_an_error_with_names(fleet: Fleet, tmp_path: Path) -> None:
    job = StepJob(fleet, (FileSource(tmp_path / "none.yaml"),), None, (), NOW_S, PLANNER, LOOP)
    with pytest.raises(InputError, match=r"no source of demand answers.*none\.yaml"):
        run_step(job, solve_here)


def test_one_source_of_two_is_enough_to_grow_and_not_to_shrink_f115(
    fleet: Fleet, first: StepResult, tmp_path: Path
) -> None:
    """F115: the failing source does not decide alone, and does not count as zero."""
    good = FileSource(demand_file(tmp_path, "tokens_per_s: 12000"))
    bad = FileSource(tmp_path / "none.yaml")
    grown = run_step(StepJob(fleet, (bad, good), None, (), NOW_S, PLANNER, LOOP), solve_here)
    assert replicas(grown) > 2
    demand_file(tmp_path, "tokens_per_s: 100")
    held = run_step(StepJob(fleet, (bad, good), first.plan, (first.demand,) * 2, NOW_S, PLANNER, LOOP), solve_here)
    assert replicas(held) == replicas(first)


def test_both_plans_see_the_same_requests_and_moves_have_to_earn_their_cost(
    fleet: Fleet, need: MakeDemand
) -> None:
    catalog, window = load_catalog(), drawn_window(need(3000.0), fleet, 60.0, 400, 1)
    two, four = [Placed("eu-1", "chat-h100", 2)], [Placed("eu-1", "chat-h100", 4)]
    same = shadow(fleet, catalog, two, two, window, period_s=60.0, policy="least_request")
    assert same is not None
    assert (same.running == same.candidate, same.loss) == (True, 0.0)
    none = shadow(fleet, catalog, two, [], window, period_s=60.0, policy="least_request")
    assert none is not None
    assert none.loss > 0.5, "replicas that drain take no new work"
    slow = shadow(fleet, catalog, two, four, window, period_s=window.window_s, policy="least_request")
    fast = shadow(fleet, catalog, two, four, window, period_s=1e6, policy="least_request")
    assert slow is not None
    assert fast is not None
    assert slow.running == fast.running
    assert slow.candidate <= fast.candidate, "what loads for the whole window brings nothing in it"
    assert shadow(fleet, catalog, [], four, window, period_s=60.0, policy="least_request") is None
    assert shadow(fleet, catalog, two, four, Window((), 60.0, ""), period_s=60.0, policy="least_request") is None


def test_drawn_requests_carry_the_demand_and_are_the_same_each_time(fleet: Fleet, need: MakeDemand) -> None:
    window = drawn_window(need(5000.0), fleet, 100.0, 100_000, 2)
    assert window == drawn_window(need(5000.0), fleet, 100.0, 100_000, 2)
    for requests in window.requests:
        rate = sum(request.output_tokens for request in requests) / window.window_s
        assert rate == pytest.approx(5000.0, rel=0.15)
        assert [r.arrival_s for r in requests] == sorted(r.arrival_s for r in requests)
    assert window.requests[0] != window.requests[1]
    cut = drawn_window(need(5000.0), fleet, 100.0, 200, 1)
    assert cut.window_s == pytest.approx(10.0)
    assert drawn_window(need(0.0), fleet, 100.0, 200, 1).requests == ()


def test_a_what_if_question_plans_and_simulates(fleet: Fleet, need: MakeDemand) -> None:
    job = WhatIfJob(fleet, need(4000.0), 3.0, None, NOW_S, PLANNER, LOOP)
    answer = what_if(job)
    assert sum(row.replicas for row in answer.plan.replicas) > 2
    assert answer.shadow is not None
    assert scaled(need(4000.0), 3.0).rows[0].median == pytest.approx(12000.0)
    smaller = replace(fleet, pools=(replace(fleet.pools[0], count=2),))
    assert sum(row.replicas for row in what_if(replace(job, fleet=smaller)).plan.replicas) <= 2


def test_lost_gpus_take_their_replicas_with_them_f114(fleet: Fleet, need: MakeDemand, first: StepResult) -> None:
    """F114: the loss of a site, or of a part of it, is asked for before it happens; what is lost is not held."""
    assert without_gpus(fleet, {("eu-1", "H100"): 1}).placement[0].replicas == 1
    gone = without_gpus(fleet, {("eu-1", "H100"): 0, ("eu-1", "L40S"): 4})
    assert [(pool.gpu_type, pool.count) for pool in gone.pools] == [("L40S", 4)]
    assert gone.placement[0].replicas == 0
    assert without_gpus(fleet, {("mars", "H100"): 1}).placement == fleet.placement
    left = surviving(first.plan, {("eu-1", "H100"): 2})
    assert [row.replicas for row in left.replicas] == [2]
    fewer = without_gpus(fleet, {("eu-1", "H100"): 2})
    answer = what_if(WhatIfJob(fewer, need(12000.0), 1.0, left, NOW_S, PLANNER, LOOP))
    assert replicas(StepResult(answer.plan, need(1.0), None, None)) == 2


def test_a_fleet_beyond_all_bounds_is_planned_for_and_not_simulated(fleet: Fleet, need: MakeDemand) -> None:
    window = drawn_window(need(100.0), fleet, 10.0, 10, 1)
    two, many = [Placed("eu-1", "chat-h100", 2)], [Placed("eu-1", "chat-h100", 1_000_000)]
    assert shadow(fleet, load_catalog(), two, many, window, period_s=60.0, policy="least_request") is None


def test_a_step_plans_with_what_the_routers_have_learned(fleet: Fleet, tmp_path: Path) -> None:
    """Pools that deliver less than was promised are planned with less; a missing file is a note, no fault."""
    known, missing = tmp_path / "a.json", tmp_path / "none.json"
    kinds = [(model.key, kind.name) for model in fleet.models for kind in fleet.classes]
    half = tuple(PoolState(*key, 1.0, 0.0, 0, 1, False, 1.0, 2.0, 0.0, 0.6, 0.6, 1.0, False) for key in kinds)
    save_feedback(known, SavedFeedback(NOW_S, FeedbackState(half)))
    source = FileSource(demand_file(tmp_path, "tokens_per_s: 12000"))
    job = StepJob(fleet, (source,), None, (), NOW_S, PLANNER, LOOP, feedback=(known, missing))
    result = run_step(job, solve_here)
    assert result.plan.splits
    assert {row.correction for row in result.plan.splits} == {0.6}
    assert any("none.json" in note for note in result.notes)
