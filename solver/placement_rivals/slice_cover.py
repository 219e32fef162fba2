"""Replicas by Mélange's rule, as AIBrix's optimizer applies it: each model gets its cheapest mix of GPU types.

The demand of a model is cut into slices, each slice goes to one place, a place needs as many replicas as the
loads of its slices add up to, a load being rate / largest rate of one replica within the targets; the least
cost wins. Slices are let be as fine as they like (the original cuts each length bucket into four), which can
only make a plan cheaper.

One model at a time, and no limits on counts. Two ways to bring that within the GPUs of a fleet:
``IN_TURN``: models in order of their demand's cost, each within the GPUs that those before it left.
``CUT``: every model as if alone; where a pool is asked for too much, its replicas are cut in proportion, whole
ones by largest remainder.
"""

from __future__ import annotations

from enum import StrEnum

import numpy as np

from data.types import FloatArray, IntArray
from solver.linear import ModelSolver
from solver.placement_rivals.cheapest_cover import CoverCosts, cheapest_cover
from solver.placement_rivals.need import demand, free_gpus, replicas_per_token
from solver.problem import PlacementProblem


class Limits(StrEnum):
    """How the rule is brought within the GPUs of a fleet."""

    IN_TURN = "in_turn"
    CUT = "cut"


def slice_cover(problem: PlacementProblem, price: FloatArray, limits: Limits, solve: ModelSolver) -> IntArray:
    """Replicas by the rule above; ``price``, shape (P,), is that of one replica."""
    places, jobs = problem.placements, problem.commodities
    costs = CoverCosts(price, np.zeros(len(places)))
    wanted, need = demand(problem), replicas_per_token(problem)
    cheapest = np.where(np.isfinite(need), need * price, np.inf).min(axis=1, initial=np.inf)
    cost = np.bincount(jobs.model, np.where(np.isfinite(cheapest), cheapest, 0.0) * wanted, len(problem.models))
    replicas = np.zeros(len(places), dtype=np.int64)
    unlimited = np.full(len(problem.pools.gpus), np.inf)
    for model in np.argsort(-cost, kind="stable").tolist():
        own = np.where(jobs.model == model, wanted, 0.0)
        left = unlimited if limits is Limits.CUT else free_gpus(problem, replicas)
        replicas += cheapest_cover(problem, own, left, costs, solve)
    return cut_to_pools(problem, replicas)


def cut_to_pools(problem: PlacementProblem, asked: IntArray) -> IntArray:
    """Replicas in proportion where a pool is asked for more than it has: whole parts first, then by remainder."""
    places, pools = problem.placements, problem.pools
    cut = asked.copy()
    for pool in np.flatnonzero(free_gpus(problem, asked) < 0).tolist():
        here = np.flatnonzero(places.pool == pool)
        share = asked[here] * (float(pools.gpus[pool]) / float(asked[here] @ places.gpus[here]))
        cut[here] = np.floor(share).astype(np.int64)
        left = float(pools.gpus[pool]) - float(cut[here] @ places.gpus[here])
        for k in np.argsort(cut[here] - share, kind="stable").tolist():
            i = here[k]
            if cut[i] < asked[i] and places.gpus[i] <= left:
                cut[i] += 1
                left -= float(places.gpus[i])
    return cut
