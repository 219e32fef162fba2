"""Why a guarantee is missed in a capacity split, in a sentence for people.

The cause is found from the split itself: no permitted pool, none that meets the targets, no part left, no move
left, or parts that are too coarse. The elastic relaxation says how much of all guarantees no split could keep.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from data.types import FloatArray
from solver.capacity_model import build_capacity_model
from solver.capacity_problem import CapacityProblem, CapacitySettings, CapacitySplit
from solver.linear import ModelSolver, SolveLimits, SolveStatus

LEAST_MISSED = 1e-3
"""Share of a guarantee whose loss is worth a sentence."""


@dataclass(frozen=True, slots=True)
class SplitNames:
    """What people call the pools, the classes and the tenant of each line."""

    pools: Sequence[str]
    classes: Sequence[str]
    tenants: Sequence[str]


@dataclass(frozen=True, slots=True)
class MissedGuarantee:
    """One missed guarantee: line, tokens/s missing, and the sentence."""

    line: int
    missing: float
    text: str


def missed_guarantees(
    problem: CapacityProblem, split: CapacitySplit, names: SplitNames
) -> tuple[MissedGuarantee, ...]:
    """Every guarantee that the split misses, largest worth first."""
    lost = split.missed * problem.penalty()
    found = [
        MissedGuarantee(k, float(split.missed[k]), _sentence(problem, split, names, k))
        for k in np.argsort(-lost, kind="stable").tolist()
        if split.missed[k] > LEAST_MISSED * max(float(problem.guarantee[k]), 1.0)
    ]
    return tuple(found)


def least_missed(
    problem: CapacityProblem, settings: CapacitySettings, solve: ModelSolver, limits: SolveLimits
) -> FloatArray | None:
    """Shape (K,): a way to miss as little worth of guarantees as any split must; ``None`` without an answer.

    Only the misses count, and replicas may be split into fractions: what is missed even so, no split can keep.
    """
    model, columns = build_capacity_model(problem, settings, whole=False)
    only_misses = np.zeros_like(model.objective)
    only_misses[columns.missed] = model.objective[columns.missed]
    answer = solve(replace(model, objective=only_misses).relaxed(), limits)
    if answer.status is not SolveStatus.OPTIMAL:
        return None
    missed: FloatArray = answer.values[columns.missed] * settings.quota_unit
    return missed


def _sentence(problem: CapacityProblem, split: CapacitySplit, names: SplitNames, k: int) -> str:
    c = int(problem.workload_class[k])
    who = f"{names.tenants[k]}'s guarantee of {problem.guarantee[k]:g} tokens/s in {names.classes[c]}"
    return f"{who} is missed by {split.missed[k]:.4g}: {_cause(problem, split, names, k)}"


def _cause(problem: CapacityProblem, split: CapacitySplit, names: SplitNames, k: int) -> str:
    c = int(problem.workload_class[k])
    permitted = np.flatnonzero(problem.permitted[:, k]).tolist()
    if not permitted:
        return "it may use no pool"
    able = [p for p in permitted if problem.pools[p].rate[c, -1] > 0]
    if not able:
        return f"none of its pools ({_listed(names, permitted)}) can meet the targets of {names.classes[c]}"
    most = sum(_alone(problem, p, c) for p in able)
    reasons = "; ".join(_pool_cause(problem, split, names, p, c) for p in able)
    if most < problem.guarantee[k]:
        return f"all that may move of its pools would carry {most:.4g} for it at most; {reasons}"
    return reasons


def _listed(names: SplitNames, pools: list[int]) -> str:
    return ", ".join(names.pools[p] for p in pools)


def _alone(problem: CapacityProblem, p: int, c: int) -> float:
    """What the pool would carry if the class got all that may move to it."""
    pool = problem.pools[p]
    return float(pool.rate[c, min(int(pool.current[c]) + pool.move_limit, pool.levels)])


def _pool_cause(problem: CapacityProblem, split: CapacitySplit, names: SplitNames, p: int, c: int) -> str:
    """Why this pool gives the class no more."""
    pool, parts, name = problem.pools[p], split.parts[p], names.pools[p]
    free = pool.levels - int(parts.sum())
    moves = pool.move_limit - int(np.maximum(parts - pool.current, 0).sum())
    back = max(int(pool.current[c] - parts[c]), 0)
    if moves + back <= 0:
        return f"{name} may move no more replicas in this period (limit {pool.move_limit / pool.parts:g})"
    if free <= 0:
        held = ", ".join(
            f"{names.classes[other]} {parts[other] / pool.parts:g}" for other in np.flatnonzero(parts).tolist()
        )
        return f"{name} has no replica left (of {pool.replicas}: {held})"
    reach = int(parts[c]) + min(free, moves + back)
    if pool.rate[c, reach] <= pool.rate[c, parts[c]]:
        return f"{name} has {_replicas(free / pool.parts)} left, too few to carry more of {names.classes[c]}"
    return f"{name} could give more, but it was worth more elsewhere"


def _replicas(count: float) -> str:
    return f"{count:g} replica" if count == 1 else f"{count:g} replicas"
