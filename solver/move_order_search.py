"""A better order of moves by small changes of priorities under the list rule, kept if they cost less (annealing).

It counts rounds and not time, so that the same moves have the same order.
"""

from __future__ import annotations

import math

import numpy as np

from solver.move_order_greedy import first_priorities, list_order
from solver.move_order_problem import MoveProblem, MoveSchedule, order_cost

WORK = 6_000_000
"""Rounds × moves²: about half a second; thousands of moves keep their first order."""
MOST_ROUNDS = 3000
FIRST_HEAT = 0.02
"""A change that costs this share of the first order more is kept with a chance of 1/e at first."""
STARTS_SHARE = 0.6
"""Share of rounds that change the priority of a start; the others that of a drain."""
FLIP_SHARE = 0.05
"""Share of rounds that change when drains begin."""


def searched_order(problem: MoveProblem, first: MoveSchedule, seed: int = 0) -> MoveSchedule:
    """The cheapest order found; ``first`` itself if none is cheaper.

    Args:
        problem: The moves.
        first: An order that keeps every floor.
        seed: Of the draws.
    """
    rng = np.random.default_rng(seed)
    rounds = min(WORK // max(len(problem.actions), 1) ** 2, MOST_ROUNDS)
    lists = first_priorities(problem)
    best, least = first, order_cost(problem, first.begin_s)
    heat = FIRST_HEAT * least
    both = [order_cost(problem, list_order(problem, *lists, eager=eager).begin_s) for eager in (False, True)]
    eager, current = both[1] < both[0], min(both)
    for k in range(rounds):
        changed, other = _changed(rng, lists), eager != (rng.random() < FLIP_SHARE)
        found = list_order(problem, *changed, eager=other)
        if found.floors != problem.floors:
            continue
        cost = order_cost(problem, found.begin_s)
        warmth = heat * (1 - k / rounds) ** 2
        if cost <= current or (warmth > 0 and rng.random() < math.exp((current - cost) / warmth)):
            lists, eager, current = changed, other, cost
        if cost < least:
            best, least = found, cost
    return best


def _changed(rng: np.random.Generator, lists: tuple[list[int], list[int]]) -> tuple[list[int], list[int]]:
    """The lists with one move at another place."""
    starts, drains = list(lists[0]), list(lists[1])
    mine = starts if (rng.random() < STARTS_SHARE and len(starts) > 1) or len(drains) < 2 else drains
    if len(mine) > 1:
        mine.insert(int(rng.integers(0, len(mine))), mine.pop(int(rng.integers(0, len(mine)))))
    return starts, drains
