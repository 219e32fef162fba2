"""Upper bounds on what any placement can be worth, and the smallest of them with its name.

All bounds here are on the *net* objective of the model (penalties included), in model units.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from data.types import FloatArray
from solver.linear import LinearModel, LinearSolution, ModelSolver, SolveLimits, SolveStatus

NO_BOUND = "none"
LINKED_LP = "linked LP"
SOLVER_BOUND = "solver's dual bound"


@dataclass(frozen=True, slots=True)
class Bound:
    """A proved upper bound and how it was proved."""

    name: str
    value: float


@dataclass(frozen=True, slots=True)
class Relaxation:
    """The linear relaxation with rows (4): its bound, its point and the prices of its rows."""

    bound: Bound
    values: FloatArray
    row_duals: FloatArray


def linked_lp_bound(model: LinearModel, solve: ModelSolver, limits: SolveLimits) -> Relaxation | None:
    """Solve the relaxation; ``None`` unless it was solved to optimality (an early stop proves nothing)."""
    answer = solve(model.relaxed(), limits)
    if answer.status is not SolveStatus.OPTIMAL:
        return None
    return Relaxation(Bound(LINKED_LP, answer.bound), answer.values, answer.row_duals)


def solver_bound(answer: LinearSolution) -> Bound:
    """The branch-and-bound's own dual bound; ``inf`` where it proved none."""
    if answer.status is SolveStatus.ERROR or math.isnan(answer.bound):
        return Bound(NO_BOUND, math.inf)
    return Bound(SOLVER_BOUND, answer.bound)


def best_bound(bounds: list[Bound]) -> Bound:
    """The smallest; ``inf`` named "none" where there is none."""
    finite = [bound for bound in bounds if math.isfinite(bound.value)]
    return min(finite, key=lambda bound: bound.value, default=Bound(NO_BOUND, math.inf))
