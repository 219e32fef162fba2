"""What a capacity split is worth, from the definition of the objective alone."""

from __future__ import annotations

import numpy as np

from data.types import FloatArray, IntArray
from solver.capacity_model import segment_units
from solver.capacity_problem import CapacityProblem, CapacitySettings


def split_value(
    problem: CapacityProblem, settings: CapacitySettings, parts: IntArray, quota: FloatArray
) -> tuple[float, FloatArray]:
    """Worth of a split, and shape (K,) the guaranteed tokens/s that it misses."""
    widths = segment_units(problem, settings) * settings.quota_unit
    served = quota.sum(axis=0)
    before = np.cumsum(widths, axis=1) - widths
    by_segment = np.clip(served[:, None] - before, 0.0, widths)
    value = float((by_segment * problem.segment_worth(settings.segment_value)).sum())
    missed = widths[:, 0] - by_segment[:, 0]
    value -= float(missed @ problem.penalty())
    value += _fairness(problem, settings, widths.sum(axis=1), served)
    mean_weight = float(problem.weight.mean())
    for p, pool in enumerate(problem.pools):
        per_part = pool.rate[:, -1] / max(pool.levels, 1)
        moved = np.maximum(parts[p] - pool.current, 0)
        value -= settings.move_cost * mean_weight * float(moved @ per_part)
    return value, missed


def _fairness(
    problem: CapacityProblem, settings: CapacitySettings, demand: FloatArray, served: FloatArray
) -> float:
    """Worth of the worst-served line of each tier."""
    share = np.where(demand > 0, served / np.maximum(demand, 1e-12), 1.0)
    value = 0.0
    for tier in np.unique(problem.tier):
        mine = problem.tier == tier
        stake = float((problem.weight * demand)[mine].sum())
        value += settings.fairness * stake * min(float(share[mine].min()), 1.0)
    return value
