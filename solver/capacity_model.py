"""Turns a capacity split into a multiple-choice linear model: the rows (12)–(18) of ``docs/formulation.md``.

Demand is counted in whole quota units. For CP-SAT the table and the quotas are whole too; else they are exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from data.types import FloatArray, IntArray
from solver.capacity_problem import CapacityProblem, CapacitySettings
from solver.linear import LinearModel
from solver.rows import RowBlocks, Term

SHARE_UNITS = 1000.0
"""Steps of the worst served share of a tier."""


@dataclass(frozen=True, slots=True)
class CapacityColumns:
    """Where each kind of variable stands. ``level[p][c]`` are the binaries of pool p and class c."""

    level: tuple[tuple[slice, ...], ...]
    quota_pool: IntArray
    quota_line: IntArray
    quota: slice
    served: slice
    missed: slice
    worst: slice
    moved: slice
    count: int


def demand_units(problem: CapacityProblem, unit: float) -> tuple[IntArray, IntArray]:
    """Demand and guarantee of each line in whole quota units; a guarantee is never above its demand."""
    demand = np.ceil(problem.demand / unit - 1e-9).astype(np.int64)
    guarantee = np.minimum(np.ceil(problem.guarantee / unit - 1e-9).astype(np.int64), demand)
    return demand, guarantee


def segment_units(problem: CapacityProblem, settings: CapacitySettings) -> IntArray:
    """Shape (K, 3): widths of the guarantee, base and burst part of each line, in quota units."""
    demand, guarantee = demand_units(problem, settings.quota_unit)
    base_end = np.maximum(np.floor(settings.base_share * demand).astype(np.int64), guarantee)
    return np.stack([guarantee, base_end - guarantee, demand - base_end], axis=1)


def build_capacity_model(
    problem: CapacityProblem, settings: CapacitySettings, *, whole: bool
) -> tuple[LinearModel, CapacityColumns]:
    """The model; ``whole`` makes every column whole (for CP-SAT), else only the level binaries are."""
    columns = _columns(problem)
    rows = RowBlocks()
    _level_rows(problem, settings, columns, rows, whole)
    _line_rows(problem, settings, columns, rows)
    matrix, row_lower, row_upper = rows.finish(columns.count)
    integer = np.full(columns.count, whole)
    for pool in columns.level:
        for span in pool:
            integer[span] = True
    lower, upper = np.zeros(columns.count), _upper(problem, settings, columns)
    objective = _objective(problem, settings, columns)
    return LinearModel(objective, matrix, row_lower, row_upper, lower, upper, integer), columns


def start_point(
    problem: CapacityProblem,
    settings: CapacitySettings,
    columns: CapacityColumns,
    parts: IntArray,
    quota: FloatArray,
) -> FloatArray:
    """A value for every column that describes a split which keeps the rules."""
    values = np.zeros(columns.count)
    for p, pool in enumerate(problem.pools):
        for c, span in enumerate(columns.level[p]):
            values[span.start + int(parts[p, c])] = 1.0
            grown = max(int(parts[p, c] - pool.current[c]), 0)
            values[columns.moved.start + p * problem.classes + c] = grown
    units = quota / settings.quota_unit
    values[columns.quota] = units[columns.quota_pool, columns.quota_line]
    widths = segment_units(problem, settings).astype(np.float64)
    served = units.sum(axis=0)
    by_segment = np.clip(served[:, None] - (np.cumsum(widths, axis=1) - widths), 0.0, widths)
    values[columns.served] = by_segment.ravel()
    values[columns.missed] = widths[:, 0] - by_segment[:, 0]
    demand = np.maximum(widths.sum(axis=1), 1e-12)
    share = np.where(widths.any(axis=1), served / demand, 1.0)
    for tier in range(columns.worst.stop - columns.worst.start):
        mine = problem.tier == tier
        values[columns.worst.start + tier] = SHARE_UNITS * min(float(share[mine].min(initial=1.0)), 1.0)
    return values


def _columns(problem: CapacityProblem) -> CapacityColumns:
    at = 0
    level: list[tuple[slice, ...]] = []
    for pool in problem.pools:
        width = pool.levels + 1
        level.append(tuple(slice(at + c * width, at + (c + 1) * width) for c in range(problem.classes)))
        at += width * problem.classes
    quota_pool, quota_line = np.nonzero(problem.permitted)
    lines, tiers = len(problem.demand), int(problem.tier.max(initial=0)) + 1
    spans: list[slice] = []
    for size in (len(quota_pool), 3 * lines, lines, tiers, len(problem.pools) * problem.classes):
        spans.append(slice(at, at + size))
        at += size
    quota, served, missed, worst, moved = spans
    return CapacityColumns(tuple(level), quota_pool, quota_line, quota, served, missed, worst, moved, at)


def _numbers(span: slice) -> IntArray:
    return np.arange(span.start, span.stop, dtype=np.int64)


def _level_rows(
    problem: CapacityProblem, settings: CapacitySettings, columns: CapacityColumns, rows: RowBlocks, whole: bool
) -> None:
    """(12) one level a class, (13) parts of a pool, (14) quotas within F, (15) moves."""
    one: list[Term] = []
    within: list[Term] = []
    room: list[Term] = []
    moved: list[Term] = []
    budget: list[Term] = []
    current: list[float] = []
    row = 0
    for p, pool in enumerate(problem.pools):
        units = pool.rate / settings.quota_unit
        if whole:
            units = np.floor(units + 1e-9)
        steps = np.arange(pool.levels + 1)
        for c, span in enumerate(columns.level[p]):
            binaries = _numbers(span)
            here = np.full(len(binaries), row)
            one.append((here, binaries, 1.0))
            within.append((np.full(len(binaries), p), binaries, steps))
            room.append((here, binaries, -units[c]))
            mine = np.flatnonzero((columns.quota_pool == p) & (problem.workload_class[columns.quota_line] == c))
            room.append((np.full(len(mine), row), columns.quota.start + mine, 1.0))
            move = np.array([columns.moved.start + row])
            moved.append((here, binaries, -steps))
            moved.append((np.array([row]), move, 1.0))
            budget.append((np.array([p]), move, 1.0))
            current.append(-float(pool.current[c]))
            row += 1
    count = len(problem.pools)
    rows.add("level", row, one, 1.0, 1.0)
    rows.add("parts", count, within, -np.inf, [float(p.levels) for p in problem.pools])
    rows.add("room", row, room, -np.inf, 0.0)
    rows.add("moved", row, moved, current, np.inf)
    rows.add("move_limit", count, budget, -np.inf, [float(p.move_limit) for p in problem.pools])


def _line_rows(
    problem: CapacityProblem, settings: CapacitySettings, columns: CapacityColumns, rows: RowBlocks
) -> None:
    """(16) Σ_p q = Σ z, (17) z_1 + miss >= guarantee, (18) u d <= Σ z for the worst line of a tier."""
    lines = len(problem.demand)
    demand, guarantee = demand_units(problem, settings.quota_unit)
    served: Term = (np.repeat(np.arange(lines), 3), _numbers(columns.served), -1.0)
    quotas: Term = (columns.quota_line, _numbers(columns.quota), 1.0)
    rows.add("served", lines, [quotas, served], 0.0, 0.0)
    first: Term = (np.arange(lines), columns.served.start + 3 * np.arange(lines), 1.0)
    missed: Term = (np.arange(lines), _numbers(columns.missed), 1.0)
    rows.add("guarantee", lines, [first, missed], guarantee.astype(float), np.inf)
    worst: Term = (np.arange(lines), columns.worst.start + problem.tier, demand.astype(float))
    scaled: Term = (np.repeat(np.arange(lines), 3), _numbers(columns.served), -SHARE_UNITS)
    rows.add("fairness", lines, [worst, scaled], -np.inf, 0.0)


def _upper(problem: CapacityProblem, settings: CapacitySettings, columns: CapacityColumns) -> FloatArray:
    demand, guarantee = demand_units(problem, settings.quota_unit)
    upper = np.ones(columns.count)
    upper[columns.quota] = demand[columns.quota_line]
    upper[columns.served] = segment_units(problem, settings).ravel()
    upper[columns.missed] = guarantee
    upper[columns.worst] = SHARE_UNITS
    upper[columns.moved] = [float(pool.levels) for pool in problem.pools for _ in range(problem.classes)]
    return upper


def _objective(problem: CapacityProblem, settings: CapacitySettings, columns: CapacityColumns) -> FloatArray:
    unit = settings.quota_unit
    worth = np.zeros(columns.count)
    worth[columns.served] = (problem.segment_worth(settings.segment_value) * unit).ravel()
    worth[columns.missed] = -problem.penalty() * unit
    demand, _ = demand_units(problem, unit)
    tiers = columns.worst.stop - columns.worst.start
    stake = np.bincount(problem.tier, problem.weight * demand * unit, tiers)
    worth[columns.worst] = settings.fairness * stake / SHARE_UNITS
    mean_weight = float(problem.weight.mean()) if len(problem.weight) else 0.0
    worth[columns.moved] = [
        -settings.move_cost * mean_weight * float(pool.rate[c, -1]) / max(pool.levels, 1)
        for pool in problem.pools
        for c in range(problem.classes)
    ]
    return worth
