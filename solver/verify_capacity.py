"""Independent checker of capacity splits: restates (12)–(18) of ``docs/formulation.md`` in plain loops.

It shares no code with the models, the greedy rules or the solvers. A split that breaks a rule is never used.
"""

from __future__ import annotations

import math

from data.types import FloatArray, IntArray
from solver.capacity_problem import CapacityProblem
from solver.violation import Violation

SLACK = 1e-6
"""Relative slack of every comparison of rates."""


def capacity_violations(
    problem: CapacityProblem, parts: IntArray, quota: FloatArray, missed: FloatArray, quota_unit: float = 1.0
) -> list[Violation]:
    """Every rule that a split breaks; empty for a sound one.

    Args:
        problem: What was to be split.
        parts: Shape (pools, C).
        quota: Shape (pools, K): tokens/s.
        missed: Shape (K,): guaranteed tokens/s that the split says are missed.
        quota_unit: Demand and guarantees count in whole units of this many tokens/s.
    """
    pools, classes, lines = len(problem.pools), problem.classes, len(problem.demand)
    if parts.shape != (pools, classes) or quota.shape != (pools, lines) or missed.shape != (lines,):
        return [Violation("shape", "split", f"{parts.shape}, {quota.shape}, {missed.shape}")]
    if not all(math.isfinite(v) and v >= -SLACK for v in [*quota.ravel().tolist(), *missed.tolist()]):
        return [Violation("numbers", "split", "a quota or a missed rate is negative or not finite")]
    found: list[Violation] = []
    for p in range(pools):
        found += _pool(problem, p, parts[p].tolist(), quota[p].tolist())
    for k in range(lines):
        served = sum(quota[:, k].tolist())
        found += _line(problem, k, served, float(missed[k]), quota_unit)
    return found


def _pool(problem: CapacityProblem, p: int, parts: list[int], quota: list[float]) -> list[Violation]:
    pool, where = problem.pools[p], f"pool {p}"
    found: list[Violation] = []
    if min(parts) < 0 or sum(parts) > pool.replicas * pool.parts:
        found.append(Violation("parts", where, f"{parts} of {pool.replicas * pool.parts} parts are given away"))
        return found
    moved = sum(max(parts[c] - int(pool.current[c]), 0) for c in range(len(parts)))
    if moved > pool.move_limit:
        found.append(Violation("moves", where, f"{moved} parts change class, {pool.move_limit} may"))
    for c, level in enumerate(parts):
        given = 0.0
        for k, rate in enumerate(quota):
            if problem.workload_class[k] == c:
                given += rate
        carried = float(pool.rate[c, level])
        if given > carried + SLACK * (1 + carried):
            found.append(Violation("room", f"{where}, class {c}", f"quotas of {given:g}, {carried:g} carried"))
    for k, rate in enumerate(quota):
        if rate > SLACK and not problem.permitted[p, k]:
            found.append(Violation("permission", f"{where}, line {k}", f"quota of {rate:g} is not permitted"))
    return found


def _line(problem: CapacityProblem, k: int, served: float, missed: float, unit: float) -> list[Violation]:
    demand, guarantee = float(problem.demand[k]), float(problem.guarantee[k])
    found: list[Violation] = []
    if served > demand + unit + SLACK * (1 + demand):
        found.append(Violation("demand", f"line {k}", f"quotas of {served:g}, {demand:g} asked for"))
    if missed < min(guarantee, demand) - served - unit - SLACK * (1 + guarantee):
        found.append(Violation("guarantee", f"line {k}", f"{served:g} of {guarantee:g} given, {missed:g} missed"))
    return found
