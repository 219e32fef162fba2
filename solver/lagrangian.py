"""Upper bound by prices: charge every model for the shared resources and let each take what it likes best.

For any prices π >= 0 of the shared rows ``C v <= b``:

    best plan  <=  π b + Σ_groups max { (c − πC) v : v obeys the group's own rows }

Each term is bounded in closed form first (``solver.price_search``) and then, where it pays, by a small integer
model. Both are proofs, whatever the prices are and wherever a solver stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np

from data.types import FloatArray, IntArray
from solver.bounds import Bound
from solver.groups import ModelGroups
from solver.linear import LinearModel, LinearSolution, ModelSolver, SolveLimits

LAGRANGIAN = "Lagrangian"
RELAXED = "linear relaxation at prices"


@dataclass(slots=True)
class PricedGroups:
    """Prices, what each group can be worth at them at most, and the best answers found on the way.

    Attributes:
        prices: One a row of the model, 0 for rows that are not shared.
        charged: Objective of each column less the price of what it uses.
        rent: π b.
        limit: Shape (G,): no choice of the group is worth more at these prices.
        answer: The best choice found of each group that was solved.
    """

    prices: FloatArray
    charged: FloatArray
    rent: float
    limit: FloatArray
    answer: dict[int, FloatArray] = field(default_factory=dict)

    def bound(self) -> Bound:
        """What the whole plan can be worth at most, in model units."""
        return Bound(LAGRANGIAN if self.answer else RELAXED, self.rent + float(self.limit.sum()))

    def loss(self, groups: ModelGroups, values: FloatArray) -> FloatArray:
        """Shape (G,): how far each group stays below its limit. Idle rent added, it sums to the gap."""
        return np.maximum(self.limit - groups.per_group(self.charged * values), 0.0)


def price_groups(groups: ModelGroups, prices: FloatArray, limit: FloatArray, offset: float) -> PricedGroups:
    """Groups charged with prices; negative ones and those of rows without a limit count as 0."""
    model = groups.model
    paid = np.zeros(model.matrix.shape[0])
    able = groups.shared[np.isfinite(model.row_upper[groups.shared])]
    paid[able] = np.maximum(prices[able], 0.0)
    charged = model.objective - model.matrix.T @ paid
    return PricedGroups(paid, charged, float(paid[able] @ model.row_upper[able]) + offset, limit)


def group_model(groups: ModelGroups, priced: PricedGroups, group: int) -> LinearModel:
    """One group on its own: its own rows, the charged objective, no shared rows."""
    whole, columns = groups.model, groups.columns[group]
    part = groups.by_column[:, columns]
    rows = np.setdiff1d(part.indices, groups.shared)
    return LinearModel(
        priced.charged[columns],
        part.tocsr()[rows],
        whole.row_lower[rows],
        whole.row_upper[rows],
        whole.lower[columns],
        whole.upper[columns],
        whole.integer[columns],
    )


def solve_groups(
    groups: ModelGroups,
    priced: PricedGroups,
    order: IntArray,
    solvers: Sequence[ModelSolver],
    limits: Callable[[], SolveLimits | None],
) -> int:
    """Tighten the limits of the listed groups, one solver a thread, until ``limits`` gives none; returns how many.

    Answers are taken in the order of the list, so that equal answers give equal results.
    """

    def share(k: int) -> list[tuple[int, LinearSolution]]:
        done: list[tuple[int, LinearSolution]] = []
        for group in order[k :: len(solvers)].tolist():
            limit = limits()
            if limit is None:
                break
            done.append((group, solvers[k](group_model(groups, priced, group), limit)))
        return done

    with ThreadPoolExecutor(len(solvers)) as pool:
        answers = [pair for part in pool.map(share, range(len(solvers))) for pair in part]
    for group, answer in answers:
        priced.limit[group] = min(priced.limit[group], answer.bound)
        if answer.status.has_solution:
            priced.answer[group] = answer.values
    return len(answers)
