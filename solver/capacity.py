"""SLOMax's capacity split: parts of each pool to classes, quotas to tenants, for the most value-weighted service.

The ladder: two greedy rules and the running parts give a split at once → CP-SAT where it is small, PuLP with CBC
started from the best of these → the best of all that the independent checker accepts. Solvers run in a guarded
child process; whatever happens to it, the answer comes within the time limit and a second.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from data.types import FloatArray, IntArray
from solver.capacity_greedy import fill_quotas, greedy_split
from solver.capacity_model import CapacityColumns, build_capacity_model, start_point
from solver.capacity_problem import CapacityProblem, CapacitySettings, CapacitySplit, SplitMethod
from solver.capacity_regret import regret_split
from solver.capacity_value import split_value
from solver.child import ChildSolver
from solver.linear import Backend, LinearSolution, ModelSolver, SolveLimits, SolveStatus, WarmStart
from solver.verify_capacity import capacity_violations

SMALL_BINARIES = 200
"""Up to this many level binaries CP-SAT is asked first."""
RESIDUAL_LIMIT = 1e-4
DUST = 1e-9
"""Relative difference of worths that means nothing."""
LEAST_SOLVE_S = 0.05
"""No solver is started with less time than this."""


def split_capacity(
    problem: CapacityProblem,
    settings: CapacitySettings,
    solve: ModelSolver | None = None,
    methods: tuple[Backend, ...] | None = None,
) -> CapacitySplit:
    """The best split found within the time limit, never worse than the greedy ones or the running parts.

    Args:
        problem: Pools, lines and worths.
        settings: Weights and limits.
        solve: Solver of linear models; default: a guarded child process of its own.
        methods: Backends in the order to try; default: by size. Empty = the greedy rules alone.
    """
    if not problem.pools or not len(problem.demand):
        return _empty(problem)
    if solve is None:
        with ChildSolver() as child:
            return split_capacity(problem, settings, child, methods)
    ends_s = time.monotonic() + settings.time_limit_s
    best = max(_quick(problem, settings), key=lambda split: split.objective)
    order = _by_size(problem) if methods is None else methods
    for number, method in enumerate(order):
        left_s = ends_s - time.monotonic()
        share = 1.0 if number == len(order) - 1 else 0.5
        if left_s * share < LEAST_SOLVE_S:
            best = _noted(best, f"{method} was not asked: no time left")
            continue
        best = _asked(_Question(problem, settings, solve, method, left_s * share), best)
        if best.proved:
            break
    return best


def _by_size(problem: CapacityProblem) -> tuple[Backend, ...]:
    binaries = sum((pool.levels + 1) * problem.classes for pool in problem.pools)
    return ("cp_sat", "cbc") if binaries <= SMALL_BINARIES else ("cbc",)


def _empty(problem: CapacityProblem) -> CapacitySplit:
    parts = np.zeros((len(problem.pools), problem.classes), dtype=np.int64)
    missed = np.minimum(problem.guarantee, problem.demand)
    cost = -float(missed @ problem.penalty())
    quota = np.zeros(problem.permitted.shape)
    return CapacitySplit(parts, quota, missed, cost, cost, "greedy", SolveStatus.OPTIMAL)


def _quick(problem: CapacityProblem, settings: CapacitySettings) -> Iterator[CapacitySplit]:
    """Splits that need no solver. The running parts are one of them where they still keep the rules."""
    parts, quota = greedy_split(problem, settings)
    yield close_split(problem, settings, parts, quota, "greedy")
    yield close_split(problem, settings, parts, fill_quotas(problem, settings, parts), "greedy")
    yield close_split(problem, settings, *regret_split(problem), "regret_greedy")
    current = np.array([pool.current for pool in problem.pools], dtype=np.int64)
    kept = close_split(problem, settings, current, fill_quotas(problem, settings, current), "kept")
    if not capacity_violations(problem, kept.parts, kept.quota, kept.missed, settings.quota_unit):
        yield kept


@dataclass(frozen=True, slots=True)
class _Question:
    """One call of one backend."""

    problem: CapacityProblem
    settings: CapacitySettings
    solve: ModelSolver
    method: Backend
    limit_s: float


def _asked(ask: _Question, best: CapacitySplit) -> CapacitySplit:
    """The better of ``best`` and a backend's answer, with the least bound; a poor answer leaves a note."""
    began = time.monotonic()
    whole = ask.method == "cp_sat"
    model, columns = build_capacity_model(ask.problem, ask.settings, whole=whole)
    start = None
    if not whole:
        point = start_point(ask.problem, ask.settings, columns, best.parts, best.quota)
        start = WarmStart(np.arange(columns.count, dtype=np.int64), point)
    left_s = max(ask.limit_s - (time.monotonic() - began), LEAST_SOLVE_S)
    limits = SolveLimits(left_s, ask.settings.relative_gap, seed=ask.settings.seed)
    answer = ask.solve(model, limits, start, ask.method)
    if not answer.status.has_solution:
        return _noted(best, f"{ask.method} {answer.status.value} ({answer.detail})")
    if model.residual(answer.values) > RESIDUAL_LIMIT:
        return _noted(best, f"{ask.method} broke a row by {model.residual(answer.values):.2g}")
    found = _read(ask, columns, answer)
    broken = capacity_violations(ask.problem, found.parts, found.quota, found.missed, ask.settings.quota_unit)
    if broken:
        return _noted(best, f"{ask.method} refused by the checker: {broken[0]}")
    return _better(best, found)


def _better(best: CapacitySplit, found: CapacitySplit) -> CapacitySplit:
    """The more valuable of the two; of equals the running parts, else the solver's.

    What is proved about the one holds for a better one all the more.
    """
    bound = min(best.bound, found.bound)
    dust = DUST * abs(best.objective)
    if found.objective < best.objective + (dust if best.method == "kept" else -dust):
        found = replace(best, status=found.status)
    return replace(found, bound=max(bound, found.objective), note=best.note)


def _noted(split: CapacitySplit, text: str) -> CapacitySplit:
    return replace(split, note=(*split.note, f"capacity split: {text}"))


def _read(ask: _Question, columns: CapacityColumns, answer: LinearSolution) -> CapacitySplit:
    problem = ask.problem
    parts = np.array(
        [
            [round(float(answer.values[span] @ np.arange(span.stop - span.start))) for span in pool]
            for pool in columns.level
        ],
        dtype=np.int64,
    ).reshape(len(problem.pools), problem.classes)
    quota = np.zeros(problem.permitted.shape)
    quota[columns.quota_pool, columns.quota_line] = answer.values[columns.quota] * ask.settings.quota_unit
    _trim(problem, parts, quota)
    method: SplitMethod = "cp_sat" if ask.method == "cp_sat" else "cbc"
    return close_split(problem, ask.settings, parts, quota, method, answer.bound, answer.status)


def _trim(problem: CapacityProblem, parts: IntArray, quota: FloatArray) -> None:
    """Scale quotas down to what their parts carry: a solver's tolerance must not become a promise."""
    for p, pool in enumerate(problem.pools):
        for c in range(problem.classes):
            mine = problem.workload_class == c
            given, room = float(quota[p, mine].sum()), float(pool.rate[c, parts[p, c]])
            if given > room:
                quota[p, mine] *= room / given


def close_split(
    problem: CapacityProblem,
    settings: CapacitySettings,
    parts: IntArray,
    quota: FloatArray,
    method: SplitMethod,
    bound: float = math.inf,
    status: SolveStatus = SolveStatus.FEASIBLE_LIMIT,
) -> CapacitySplit:
    """A split with its worth and misses recomputed from parts and quotas."""
    value, missed = split_value(problem, settings, parts, quota)
    return CapacitySplit(parts, quota, missed, value, max(bound, value), method, status)
