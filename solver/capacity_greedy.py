"""Capacity split without a solver: the class whose next parts of a pool are worth most gets them, again and again.

Looks ahead over any number of parts, because the first part of a class carries least (F[n] is not concave).
"""

from __future__ import annotations

import numpy as np

from data.types import FloatArray, IntArray
from solver.capacity_model import segment_units
from solver.capacity_problem import CapacityProblem, CapacitySettings

DUST = 1e-9


def greedy_split(problem: CapacityProblem, settings: CapacitySettings) -> tuple[IntArray, FloatArray]:
    """Parts (pools, C) and quotas (pools, K) in tokens/s; keeps every rule at each step."""
    left: FloatArray = segment_units(problem, settings).astype(np.float64) * settings.quota_unit
    worth = problem.weight[:, None] * np.array(settings.segment_value)
    worth[:, 0] += problem.miss_penalty
    parts = np.zeros((len(problem.pools), problem.classes), dtype=np.int64)
    quota = np.zeros(problem.permitted.shape)
    while True:
        best = (DUST, 0, 0, 0)
        for p in range(len(problem.pools)):
            for c in range(problem.classes):
                for step in range(1, _free(problem, parts, p, c) + 1):
                    value = _value(problem, left, worth, parts, quota, p, c, step) / step
                    # The relative margin keeps rounding from turning ties into an order of its own.
                    if value > best[0] * (1 + 1e-9):
                        best = (value, p, c, step)
        if best[3] == 0:
            return parts, quota
        _, p, c, step = best
        parts[p, c] += step
        _serve(problem, left, worth, parts, quota, p, c)


def _free(problem: CapacityProblem, parts: IntArray, p: int, c: int) -> int:
    """Parts that pool ``p`` may still give to class ``c`` within its size and its move limit."""
    pool = problem.pools[p]
    grown = np.maximum(parts[p] - pool.current, 0)
    below_current = max(int(pool.current[c] - parts[p, c]), 0)
    return min(pool.levels - int(parts[p].sum()), pool.move_limit - int(grown.sum()) + below_current)


def _order(problem: CapacityProblem, left: FloatArray, worth: FloatArray, p: int, c: int) -> list[tuple[int, int]]:
    """Unserved (line, segment) pairs that pool ``p`` may serve in class ``c``, best first."""
    lines = np.flatnonzero(problem.permitted[p] & (problem.workload_class == c))
    pairs = [(int(k), s) for k in lines for s in range(3) if left[k, s] > DUST]
    return sorted(pairs, key=lambda pair: (-worth[pair], pair))


def _value(
    problem: CapacityProblem,
    left: FloatArray,
    worth: FloatArray,
    parts: IntArray,
    quota: FloatArray,
    p: int,
    c: int,
    step: int,
) -> float:
    room = _room(problem, parts[p, c] + step, quota, p, c)
    total = 0.0
    for pair in _order(problem, left, worth, p, c):
        taken = min(room, float(left[pair]))
        total += taken * float(worth[pair])
        room -= taken
        if room <= DUST:
            break
    return total


def _room(problem: CapacityProblem, level: int, quota: FloatArray, p: int, c: int) -> float:
    used = float(quota[p][problem.workload_class == c].sum())
    return float(problem.pools[p].rate[c, level]) - used


def _serve(
    problem: CapacityProblem,
    left: FloatArray,
    worth: FloatArray,
    parts: IntArray,
    quota: FloatArray,
    p: int,
    c: int,
) -> None:
    room = _room(problem, int(parts[p, c]), quota, p, c)
    for line, segment in _order(problem, left, worth, p, c):
        taken = min(room, float(left[line, segment]))
        left[line, segment] -= taken
        quota[p, line] += taken
        room -= taken
        if room <= DUST:
            break
