"""Merges commodities that differ in nothing a placement can see: fewer columns, the same optimum.

Two commodities are alike when they have the same model, class, allowed sites, costs of the way and promises.
Their value segments join to one falling list: the best worth of a flow shared by two concave worths is concave
again. Merging also those that differ only in the cost of the way, each at the least cost of the group, gives a
relaxation: its prices and its bound hold for the problem as it was.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from data.types import FloatArray, IntArray
from solver.problem import Commodities, PlacementProblem


@dataclass(frozen=True, slots=True)
class MergedProblem:
    """A smaller problem and the way back.

    Attributes:
        problem: With one commodity a group.
        group: Shape (J,): the group of each commodity of the original problem.
    """

    problem: PlacementProblem
    group: IntArray


def merge_alike(problem: PlacementProblem) -> MergedProblem:
    """One commodity for each group of alike ones: same optimum, and ``split_flows`` leads back."""
    return _merge(problem, _groups(problem, with_costs=True))


def merge_by_reach(problem: PlacementProblem) -> MergedProblem:
    """Groups whatever has the same allowed sites, at the least cost of the way: a relaxation of the problem."""
    return _merge(problem, _groups(problem, with_costs=False))


def split_flows(original: PlacementProblem, merged: MergedProblem, flows: FloatArray) -> FloatArray:
    """Flows of the members, shape (J, S), for flows of the groups: the most valued segments are served first."""
    if len(merged.problem.commodities) == len(original.commodities):
        return flows
    jobs = original.commodities
    width, count = jobs.width.ravel(), jobs.width.shape[1]
    group = np.repeat(merged.group, count)
    order = np.lexsort((-jobs.value.ravel(), group))
    before = np.cumsum(width[order]) - width[order]
    first = np.searchsorted(group[order], group[order])
    room = flows.sum(axis=1)[group[order]] - (before - before[first])
    served = np.empty_like(width)
    served[order] = np.clip(room, 0.0, width[order])
    mine = served.reshape(-1, count).sum(axis=1)
    total = np.bincount(merged.group, mine, len(flows))
    share = mine / np.maximum(total[merged.group], 1e-12)
    out: FloatArray = share[:, None] * flows[merged.group]
    return out


def _groups(problem: PlacementProblem, *, with_costs: bool) -> IntArray:
    """Number of the group of each commodity, in the order of first appearance."""
    jobs = problem.commodities
    promised: list[list[int]] = [[] for _ in range(len(jobs))]
    for number, promise in enumerate(problem.flow_promises):
        for j in promise.commodities.tolist():
            promised[j].append(number)
    numbers: dict[tuple[object, ...], int] = {}
    group = np.empty(len(jobs), dtype=np.int64)
    for j in range(len(jobs)):
        key: tuple[object, ...] = (
            int(jobs.model[j]),
            int(jobs.workload_class[j]),
            jobs.allowed[j].tobytes(),
            tuple(promised[j]),
        )
        if with_costs:
            key = (*key, jobs.route_cost[j].tobytes(), jobs.entering[j].tobytes())
        group[j] = numbers.setdefault(key, len(numbers))
    return group


def _merge(problem: PlacementProblem, group: IntArray) -> MergedProblem:
    jobs = problem.commodities
    count = int(group.max(initial=-1)) + 1
    if count == len(jobs):
        return MergedProblem(problem, group)
    first = np.unique(group, return_index=True)[1]
    width, value = _joined_segments(jobs, group, count)
    route, entering = np.full((count, *jobs.route_cost.shape[1:]), np.inf), jobs.entering[first].copy()
    np.minimum.at(route, group, jobs.route_cost)
    np.minimum.at(entering, group, jobs.entering)
    demand = jobs.width.sum(axis=1)
    weight = np.bincount(group, demand * jobs.weight, count) / np.maximum(np.bincount(group, demand, count), 1e-12)
    merged = Commodities(
        model=jobs.model[first],
        workload_class=jobs.workload_class[first],
        allowed=jobs.allowed[first],
        entering=entering,
        route_cost=route,
        width=width,
        value=value,
        weight=weight,
    )
    promises = tuple(replace(p, commodities=np.unique(group[p.commodities])) for p in problem.flow_promises)
    return MergedProblem(replace(problem, commodities=merged, flow_promises=promises), group)


def _joined_segments(jobs: Commodities, group: IntArray, count: int) -> tuple[FloatArray, FloatArray]:
    """Widths and values of the groups' segments: equal values in one, falling along a row, padded with nothing."""
    member = np.repeat(group, jobs.width.shape[1])
    width, value = jobs.width.ravel(), jobs.value.ravel()
    order = np.lexsort((-value, member))
    member, width, value = member[order], width[order], value[order]
    new = np.r_[True, (np.diff(member) != 0) | (np.diff(value) != 0)]
    segment = np.cumsum(new) - 1
    starts = np.flatnonzero(new)
    owner = member[starts]
    place = np.arange(len(starts)) - np.searchsorted(owner, owner)
    longest = int(place.max(initial=0)) + 1
    joined, worth = np.zeros((count, longest)), np.zeros((count, longest))
    joined[owner, place] = np.bincount(segment, width, len(starts))
    worth[owner, place] = value[starts]
    return joined, worth
