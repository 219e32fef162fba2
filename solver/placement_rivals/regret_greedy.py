"""Replicas by priority and regret, as llm-d's autoscaler gives out accelerators.

(1) Every commodity knows what each permitted place would cost it: further replicas for its whole rate × their
    price. Regret = what its second choice costs more than its first.
(2) Commodities go by priority of their class, then by regret, largest first. One takes its first choice if the
    GPUs are free; else it falls back to the next and stands in line again with the regret of that.
(3) Commodities without a choice left share the remaining GPUs, priority by priority, one replica in turn, each
    at the place with the most tokens for the price.

A part of a replica that one commodity leaves is used by the next of the same model: the rule's own books are by
model and know it too. Rates of a replica are the problem's, which are measured at the targets; the rule's queueing
formula for them is left out, so that all rules plan with the same rates.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence

import numpy as np

from data.types import FloatArray, IntArray
from solver.placement_rivals.need import DUST, demand, free_gpus, replicas_per_token, whole
from solver.problem import PlacementProblem


def regret_greedy(problem: PlacementProblem, price: FloatArray, priority: Sequence[int]) -> IntArray:
    """Replicas by the rule above.

    Args:
        problem: Demand, rates, GPUs.
        price: Shape (P,): of one replica, in any unit.
        priority: Of each class, 0 first.
    """
    state = _Books(problem, price)
    rank = np.array(priority)[problem.commodities.workload_class].tolist()
    queue: list[tuple[int, float, int, int]] = []
    left: list[int] = []
    for j in np.flatnonzero(state.demand > 0).tolist():
        _stand_in_line(queue, left, state, rank, j, 0)
    while queue:
        _, _, j, tried = heapq.heappop(queue)
        choices = state.choices(j)
        if tried < len(choices) and state.grant(j, choices[tried][1]):
            continue
        _stand_in_line(queue, left, state, rank, j, tried + 1)
    for level in sorted(set(rank)):
        turn = [j for j in sorted(left) if rank[j] == level]
        while turn:
            turn = [j for j in turn if state.one_more(j)]
    return state.replicas


def _stand_in_line(
    queue: list[tuple[int, float, int, int]], left: list[int], state: _Books, rank: list[int], j: int, tried: int
) -> None:
    choices = state.choices(j)
    if tried >= len(choices):
        left.append(j)
        return
    second = choices[tried + 1][0] if tried + 1 < len(choices) else math.inf
    heapq.heappush(queue, (rank[j], choices[tried][0] - second, j, tried))


class _Books:
    """Replicas given, and the part of them that is taken."""

    def __init__(self, problem: PlacementProblem, price: FloatArray) -> None:
        self._problem = problem
        self._price = price
        self._need = replicas_per_token(problem)
        self.demand = demand(problem)
        self.replicas = np.zeros(len(problem.placements), dtype=np.int64)
        self._taken = np.zeros(len(problem.placements))

    def choices(self, j: int) -> list[tuple[float, int]]:
        """Cost and number of the places that could carry the whole commodity, cheapest first."""
        places = np.flatnonzero(np.isfinite(self._need[j])).tolist()
        return sorted((self._more(j, i) * float(self._price[i]), i) for i in places)

    def grant(self, j: int, i: int) -> bool:
        """Put the whole commodity at place ``i``, if the GPUs are there."""
        more, places = self._more(j, i), self._problem.placements
        if more * places.gpus[i] > free_gpus(self._problem, self.replicas)[places.pool[i]]:
            return False
        self.replicas[i] += more
        self._taken[i] += float(self.demand[j] * self._need[j, i])
        self.demand[j] = 0.0
        return True

    def one_more(self, j: int) -> bool:
        """Fill what stands, then start one replica; gives whether the commodity wants another turn."""
        usable = np.isfinite(self._need[j])
        for i in np.flatnonzero(usable).tolist():
            self._fill(j, i)
        places = self._problem.placements
        fits = usable & (places.gpus <= free_gpus(self._problem, self.replicas)[places.pool])
        if self.demand[j] <= DUST or not fits.any():
            return False
        worth = np.where(fits, 1.0 / (np.where(usable, self._need[j], 1.0) * self._price), -1.0)
        best = int(np.argmax(worth))
        self.replicas[best] += 1
        self._fill(j, best)
        return bool(self.demand[j] > DUST)

    def _more(self, j: int, i: int) -> int:
        """Replicas to start at place ``i`` before it carries the whole commodity too."""
        return max(whole(float(self._taken[i] + self.demand[j] * self._need[j, i])) - int(self.replicas[i]), 0)

    def _fill(self, j: int, i: int) -> None:
        room = float(self.replicas[i] - self._taken[i])
        tokens = min(room / float(self._need[j, i]), float(self.demand[j]))
        if tokens > 0:
            self._taken[i] += tokens * float(self._need[j, i])
            self.demand[j] -= tokens
