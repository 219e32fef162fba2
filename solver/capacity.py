"""SLOMax's capacity split: parts of each pool to classes, quotas to tenants, for the most value-weighted service.

CP-SAT proves small splits fastest, PuLP with CBC solves the larger ones; both run in a guarded child process. If
neither answers in time, a greedy split does.
"""

from __future__ import annotations

import math

import numpy as np

from data.types import FloatArray, IntArray
from solver.capacity_greedy import greedy_split
from solver.capacity_model import CapacityColumns, build_capacity_model, segment_units
from solver.capacity_problem import CapacityProblem, CapacitySettings, CapacitySplit
from solver.child import ChildSolver
from solver.linear import Backend, LinearModel, LinearSolution, ModelSolver, SolveLimits, SolveStatus

SMALL_BINARIES = 200
"""Up to this many level binaries CP-SAT is asked first."""
RESIDUAL_LIMIT = 1e-4


def split_capacity(
    problem: CapacityProblem,
    settings: CapacitySettings,
    solve: ModelSolver | None = None,
    methods: tuple[Backend, ...] | None = None,
) -> CapacitySplit:
    """The best split found within the time limit.

    Args:
        problem: Pools, lines and worths.
        settings: Weights and limits.
        solve: Solver of linear models; default: a guarded child process of its own.
        methods: Backends in the order to try; default: by size.
    """
    if not problem.pools or not len(problem.demand):
        return _empty(problem)
    if solve is None:
        with ChildSolver() as child:
            return split_capacity(problem, settings, child, methods)
    notes: list[str] = []
    binaries = sum((pool.levels + 1) * problem.classes for pool in problem.pools)
    by_size: tuple[Backend, ...] = ("cp_sat", "cbc") if binaries <= SMALL_BINARIES else ("cbc",)
    order = by_size if methods is None else methods
    for method in order:
        model, columns = build_capacity_model(problem, settings, whole=method == "cp_sat")
        limits = SolveLimits(settings.time_limit_s / len(order), settings.relative_gap, seed=settings.seed)
        answer = solve(model, limits, None, method)
        if answer.status.has_solution and model.residual(answer.values) <= RESIDUAL_LIMIT:
            return _read(problem, settings, model, columns, answer, method, notes)
        notes.append(f"capacity split: {method} {answer.status.value} ({answer.detail})")
    parts, quota = greedy_split(problem, settings)
    return _close(problem, settings, parts, quota, math.inf, "greedy", False, notes)


def _empty(problem: CapacityProblem) -> CapacitySplit:
    parts = np.zeros((len(problem.pools), problem.classes), dtype=np.int64)
    quota = np.zeros(problem.permitted.shape)
    missed = problem.guarantee.copy()
    cost = float(missed @ problem.miss_penalty)
    return CapacitySplit(parts, quota, missed, -cost, -cost, "greedy", True)


def _read(
    problem: CapacityProblem,
    settings: CapacitySettings,
    model: LinearModel,
    columns: CapacityColumns,
    answer: LinearSolution,
    method: Backend,
    notes: list[str],
) -> CapacitySplit:
    parts = np.array(
        [
            [round(float(answer.values[span] @ np.arange(span.stop - span.start))) for span in pool]
            for pool in columns.level
        ],
        dtype=np.int64,
    ).reshape(len(problem.pools), problem.classes)
    quota = np.zeros(problem.permitted.shape)
    quota[columns.quota_pool, columns.quota_line] = answer.values[columns.quota] * settings.quota_unit
    _trim(problem, parts, quota)
    proved = answer.status is SolveStatus.OPTIMAL
    bound = answer.bound
    if method == "cbc" and proved:
        # CBC states no bound; its proof says that the optimum is within the gap.
        value = model.value(answer.values)
        bound = value + settings.relative_gap * abs(value)
    return _close(problem, settings, parts, quota, bound, method, proved, notes)


def _trim(problem: CapacityProblem, parts: IntArray, quota: FloatArray) -> None:
    """Scale quotas down to what their parts carry: a solver's tolerance must not become a promise."""
    for p, pool in enumerate(problem.pools):
        for c in range(problem.classes):
            mine = problem.workload_class == c
            given, room = float(quota[p, mine].sum()), float(pool.rate[c, parts[p, c]])
            if given > room:
                quota[p, mine] *= room / given


def split_value(
    problem: CapacityProblem, settings: CapacitySettings, parts: IntArray, quota: FloatArray
) -> tuple[float, FloatArray]:
    """Worth of a split, recomputed from its definition, and the guaranteed tokens/s that it misses."""
    widths = segment_units(problem, settings) * settings.quota_unit
    served = quota.sum(axis=0)
    before = np.cumsum(widths, axis=1) - widths
    by_segment = np.clip(served[:, None] - before, 0.0, widths)
    value = float((by_segment * problem.weight[:, None] * np.array(settings.segment_value)).sum())
    missed = widths[:, 0] - by_segment[:, 0]
    value -= float(missed @ problem.miss_penalty)
    demand = widths.sum(axis=1)
    share = np.where(demand > 0, served / np.maximum(demand, 1e-12), 1.0)
    for tier in np.unique(problem.tier):
        mine = problem.tier == tier
        stake = float((problem.weight * demand)[mine].sum())
        value += settings.fairness * stake * min(float(share[mine].min()), 1.0)
    mean_weight = float(problem.weight.mean())
    for p, pool in enumerate(problem.pools):
        per_part = pool.rate[:, -1] / max(pool.levels, 1)
        moved = np.maximum(parts[p] - pool.current, 0)
        value -= settings.move_cost * mean_weight * float(moved @ per_part)
    return value, missed


def _close(
    problem: CapacityProblem,
    settings: CapacitySettings,
    parts: IntArray,
    quota: FloatArray,
    bound: float,
    method: str,
    proved: bool,
    notes: list[str],
) -> CapacitySplit:
    value, missed = split_value(problem, settings, parts, quota)
    return CapacitySplit(parts, quota, missed, value, max(bound, value), method, proved, tuple(notes))
