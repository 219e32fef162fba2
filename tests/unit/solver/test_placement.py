"""The placement solver: rows one by one on problems with a known answer, cross-checks, ladder, hysteresis."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import scipy.optimize

from solver.backends import solve_here
from solver.child import ChildSolver
from solver.instances import InstanceSize, random_problem
from solver.linear import Backend, LinearModel, LinearSolution, SolveLimits, SolveStatus, WarmStart, no_solution
from solver.matrix import FLOW_UNIT, build_matrix
from solver.placement import solve_placement
from solver.problem import BurstCover, FlowPromise, PlacementProblem, ReplicaPromise, SiteLossCover
from solver.settings import PlacementSettings
from solver.solution import Origin

ProblemMaker = Callable[..., PlacementProblem]
EXACT = PlacementSettings(time_limit_s=20.0, mip_gap=0.0, hysteresis=0.0)
ANYWHERE = np.ones(2, dtype=bool)


def _with_prewarm(problem: PlacementProblem) -> PlacementProblem:
    places = replace(problem.placements, prewarm_limit=np.array([2, 2]))
    burst = (BurstCover(0, 0, 500.0, 0.5),)
    return replace(problem, placements=places, bursts=burst)


def test_serves_all_demand_at_the_nearer_site_with_fewest_gpus(two_sites: ProblemMaker) -> None:
    solution = solve_placement(two_sites(), EXACT, solve=solve_here)
    assert solution.replicas.tolist() == [4, 0]
    assert solution.flows.sum() == pytest.approx(1000.0)
    assert solution.value == pytest.approx(1000 - 4 * 1.0 - 4 * 1e-3, rel=1e-6)
    assert solution.proved
    assert not solution.misses.any(two_sites())


def test_gpu_rows_bound_replicas(two_sites: ProblemMaker) -> None:
    solution = solve_placement(two_sites(gpus=(1.0, 2.0)), EXACT, solve=solve_here)
    assert solution.replicas.tolist() == [1, 2]
    assert solution.served()[0] == pytest.approx(900.0)


def test_power_rows_bound_replicas(two_sites: ProblemMaker) -> None:
    problem = two_sites(sites__power_kw=np.array([1.0, 0.6]))
    assert solve_placement(problem, EXACT, solve=solve_here).replicas.tolist() == [2, 1]


def test_ingress_rows_bound_traffic_from_elsewhere_only(two_sites: ProblemMaker) -> None:
    limit = np.array([250.0, 100.0])
    problem = two_sites(sites__ingress_tokens_per_s=limit)
    assert solve_placement(problem, EXACT, solve=solve_here).flows[0].tolist() == pytest.approx([250.0, 100.0])
    local = two_sites(sites__ingress_tokens_per_s=limit, commodities__entering=np.array([[0.0, 1.0]]))
    assert solve_placement(local, EXACT, solve=solve_here).flows[0, 0] > 900.0


def test_start_budget_counts_only_starts(two_sites: ProblemMaker) -> None:
    problem = two_sites(current=(1, 2), sites__start_budget_gpus=np.array([1.0, 0.0]))
    solution = solve_placement(problem, EXACT, solve=solve_here)
    assert solution.replicas.tolist() == [2, 2]


def test_prewarmed_copies_claim_gpus_and_host_memory(two_sites: ProblemMaker) -> None:
    rich = solve_placement(_with_prewarm(two_sites(demand=200.0)), EXACT, solve=solve_here)
    assert rich.prewarmed[0] == 2
    poor = _with_prewarm(two_sites(demand=200.0, sites__host_memory_gb=np.array([20.0, 0.0])))
    assert solve_placement(poor, EXACT, solve=solve_here).prewarmed.tolist() == [1, 0]
    full = _with_prewarm(two_sites(demand=5000.0, gpus=(2.0, 2.0)))
    crowded = solve_placement(full, EXACT, solve=solve_here)
    assert crowded.replicas.tolist() == [2, 2]
    assert crowded.prewarmed.tolist() == [0, 0]


def test_replica_promise_stands_without_demand(two_sites: ProblemMaker) -> None:
    promise = (ReplicaPromise("p", np.array([1]), 3, 1e5),)
    solution = solve_placement(two_sites(demand=0.0, replica_promises=promise), EXACT, solve=solve_here)
    assert solution.replicas.tolist() == [0, 3]


def test_flow_promise_is_served_at_its_sites(two_sites: ProblemMaker) -> None:
    promise = (FlowPromise("p", np.array([0]), np.array([False, True]), 700.0, 100.0),)
    solution = solve_placement(two_sites(flow_promises=promise), EXACT, solve=solve_here)
    assert solution.flows[0, 1] >= 700.0 - 1e-6


def test_capacity_survives_the_loss_of_any_site(two_sites: ProblemMaker) -> None:
    cover = (SiteLossCover("m", 0, 500.0, 100.0),)
    solution = solve_placement(two_sites(covers=cover), EXACT, solve=solve_here)
    assert min(solution.replicas.tolist()) * 300.0 >= 500.0


def test_promise_that_does_not_fit_is_missed_by_the_least_amount(two_sites: ProblemMaker) -> None:
    promise = (ReplicaPromise("p", np.array([0, 1]), 11, 1e5),)
    problem = two_sites(replica_promises=promise)
    solution = solve_placement(problem, EXACT, solve=solve_here)
    assert solution.misses.replicas.tolist() == [3.0]
    assert solution.unavoidable
    assert solution.value <= solution.bound + 1e-6


def test_unaffected_tenants_keep_their_replicas_when_a_promise_breaks(two_sites: ProblemMaker) -> None:
    """F097: an infeasible promise never empties the plan."""
    promise = (ReplicaPromise("p", np.array([1]), 9, 1e5),)
    solution = solve_placement(two_sites(replica_promises=promise), EXACT, solve=solve_here)
    assert solution.replicas[0] == 4 or solution.replicas.sum() >= 4
    assert np.isfinite(solution.value)


@pytest.mark.parametrize("seed", range(60))
def test_same_optimum_as_another_modelling_path(seed: int) -> None:
    """F089: the proto path to HiGHS and scipy's own must agree on the optimum, linked or not."""
    size = InstanceSize(2, 2, load=0.6 + 0.1 * (seed % 6), nodes=(1, 2), running_share=0.3 * (seed % 3))
    problem = random_problem(size, seed)
    # Half the GPUs: a proof without any gap takes long on larger pools.
    problem = replace(problem, pools=replace(problem.pools, gpus=problem.pools.gpus / 2))
    ours = solve_here(build_matrix(problem).model, SolveLimits(30.0))
    plain = build_matrix(problem, link=False).model
    theirs = scipy.optimize.milp(
        -plain.objective,
        constraints=scipy.optimize.LinearConstraint(plain.matrix, plain.row_lower, plain.row_upper),
        bounds=scipy.optimize.Bounds(plain.lower, plain.upper),
        integrality=plain.integer.astype(int),
        options={"mip_rel_gap": 0.0, "time_limit": 30.0},
    )
    assert ours.status is SolveStatus.OPTIMAL
    assert theirs.status == 0
    value = build_matrix(problem).model.value(ours.values)
    assert value == pytest.approx(-theirs.fun, rel=1e-5, abs=1e-4)


@pytest.mark.parametrize("seed", range(12))
def test_same_optimum_as_exhaustive_search(two_sites: ProblemMaker, seed: int) -> None:
    """F089: every count of replicas tried, the flow of each worked out by hand."""
    rng = np.random.default_rng(seed)
    rate, demand, price = float(rng.uniform(50, 500)), float(rng.uniform(0, 3000)), float(rng.uniform(0, 200))
    current = (int(rng.integers(0, 4)), int(rng.integers(0, 4)))
    problem = two_sites(rate=rate, demand=demand, current=current, placements__start_cost=np.full(2, price))
    best = -np.inf
    for east in range(5):
        for west in range(5):
            near = min(east * rate, demand)
            far = min(west * rate, demand - near)
            starts = max(east - current[0], 0) + max(west - current[1], 0)
            best = max(best, near + 0.99 * far - price * starts - 1e-3 * (east + west))
    solution = solve_placement(problem, EXACT, solve=solve_here)
    assert solution.value == pytest.approx(best, rel=1e-6, abs=1e-3)


@pytest.mark.parametrize("seed", range(6))
def test_bound_is_never_below_the_plan(seed: int) -> None:
    problem = random_problem(InstanceSize(3, 4, load=1.2), seed)
    solution = solve_placement(problem, PlacementSettings(time_limit_s=5.0), solve=solve_here)
    assert solution.bound >= solution.value - 1e-6
    assert solution.bound_name in ("linked LP", "solver's dual bound")


def test_unchanged_input_gives_zero_moves() -> None:
    problem = random_problem(InstanceSize(3, 5), 3)
    first = solve_placement(problem, PlacementSettings(), solve=solve_here)
    places = replace(problem.placements, current=first.replicas, prewarm_current=first.prewarmed)
    again = solve_placement(replace(problem, placements=places), PlacementSettings(), solve=solve_here)
    assert (again.replicas == first.replicas).all()


def test_a_small_gain_moves_nothing(two_sites: ProblemMaker) -> None:
    """F104: no target is worth the move, so the replica stays and the solution says so."""
    problem = two_sites(demand=1000.0, current=(0, 4))
    kept = solve_placement(problem, PlacementSettings(hysteresis=0.05), solve=solve_here)
    assert kept.replicas.tolist() == [0, 4]
    assert kept.origin is Origin.KEPT
    cheap = two_sites(demand=1000.0, current=(0, 4), placements__start_cost=np.zeros(2))
    moved = solve_placement(cheap, EXACT, solve=solve_here)
    assert moved.replicas.tolist() == [4, 0]


def _answers(status: SolveStatus) -> Callable[..., LinearSolution]:
    """A solver that solves linear models and gives up on the whole-number one without a solution."""

    def solve(
        model: LinearModel, limits: SolveLimits, start: WarmStart | None = None, backend: Backend = "highs"
    ) -> LinearSolution:
        if model.integer.any() and start is not None:
            return no_solution(status, "forced")
        return solve_here(model, limits, start, backend)

    return solve


@pytest.mark.parametrize("status", [SolveStatus.UNKNOWN, SolveStatus.ERROR, SolveStatus.INFEASIBLE])
def test_never_worse_than_the_running_plan_whatever_the_solver_says(
    two_sites: ProblemMaker, status: SolveStatus
) -> None:
    """F087: unknown at the limit is not infeasible, and the running plan is the floor."""
    problem = two_sites(current=(4, 0))
    solution = solve_placement(problem, PlacementSettings(), solve=_answers(status))
    assert solution.replicas.tolist() == [4, 0]
    assert solution.origin is Origin.KEPT
    assert any(status.value in note for note in solution.note)


def test_greedy_takes_over_when_there_is_nothing_to_keep(two_sites: ProblemMaker) -> None:
    solution = solve_placement(two_sites(), PlacementSettings(), solve=_answers(SolveStatus.ERROR))
    assert solution.origin is Origin.GREEDY
    assert solution.served()[0] == pytest.approx(1000.0)


def test_no_solver_at_all_still_gives_a_plan(two_sites: ProblemMaker) -> None:
    def dead(
        model: LinearModel, limits: SolveLimits, start: WarmStart | None = None, backend: Backend = "highs"
    ) -> LinearSolution:
        return no_solution(SolveStatus.ERROR, "gone")

    solution = solve_placement(two_sites(demand=5000.0), PlacementSettings(), solve=dead)
    assert solution.replicas.tolist() == [4, 4]
    assert solution.bound_name == "all demand served"
    assert not solution.proved


def test_an_answer_that_breaks_a_row_is_refused(two_sites: ProblemMaker) -> None:
    def liar(
        model: LinearModel, limits: SolveLimits, start: WarmStart | None = None, backend: Backend = "highs"
    ) -> LinearSolution:
        return LinearSolution(SolveStatus.OPTIMAL, model.upper.copy(), 1e9, np.empty(0), 0.0, "lie")

    problem = two_sites(gpus=(1.0, 1.0), placements__upper=np.array([4, 4]))
    solution = solve_placement(problem, PlacementSettings(), solve=liar)
    assert solution.replicas.tolist() == [1, 1]
    assert any("refused" in note for note in solution.note)


def test_kill_of_the_solver_process_is_survived() -> None:
    """A solver process killed from outside costs one answer; the plan comes in time."""
    problem = random_problem(InstanceSize(6, 20, load=1.3), 5)
    with ChildSolver() as child:
        solve_placement(random_problem(InstanceSize(2, 2, nodes=(1, 2)), 0), EXACT, solve=child)
        first = child.pid
        stop = threading.Event()

        def kill_whatever_runs() -> None:
            while not stop.wait(0.01):
                pid = child.pid
                if pid is not None:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)

        killer = threading.Thread(target=kill_whatever_runs)
        killer.start()
        began = time.monotonic()
        solution = solve_placement(problem, PlacementSettings(time_limit_s=5.0), solve=child)
        took = time.monotonic() - began
        stop.set()
        killer.join()
        assert child.deaths >= 1
        assert child.pid != first
    assert solution.origin is Origin.GREEDY
    assert took < 6.0 + 3.0
    assert solution.net(problem) > 0


def test_input_numbers_beyond_reason_are_refused(two_sites: ProblemMaker) -> None:
    """F090: a rate of 1e14 is named, not handed to a solver."""
    with pytest.raises(Exception, match=r"commodities\.width"):
        two_sites(demand=1e14)


def test_every_column_has_a_finite_bound() -> None:
    """F090: no infinite variable reaches a backend."""
    model = build_matrix(random_problem(InstanceSize(4, 6), 1)).model
    assert np.isfinite(model.lower).all()
    assert np.isfinite(model.upper).all()


def test_audit_mode_gives_the_same_bytes_twice() -> None:
    """F088: fixed seed and node limit instead of the clock."""
    problem = random_problem(InstanceSize(3, 5, load=1.1), 9)
    settings = PlacementSettings(deterministic=True, node_limit=500)
    first = solve_placement(problem, settings, solve=solve_here)
    second = solve_placement(problem, settings, solve=solve_here)
    assert first.replicas.tobytes() == second.replicas.tobytes()
    assert first.flows.tobytes() == second.flows.tobytes()


def test_flows_are_in_tokens_and_the_objective_too(two_sites: ProblemMaker) -> None:
    problem = two_sites()
    built = build_matrix(problem)
    answer = solve_here(built.model, SolveLimits(10.0))
    assert built.model.value(answer.values) * FLOW_UNIT == pytest.approx(1000 - 4.004, rel=1e-6)
