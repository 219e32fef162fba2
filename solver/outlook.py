"""What is known before and beside the search: bounds, the value that gaps are a share of, and what must break."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from solver.bounds import Bound, Relaxation, best_bound
from solver.groups import ModelGroups
from solver.lagrangian import PricedGroups, price_groups
from solver.linear import LinearModel
from solver.matrix import FLOW_UNIT, PlacementMatrix
from solver.price_search import search_prices
from solver.problem import PlacementProblem
from solver.solution import Origin, read_solution

ALL_DEMAND = "all demand served"


@dataclass(frozen=True, slots=True)
class Outlook:
    """Known before the search.

    Attributes:
        bound: The best bound so far, in model units.
        reference: Value (tokens/s) that gaps are a share of: that of the relaxation without its penalties.
        misses: Whether even fractions of replicas cannot keep every promise.
    """

    bound: Bound
    reference: float
    misses: bool


def demand_bound(model: LinearModel) -> Bound:
    """Nobody can serve more than all demand at its full worth."""
    return Bound(ALL_DEMAND, float(np.maximum(model.objective, 0.0) @ model.upper) + model.offset)


def outlook_of(problem: PlacementProblem, built: PlacementMatrix, relaxation: Relaxation | None) -> Outlook:
    """The outlook that a relaxation gives; without one all demand counts as reachable."""
    demand = demand_bound(built.model)
    if relaxation is None:
        return Outlook(demand, float((problem.commodities.width * problem.commodities.value).sum()), misses=False)
    point = read_solution(problem, built, relaxation.values, Origin.SOLVER)
    bound = best_bound([relaxation.bound, demand])
    return Outlook(bound, max(point.value, 0.0), point.misses.any(problem))


def outlook_at_prices(
    problem: PlacementProblem, built: PlacementMatrix, groups: ModelGroups
) -> tuple[Outlook, PricedGroups]:
    """The groups at the prices of ``search_prices``, and the outlook that these give. No solver is called."""
    prices = search_prices(problem)
    rows = np.zeros(built.model.matrix.shape[0])
    rows[built.rows["gpus"]] = prices.gpus / FLOW_UNIT
    rows[built.rows["power"]] = prices.power / FLOW_UNIT
    limit = np.bincount(groups.of_model, prices.limit, len(groups)) / FLOW_UNIT
    priced = price_groups(groups, rows, limit.astype(np.float64), built.model.offset)
    bound = best_bound([priced.bound(), demand_bound(built.model)])
    return Outlook(bound, bound.value * FLOW_UNIT, misses=False), priced
