"""What a placement rule asks of a problem: how much of a replica a demand takes, and how many GPUs are left."""

from __future__ import annotations

import numpy as np

from data.types import FloatArray, IntArray
from solver.problem import PlacementProblem

DUST = 1e-9
"""Parts of a replica below this are rounding."""


def demand(problem: PlacementProblem) -> FloatArray:
    """Shape (J,): tokens/s of each commodity, taken as certain."""
    total: FloatArray = problem.commodities.width.sum(axis=1)
    return total


def replicas_per_token(problem: PlacementProblem) -> FloatArray:
    """Shape (J, P): replicas that one token/s of a commodity takes; infinite where it must not or cannot run."""
    jobs, places = problem.commodities, problem.placements
    rate = places.rate[:, jobs.workload_class].T
    may = (jobs.model[:, None] == places.model) & jobs.allowed[:, places.site] & (rate > 0)
    share: FloatArray = np.where(may, 1.0 / np.where(rate > 0, rate, 1.0), np.inf)
    return share


def free_gpus(problem: PlacementProblem, replicas: IntArray) -> FloatArray:
    """Shape (pools,): GPUs that these replicas leave."""
    places = problem.placements
    used = np.bincount(places.pool, replicas * places.gpus, len(problem.pools.gpus))
    left: FloatArray = problem.pools.gpus - used
    return left


def whole(parts: float) -> int:
    """Replicas that hold so many parts of one."""
    return int(np.ceil(parts - DUST))
