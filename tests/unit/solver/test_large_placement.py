"""Planning in parts as a whole: against the whole model, the next period, the ladder, audit mode.

``IN_PARTS`` sends even small problems this way, so that whole-model answers can judge it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from data.errors import SettingError
from solver.backends import solve_here
from solver.child import ChildSolver
from solver.greedy import greedy_placement
from solver.instances import InstanceSize, random_problem
from solver.keep import keep_running, standing_copies
from solver.linear import Backend, LinearModel, LinearSolution, SolveLimits, SolveStatus, WarmStart, no_solution
from solver.matrix import FLOW_UNIT, build_matrix
from solver.placement import solve_placement
from solver.problem import PlacementProblem
from solver.settings import PlacementSettings
from solver.solution import Origin, solution_values

ProblemMaker = Callable[..., PlacementProblem]
IN_PARTS = PlacementSettings(time_limit_s=20.0, direct_integers=0, block_s=0.5)
AUDIT = replace(IN_PARTS, deterministic=True, block_tries=6, block_nodes=3, block_size=2, mip_gap=0.002)
SIZE = InstanceSize(5, 10, load=1.2)
SMALL = InstanceSize(3, 6, load=1.2)


def _dead(
    model: LinearModel, limits: SolveLimits, start: WarmStart | None = None, backend: Backend = "highs"
) -> LinearSolution:
    return no_solution(SolveStatus.ERROR, "gone")


@pytest.mark.parametrize("seed", [0, 1])
def test_planning_in_parts_comes_near_the_whole_model(seed: int) -> None:
    problem = random_problem(SIZE, seed)
    settings = replace(AUDIT, block_size=4, block_nodes=30, block_tries=20, mip_gap=0.01)
    parts = solve_placement(problem, settings, solve=solve_here)
    whole = solve_placement(problem, replace(settings, direct_integers=10_000), solve=solve_here)
    assert parts.net(problem) >= 0.98 * whole.net(problem)
    assert parts.bound >= whole.value * (1 - 1e-9)
    assert parts.origin in (Origin.BLOCKS, Origin.CONSTRUCTED)
    built = build_matrix(problem)
    assert built.model.residual(solution_values(problem, built, parts)) < 1e-5


def test_the_next_period_starts_from_the_running_plan_and_keeps_it_without_gain() -> None:
    problem = random_problem(SMALL, 2)
    first = solve_placement(problem, AUDIT, solve=solve_here)
    places = replace(problem.placements, current=first.replicas, prewarm_current=first.prewarmed)
    running = replace(problem, placements=places)
    kept = keep_running(running, build_matrix(running), solve_here, SolveLimits(10.0))
    assert kept.replicas.tolist() == first.replicas.tolist()
    assert kept.prewarmed.tolist() == first.prewarmed.tolist()
    assert kept.net(running) >= first.net(problem) - 1e-6 * abs(first.net(problem))
    free = solve_placement(running, replace(AUDIT, hysteresis=0.0), solve=solve_here)
    assert free.net(running) >= kept.net(running)
    calm = solve_placement(running, replace(AUDIT, hysteresis=0.5), solve=solve_here)
    assert calm.replicas.tolist() == first.replicas.tolist()


def test_copies_are_carried_over_by_placement_and_only_where_they_fit() -> None:
    problem = random_problem(SIZE, 3)
    count = len(problem.placements)
    places = replace(problem.placements, prewarm_current=np.full(count, 2), prewarm_limit=np.arange(count) % 2)
    none = np.zeros(count, dtype=np.int64)
    copies = standing_copies(replace(problem, placements=places), none)
    assert copies[::2].tolist() == none[::2].tolist()
    assert copies.sum() > 0
    used = np.bincount(places.site, copies * places.weights_gb, len(problem.sites.names))
    assert (used <= problem.sites.host_memory_gb + 1e-6).all()
    claim = np.bincount(places.pool, 0.25 * copies * places.gpus, len(problem.pools.gpus))
    assert (claim <= problem.pools.gpus + 1e-6).all()


def test_audit_mode_of_the_search_gives_the_same_bytes_twice() -> None:
    """F088: counts end every step; a second process does not change the answer either."""
    problem = random_problem(SMALL, 4)
    first = solve_placement(problem, AUDIT, solve=solve_here)
    with ChildSolver() as child:
        second = solve_placement(problem, replace(AUDIT, processes=2), solve=child)
    assert first.replicas.tobytes() == second.replicas.tobytes()
    assert first.flows.tobytes() == second.flows.tobytes()
    assert (first.bound, first.note) == (second.bound, second.note)


def test_without_any_solver_the_greedy_is_left() -> None:
    problem = random_problem(SIZE, 5)
    found = solve_placement(problem, IN_PARTS, solve=_dead)
    assert found.origin is Origin.GREEDY
    assert found.net(problem) > 0
    assert found.bound >= found.value
    assert any("without an answer" in note for note in found.note)


def test_without_any_solver_the_running_plan_is_kept_where_it_is_better() -> None:
    problem = random_problem(SIZE, 5)
    greedy = greedy_placement(problem, build_matrix(problem))
    running = replace(problem, placements=replace(problem.placements, current=greedy.replicas))
    found = solve_placement(running, IN_PARTS, solve=_dead)
    assert found.replicas.tolist() == greedy.replicas.tolist()
    assert found.net(running) > 0


def test_a_solver_that_dies_after_the_construction_leaves_the_constructed_plan() -> None:
    problem = random_problem(SMALL, 6)

    def tiring(
        model: LinearModel, limits: SolveLimits, start: WarmStart | None = None, backend: Backend = "highs"
    ) -> LinearSolution:
        return solve_here(model, limits) if start is None else _dead(model, limits)

    found = solve_placement(problem, replace(IN_PARTS, mip_gap=0.0005), solve=tiring)
    assert found.origin is Origin.CONSTRUCTED
    assert found.bound_name == "Lagrangian"
    assert found.net(problem) > 0


def test_a_start_that_does_not_fit_is_told_and_the_running_plan_used() -> None:
    problem = random_problem(SMALL, 7)
    wild = problem.placements.upper.copy()
    found = solve_placement(problem, AUDIT, start=wild, solve=solve_here)
    assert any("start given does not fit" in note for note in found.note)
    assert found.net(problem) > 0


def test_a_good_start_is_never_lost() -> None:
    problem = random_problem(SMALL, 8)
    first = solve_placement(problem, AUDIT, solve=solve_here)
    again = solve_placement(problem, replace(AUDIT, block_tries=1, seed=5), start=first.replicas, solve=solve_here)
    # Copies are not part of a start: their worth may be missing.
    assert again.net(problem) >= 0.995 * first.net(problem)


def test_bounds_are_in_tokens_and_named(two_sites: ProblemMaker) -> None:
    problem = two_sites()
    found = solve_placement(problem, AUDIT, solve=solve_here)
    assert found.value == pytest.approx(1000 - 4.004, rel=1e-6)
    assert found.value <= found.bound <= 1000.0 + 1e-3
    assert build_matrix(problem).model.value(
        solution_values(problem, build_matrix(problem), found)
    ) * FLOW_UNIT == pytest.approx(found.value)


@pytest.mark.parametrize(
    ("field", "value"),
    [("direct_integers", -1), ("block_size", 0), ("block_s", 0.0), ("block_tries", 0), ("block_nodes", 0)],
)
def test_settings_of_the_search_out_of_range_are_named(field: str, value: float) -> None:
    with pytest.raises(SettingError, match=field):
        PlacementSettings(**{field: value})  # type: ignore[arg-type]
    with pytest.raises(SettingError, match="processes"):
        PlacementSettings(processes=65)
