"""Merging of commodities: same optimum, a way back that keeps every flow rule, and a relaxation by reach."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from solver.backends import solve_here
from solver.instances import InstanceSize, random_problem
from solver.linear import SolveLimits
from solver.matrix import build_matrix
from solver.merge import merge_alike, merge_by_reach, split_flows
from solver.placement import solve_placement
from solver.problem import Commodities, FlowPromise, PlacementProblem
from solver.settings import PlacementSettings

SIZE = InstanceSize(3, 5, load=1.2)


def _twice(problem: PlacementProblem, share: float, worth: float) -> PlacementProblem:
    """Every commodity without a promise cut in two: the second part of other worth a token."""
    jobs = problem.commodities
    promised = {j for p in problem.flow_promises for j in p.commodities.tolist()}
    cut = np.array([j for j in range(len(jobs)) if j not in promised])
    first = jobs.width.copy()
    first[cut] *= 1 - share

    def both(values: np.ndarray) -> np.ndarray:
        return np.concatenate([values, values[cut]])

    return replace(
        problem,
        commodities=Commodities(
            both(jobs.model),
            both(jobs.workload_class),
            both(jobs.allowed),
            both(jobs.entering),
            both(jobs.route_cost),
            np.concatenate([first, share * jobs.width[cut]]),
            np.concatenate([jobs.value, worth * jobs.value[cut]]),
            np.concatenate([jobs.weight, worth * jobs.weight[cut]]),
        ),
    )


@pytest.mark.parametrize("worth", [1.0, 1.7])
def test_merging_alike_commodities_keeps_the_optimum(worth: float) -> None:
    problem = _twice(random_problem(SIZE, 3), 0.3, worth)
    merged = merge_alike(problem)
    assert len(merged.problem.commodities) < len(problem.commodities)
    whole, small = build_matrix(problem).model, build_matrix(merged.problem).model
    best = solve_here(whole, SolveLimits(60.0))
    same = solve_here(small, SolveLimits(60.0))
    assert small.value(same.values) == pytest.approx(whole.value(best.values), rel=1e-6)
    assert small.matrix.shape[1] < whole.matrix.shape[1]


def test_split_flows_serve_the_members_by_value_and_add_up() -> None:
    problem = _twice(random_problem(SIZE, 4), 0.4, 2.0)
    merged = merge_alike(problem)
    found = solve_placement(problem, PlacementSettings(time_limit_s=20.0), solve=solve_here)
    jobs = problem.commodities
    served = found.flows.sum(axis=1)
    assert (found.flows[~jobs.allowed] == 0).all()
    assert (served <= jobs.width.sum(axis=1) * (1 + 1e-6) + 1e-6).all()
    group_flow = np.zeros(merged.problem.commodities.allowed.shape)
    np.add.at(group_flow, merged.group, found.flows)
    assert split_flows(problem, merged, group_flow) == pytest.approx(found.flows, abs=1e-6)
    worth = jobs.value * np.clip(served[:, None] - (np.cumsum(jobs.width, 1) - jobs.width), 0, jobs.width)
    costs = (jobs.route_cost * found.flows).sum() + found.replicas @ (problem.gpu_price * problem.placements.gpus)
    starts = np.maximum(found.replicas - problem.placements.current, 0) @ problem.placements.start_cost
    assert worth.sum() - costs - starts >= found.value * (1 - 0.01)


def test_commodities_of_different_promises_stay_apart() -> None:
    problem = random_problem(replace(SIZE, promises=False), 5)
    jobs = problem.commodities
    same = replace(
        problem,
        commodities=replace(
            jobs, route_cost=np.zeros_like(jobs.route_cost), entering=np.zeros_like(jobs.entering)
        ),
    )
    free = merge_alike(same)
    pair = next(np.flatnonzero(free.group == g) for g in free.group if (free.group == g).sum() > 1)
    promise = FlowPromise("p", pair[:1], np.ones(3, dtype=bool), 1.0, 1e6)
    held = merge_alike(replace(same, flow_promises=(promise,)))
    assert held.group[pair[0]] != held.group[pair[1]]
    assert held.problem.flow_promises[0].commodities.tolist() == [held.group[pair[0]]]


def test_merging_by_reach_is_a_relaxation_and_much_smaller() -> None:
    problem = random_problem(InstanceSize(6, 12), 1)
    merged = merge_by_reach(problem)
    assert len(merge_alike(problem).problem.commodities) == len(problem.commodities)
    assert len(merged.problem.commodities) < 0.8 * len(problem.commodities)
    exact = solve_here(build_matrix(problem).model.relaxed(), SolveLimits(30.0)).bound
    relaxed = solve_here(build_matrix(merged.problem).model.relaxed(), SolveLimits(30.0)).bound
    assert exact <= relaxed * (1 + 1e-9) <= exact * 1.01
