"""The cheapest replicas that cover a demand: the integer program that two of the rules are stated as.

    min  Σ price_i n_i + Σ start_i a_i + Σ M_j missed_j
    (1)  Σ_i y_ji + missed_j = D_j              every commodity
    (2)  Σ_j y_ji · need_ji ≤ n_i               every place
    (3)  Σ_i gpus_i n_i ≤ GPUs                  every pool
    (4)  a_i ≥ n_i − n⁰_i                       every place

A token that is missed costs far more than the dearest place for it, so that all is covered where GPUs suffice.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from data.errors import SolverError
from data.types import FloatArray, IntArray
from solver.linear import LinearModel, ModelSolver, SolveLimits
from solver.placement_rivals.need import replicas_per_token
from solver.problem import PlacementProblem
from solver.rows import RowBlocks

MISS_FACTOR = 10.0
GAP = 0.002
LIMIT_S = 5.0


@dataclass(frozen=True, slots=True)
class CoverCosts:
    """What a cover costs.

    Attributes:
        price: Shape (P,): of a replica (> 0).
        start: Shape (P,): of starting one; 0 = nothing.
        equal_tokens: A missed token costs the same for every commodity; otherwise it costs what its own dearest
            place would, so that costly models are not the first to be missed.
    """

    price: FloatArray
    start: FloatArray
    equal_tokens: bool = False


def cheapest_cover(
    problem: PlacementProblem, demand: FloatArray, gpus: FloatArray, costs: CoverCosts, solve: ModelSolver
) -> IntArray:
    """Replicas, shape (P,), of the cheapest cover.

    Args:
        problem: Rates, rights and what stands.
        demand: Shape (J,), tokens/s; commodities that nothing can serve are left out.
        gpus: Shape (pools,): limits; infinite = none.
        costs: Prices.
        solve: Solver of linear models.

    Raises:
        SolverError: The solver gave no answer.
    """
    need = replicas_per_token(problem)
    need[demand <= 0] = np.inf
    wanted = np.flatnonzero(np.isfinite(need).any(axis=1))
    count = len(problem.placements)
    if not len(wanted):
        return np.zeros(count, dtype=np.int64)
    model = _model(problem, need[wanted] * demand[wanted, None], gpus, costs, need[wanted], demand[wanted])
    answer = solve(model, SolveLimits(LIMIT_S, relative_gap=GAP))
    if not answer.status.has_solution:
        raise SolverError(f"cheapest cover: {answer.status.value} ({answer.detail})")
    replicas: IntArray = np.rint(answer.values[:count]).astype(np.int64)
    return replicas


def _model(
    problem: PlacementProblem,
    parts: FloatArray,
    gpus: FloatArray,
    costs: CoverCosts,
    need: FloatArray,
    demand: FloatArray,
) -> LinearModel:
    """The program; ``parts``, shape (jobs, P), are the replicas that each whole demand takes at each place.

    Columns: replicas, starts, shares of each demand at each place, shares missed.
    """
    places = problem.placements
    n, jobs = len(places), len(parts)
    job, place = np.nonzero(np.isfinite(parts))
    flows = len(job)
    every, flow, miss = np.arange(n), np.arange(flows) + 2 * n, np.arange(jobs) + 2 * n + flows
    dearest = np.where(np.isfinite(need), need * costs.price, 0.0).max(axis=1)
    if costs.equal_tokens:
        dearest = np.full(jobs, dearest.max())
    most = np.bincount(place, parts[job, place], n) + 1.0
    limited = np.flatnonzero(np.isfinite(gpus))
    row_of = np.full(len(gpus), -1)
    row_of[limited] = np.arange(len(limited))
    held = np.flatnonzero(row_of[places.pool] >= 0)
    rows = RowBlocks()
    rows.add("served", jobs, [(job, flow, 1.0), (np.arange(jobs), miss, 1.0)], 1.0, 1.0)
    rows.add("load", n, [(place, flow, parts[job, place]), (every, every, -1.0)], -np.inf, 0.0)
    rows.add("starts", n, [(every, every, 1.0), (every, n + every, -1.0)], -np.inf, places.current)
    rows.add("gpus", len(limited), [(row_of[places.pool[held]], held, places.gpus[held])], -np.inf, gpus[limited])
    size = 2 * n + flows + jobs
    matrix, low, high = rows.finish(size)
    return LinearModel(
        -np.concatenate([costs.price, costs.start, np.zeros(flows), MISS_FACTOR * dearest * demand]),
        matrix,
        low,
        high,
        np.zeros(size),
        np.concatenate([np.ceil(most), np.ceil(most), np.ones(flows + jobs)]),
        np.arange(size) < n,
    )
