"""The redirect program: best shares for replicas that stand, the placement model's own optimum with them fixed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from data.errors import SettingError
from solver.backends import solve_here
from solver.greedy import greedy_placement
from solver.instances import InstanceSize, random_problem
from solver.linear import SolveLimits
from solver.matrix import build_matrix
from solver.problem import FlowPromise, PlacementProblem
from solver.redirect import redirect_flows

ProblemMaker = Callable[..., PlacementProblem]
LIMITS = SolveLimits(20.0)


def test_shares_follow_live_demand_and_the_rest_finds_no_capacity(two_sites: ProblemMaker) -> None:
    found = redirect_flows(two_sites(demand=1200.0), np.array([2, 1]), solve_here, LIMITS)
    assert found is not None
    assert found.shares[0].tolist() == pytest.approx([0.5, 0.25])
    calm = redirect_flows(two_sites(demand=400.0), np.array([2, 1]), solve_here, LIMITS)
    assert calm is not None
    assert calm.shares[0].tolist() == pytest.approx([1.0, 0.0])
    assert calm.loads.ravel().tolist() == pytest.approx([400.0, 0.0])


def test_no_demand_and_no_replicas_give_no_shares(two_sites: ProblemMaker) -> None:
    for problem, replicas in ((two_sites(demand=0.0), [2, 1]), (two_sites(), [0, 0])):
        found = redirect_flows(problem, np.array(replicas), solve_here, LIMITS)
        assert found is not None
        assert not found.shares.any()


def test_a_promise_of_throughput_comes_before_worth(two_sites: ProblemMaker) -> None:
    problem = two_sites(demand=500.0)
    west = FlowPromise("west", np.array([0]), np.array([False, True]), 100.0, 50.0)
    found = redirect_flows(replace(problem, flow_promises=(west,)), np.array([2, 1]), solve_here, LIMITS)
    assert found is not None
    assert found.flows[0].tolist() == pytest.approx([400.0, 100.0])


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_it_is_the_model_with_the_replicas_fixed(seed: int) -> None:
    problem = random_problem(InstanceSize(5, 12, load=1.2, promises=False), seed)
    problem = replace(
        problem, placements=replace(problem.placements, prewarm_limit=np.zeros(len(problem.placements), dtype=int))
    )
    built = build_matrix(problem)
    greedy = greedy_placement(problem, built)
    found = redirect_flows(problem, greedy.replicas, solve_here, LIMITS)
    lower, upper = built.model.lower.copy(), built.model.upper.copy()
    lower[built.columns.replicas] = upper[built.columns.replicas] = greedy.replicas
    fixed = solve_here(built.model.with_bounds(lower, upper, relaxed=True), LIMITS)
    assert found is not None
    jobs = problem.commodities
    served = found.flows.sum(axis=1)
    before = np.cumsum(jobs.width, axis=1) - jobs.width
    worth = float((jobs.value * np.clip(served[:, None] - before, 0.0, jobs.width)).sum())
    routed = worth - float((jobs.route_cost * found.flows).sum())
    stand = float(greedy.replicas @ (problem.placements.start_cost + problem.gpu_price * problem.placements.gpus))
    assert (routed - stand) / 1000.0 == pytest.approx(built.model.value(fixed.values), rel=1e-6)
    assert (found.shares.sum(axis=1) <= 1 + 1e-9).all()


def test_more_replicas_than_the_fleet_states_are_routed_to_all_the_same(two_sites: ProblemMaker) -> None:
    """What stands, stands: a pool that shrank must not leave the site without traffic."""
    found = redirect_flows(two_sites(gpus=(1.0, 1.0)), np.array([3, 0]), solve_here, LIMITS)
    assert found is not None
    assert found.flows[0, 0] == pytest.approx(900.0)


def test_a_solve_that_was_cut_short_gives_nothing(two_sites: ProblemMaker) -> None:
    problem = random_problem(InstanceSize(20, 60), 0)
    replicas = greedy_placement(problem, build_matrix(problem)).replicas
    assert redirect_flows(problem, replicas, solve_here, SolveLimits(1e-3)) is None


@pytest.mark.parametrize("replicas", [np.array([1]), np.array([-1, 0])])
def test_replicas_that_do_not_fit_are_named(two_sites: ProblemMaker, replicas: np.ndarray) -> None:
    with pytest.raises(SettingError, match="replicas"):
        redirect_flows(two_sites(), replicas, solve_here, LIMITS)
