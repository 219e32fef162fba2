"""Capacity split by priority and regret, as llm-d's autoscaler shares out accelerators: the rule to beat.

(1) Each line (class, tenant) knows what each permitted pool would cost it: the fewest further parts of the class
    with which the pool carries its whole demand. Regret = what its second choice costs more than its first.
(2) Lines go by tier, then by regret, largest first. A line gets its first choice if that many parts are free, else
    it falls back to its next one and stands in line again with the regret of that.
(3) Lines without a choice left share what remains, tier by tier, one part in turn.
"""

from __future__ import annotations

import heapq
import math

import numpy as np

from data.types import FloatArray, IntArray
from solver.capacity_greedy import free_parts
from solver.capacity_problem import CapacityProblem

DUST = 1e-9
Choice = tuple[float, int, int]
"""Cost in replicas, pool, parts."""


def regret_split(problem: CapacityProblem) -> tuple[IntArray, FloatArray]:
    """Parts (pools, C) and quotas (pools, K) in tokens/s; keeps every rule but knows no guarantees."""
    state = _State(problem)
    left: list[int] = []
    queue = [entry for k in range(len(problem.demand)) if (entry := state.entry(k, 0)) is not None]
    heapq.heapify(queue)
    queued = {entry[2] for entry in queue}
    left += [k for k in range(len(problem.demand)) if k not in queued and problem.demand[k] > 0]
    while queue:
        _, _, k, tried = heapq.heappop(queue)
        choices = state.choices(k)
        chosen = choices[tried] if tried < len(choices) else None
        if chosen is not None and chosen[2] <= state.free(chosen[1], k):
            state.grant(k, chosen[1], chosen[2])
        elif (entry := state.entry(k, tried + 1)) is not None:
            heapq.heappush(queue, entry)
        else:
            left.append(k)
    _share_rest(problem, state, left)
    return state.parts, state.quota


def _share_rest(problem: CapacityProblem, state: _State, lines: list[int]) -> None:
    """One part in turn to each line of a tier, as long as it serves any of them."""
    for tier in sorted({int(problem.tier[k]) for k in lines}):
        turn = [k for k in sorted(lines) if problem.tier[k] == tier]
        while turn:
            turn = [k for k in turn if state.one_more(k)]


class _State:
    """Parts and quotas given so far."""

    def __init__(self, problem: CapacityProblem) -> None:
        self._problem = problem
        self.parts = np.zeros((len(problem.pools), problem.classes), dtype=np.int64)
        self.quota = np.zeros(problem.permitted.shape)
        self._used = np.zeros((len(problem.pools), problem.classes))

    def free(self, p: int, k: int) -> int:
        """Parts that pool ``p`` may still give to the class of line ``k``."""
        return free_parts(self._problem, self.parts, p, int(self._problem.workload_class[k]))

    def choices(self, k: int) -> list[Choice]:
        """Pools that could carry the whole line, cheapest first."""
        problem, c = self._problem, int(self._problem.workload_class[k])
        found: list[Choice] = []
        for p in np.flatnonzero(problem.permitted[:, k]).tolist():
            pool = problem.pools[p]
            needed = self._used[p, c] + problem.demand[k]
            level = int(np.searchsorted(pool.rate[c], needed - DUST))
            if level <= pool.levels and problem.demand[k] > 0:
                more = max(level - int(self.parts[p, c]), 0)
                found.append((more / pool.parts, p, more))
        return sorted(found)

    def entry(self, k: int, tried: int) -> tuple[int, float, int, int] | None:
        """Place in the queue with choice number ``tried``: tier, regret (largest first), line; ``None`` = none."""
        choices = self.choices(k)
        if tried >= len(choices):
            return None
        second = choices[tried + 1][0] if tried + 1 < len(choices) else math.inf
        return int(self._problem.tier[k]), -(second - choices[tried][0]), k, tried

    def grant(self, k: int, p: int, more: int) -> float:
        """Give parts of pool ``p`` to the class of the line, and to the line what they carry of it."""
        problem, c = self._problem, int(self._problem.workload_class[k])
        self.parts[p, c] += more
        room = float(problem.pools[p].rate[c, self.parts[p, c]]) - float(self._used[p, c])
        taken = max(min(room, float(problem.demand[k] - self.quota[:, k].sum())), 0.0)
        self.quota[p, k] += taken
        self._used[p, c] += taken
        return taken

    def one_more(self, k: int) -> bool:
        """Give the line the next useful part of any pool; gives whether it got anything and wants more."""
        problem, c = self._problem, int(self._problem.workload_class[k])
        wanted = float(problem.demand[k] - self.quota[:, k].sum())
        if wanted <= DUST:
            return False
        best = (DUST, 0, 0)
        for p in np.flatnonzero(problem.permitted[:, k]).tolist():
            at, used = int(self.parts[p, c]), float(self._used[p, c])
            gains = problem.pools[p].rate[c, at : at + self.free(p, k) + 1] - used
            useful = np.flatnonzero(gains > DUST)
            if len(useful):
                step = int(useful[0])
                best = max(best, (min(float(gains[step]), wanted) / max(step, 1), p, step))
        return best[0] > DUST and self.grant(k, best[1], best[2]) > DUST
