"""Capacity split without a solver: the class whose next parts of a pool are worth most gets them, again and again.

Looks ahead over any number of parts, because the first part of a class carries least (F[n] is not concave).
"""

from __future__ import annotations

import numpy as np

from data.types import FloatArray, IntArray
from solver.capacity_model import segment_units
from solver.capacity_problem import CapacityProblem, CapacitySettings

DUST = 1e-9
TIE = 1.0 + 1e-9
"""A relative margin keeps rounding from turning ties into an order of its own."""


def greedy_split(problem: CapacityProblem, settings: CapacitySettings) -> tuple[IntArray, FloatArray]:
    """Parts (pools, C) and quotas (pools, K) in tokens/s; keeps every rule at each step."""
    state = _State(problem, settings)
    pairs = [(p, c) for p in range(len(problem.pools)) for c in range(problem.classes)]
    offers = {pair: state.offer(*pair) for pair in pairs}
    while True:
        chosen, best = None, (DUST, 0)
        for pair, offer in offers.items():
            if offer[0] > best[0] * TIE:
                chosen, best = pair, offer
        if chosen is None:
            return state.parts, state.quota
        state.take(*chosen, best[1])
        for p, c in pairs:
            # What was served of a class, and the parts that a pool has left, bear on these only.
            if p == chosen[0] or c == chosen[1]:
                offers[p, c] = state.offer(p, c)


def fill_quotas(problem: CapacityProblem, settings: CapacitySettings, parts: IntArray) -> FloatArray:
    """Quotas (pools, K) within given parts: the most worthwhile demand first, from pools with few other uses."""
    left: FloatArray = segment_units(problem, settings).astype(np.float64) * settings.quota_unit
    worth = _worth(problem, settings)
    room = np.array([pool.rate[np.arange(problem.classes), parts[p]] for p, pool in enumerate(problem.pools)])
    quota = np.zeros(problem.permitted.shape)
    users = problem.permitted.sum(axis=1)
    for at in np.argsort(-worth, axis=None, kind="stable"):
        k, s = divmod(int(at), worth.shape[1])
        c = problem.workload_class[k]
        pools = np.flatnonzero(problem.permitted[:, k])
        for p in pools[np.argsort(users[pools], kind="stable")]:
            taken = min(float(room[p, c]), float(left[k, s]))
            quota[p, k] += taken
            room[p, c] -= taken
            left[k, s] -= taken
    return quota


def free_parts(problem: CapacityProblem, parts: IntArray, p: int, c: int) -> int:
    """Parts that pool ``p`` may still give to class ``c`` within its size and its move limit."""
    pool = problem.pools[p]
    grown = np.maximum(parts[p] - pool.current, 0)
    below_current = max(int(pool.current[c] - parts[p, c]), 0)
    return min(pool.levels - int(parts[p].sum()), pool.move_limit - int(grown.sum()) + below_current)


def _worth(problem: CapacityProblem, settings: CapacitySettings) -> FloatArray:
    worth = problem.segment_worth(settings.segment_value)
    worth[:, 0] += problem.penalty()
    return worth


class _State:
    """What was given so far, and what is left of each line's segments."""

    def __init__(self, problem: CapacityProblem, settings: CapacitySettings) -> None:
        self._problem = problem
        self._left: FloatArray = segment_units(problem, settings).astype(np.float64) * settings.quota_unit
        self._worth = _worth(problem, settings)
        self.parts = np.zeros((len(problem.pools), problem.classes), dtype=np.int64)
        self.quota = np.zeros(problem.permitted.shape)
        self._used = np.zeros(self.parts.shape)
        self._order = [[self._best_first(p, c) for c in range(problem.classes)] for p in range(len(problem.pools))]

    def offer(self, p: int, c: int) -> tuple[float, int]:
        """Largest worth a part, and for how many further parts of pool ``p`` to class ``c``."""
        free = free_parts(self._problem, self.parts, p, c)
        lines, segments = self._order[p][c]
        if free <= 0 or not len(lines):
            return 0.0, 0
        at = int(self.parts[p, c])
        room = self._problem.pools[p].rate[c, at + 1 : at + free + 1] - self._used[p, c]
        widths = self._left[lines, segments]
        reach = np.concatenate([[0.0], np.cumsum(widths)])
        value = np.concatenate([[0.0], np.cumsum(widths * self._worth[lines, segments])])
        each = np.interp(room, reach, value) / np.arange(1, free + 1)
        step = int(np.argmax(each >= each.max() / TIE))
        return float(each[step]), step + 1

    def take(self, p: int, c: int, step: int) -> None:
        """Give the parts, and serve with them what is worth most."""
        self.parts[p, c] += step
        room = float(self._problem.pools[p].rate[c, self.parts[p, c]]) - float(self._used[p, c])
        for k, s in zip(*self._order[p][c], strict=True):
            taken = min(room, float(self._left[k, s]))
            self._left[k, s] -= taken
            self.quota[p, k] += taken
            self._used[p, c] += taken
            room -= taken
            if room <= DUST:
                break

    def _best_first(self, p: int, c: int) -> tuple[IntArray, IntArray]:
        """(lines, segments) that the pool may serve in the class, most worthwhile first."""
        lines = np.flatnonzero(self._problem.permitted[p] & (self._problem.workload_class == c))
        every, segments = np.repeat(lines, 3), np.tile(np.arange(3), len(lines))
        order = np.argsort(-self._worth[every, segments], kind="stable")
        return every[order], segments[order]
