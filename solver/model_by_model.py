"""Builds a placement model by model: each takes what pays at the prices of the shared resources, on what is left.

Models with promises choose first, then those with most value at stake. Where the answer that the pricing pass
found still fits, it is the best choice also on what is left, and nothing is solved again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from data.types import FloatArray, IntArray
from solver.groups import ModelGroups, free_columns, shared_rows_hold
from solver.lagrangian import PricedGroups
from solver.linear import ModelSolver, SolveLimits

ROW_DUST = 1e-7


def choosing_order(groups: ModelGroups, priced: PricedGroups) -> IntArray:
    """Groups with promises first, each kind by falling value at stake."""
    return np.lexsort((np.arange(len(groups)), -priced.limit, ~groups.promised)).astype(np.int64)


def construct(
    groups: ModelGroups,
    priced: PricedGroups,
    base: FloatArray,
    solve: ModelSolver,
    limits: Callable[[], SolveLimits | None],
) -> FloatArray:
    """A placement as a column vector.

    Args:
        groups: The cut model.
        priced: Prices, and the answers of the pricing pass where there are any.
        base: A feasible vector to start from: what a group keeps that gets no turn.
        solve: Solver of the groups' models.
        limits: Limits of the next small model; ``None`` ends the construction.
    """
    values = base.copy()
    activity = groups.model.matrix @ values
    for group in choosing_order(groups, priced).tolist():
        columns = groups.columns[group]
        wish = priced.answer.get(group)
        if wish is None or not shared_rows_hold(groups, activity, columns, wish - values[columns], ROW_DUST):
            limit = limits()
            if limit is None:
                break
            part = free_columns(groups, values, activity, columns)
            answer = solve(replace(part.model, objective=priced.charged[columns]), limit)
            if not answer.status.has_solution or part.model.residual(answer.values) > ROW_DUST:
                continue
            wish = answer.values
        activity = activity + groups.by_column[:, columns] @ (wish - values[columns])
        values[columns] = wish
    return values
