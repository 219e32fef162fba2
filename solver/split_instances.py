"""Seeded random capacity splits for tests and benchmarks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from data.types import FloatArray, IntArray
from solver.capacity_problem import CapacityPool, CapacityProblem
from solver.problem import BoolArray

TIER_WORTH = (4.0, 2.0, 1.0)
MISS_FACTOR = 10.0
CLASS_MIX = (0.5, 0.2, 0.3)
"""Shares of interactive, long-context and batch demand."""
POOLING_LOSS = (0.9, 0.6, 0.1)
"""``β`` of F[n] = μ (n − β √n): tight targets lose most in small groups."""


@dataclass(frozen=True, slots=True)
class SplitSize:
    """Size and load of a random split.

    Attributes:
        pools: Pools, 4 to 24 replicas each.
        tenants: Tenants; each asks for one to three classes.
        load: Demand over what the pools carry.
        guaranteed: Share of a guaranteed-tier tenant's demand that is promised, on average.
        settled: Whether a running split limits the moves to a third of each pool.
    """

    pools: int
    tenants: int
    load: float = 1.2
    guaranteed: float = 0.5
    settled: bool = True


def random_split(size: SplitSize, seed: int) -> CapacityProblem:
    """A problem with three classes and three tiers. The same size and seed give the same one."""
    rng = np.random.default_rng([seed, size.pools, size.tenants])
    pools = tuple(_pool(rng, size.settled) for _ in range(size.pools))
    tier = rng.choice(3, size.tenants, p=(0.25, 0.45, 0.3))
    asks = rng.random((size.tenants, 3)) < 0.7
    asks[np.arange(size.tenants), rng.integers(0, 3, size.tenants)] = True
    tenant, kind = np.nonzero(asks)
    lines = len(tenant)
    permitted = _permitted(rng, size, tenant)
    demand = _demand(rng, pools, kind, size.load)
    promised = np.where(tier == 0, size.guaranteed, np.where(tier == 1, 0.5 * size.guaranteed, 0.0))[tenant]
    weight = np.array(TIER_WORTH)[tier][tenant]
    return CapacityProblem(
        pools=pools,
        classes=3,
        workload_class=kind.astype(np.int64),
        tier=tier[tenant].astype(np.int64),
        permitted=permitted,
        demand=demand,
        guarantee=demand * promised * rng.uniform(0.5, 1.5, lines).clip(0.0, 1.0),
        weight=weight,
        miss_penalty=MISS_FACTOR * weight,
    )


def _pool(rng: np.random.Generator, settled: bool) -> CapacityPool:
    replicas = int(rng.integers(4, 25))
    parts = 2 if replicas <= 12 else 1
    count = np.arange(replicas * parts + 1) / parts
    alone = rng.lognormal(6.0, 0.4) * np.array([0.7, 0.5, 1.0])
    rate = alone[:, None] * np.maximum(count - np.array(POOLING_LOSS)[:, None] * np.sqrt(count), 0.0)
    levels = replicas * parts
    if not settled:
        return CapacityPool(replicas, parts, rate, np.full(3, levels), levels)
    shares = rng.dirichlet(8.0 * np.array(CLASS_MIX))
    current = np.floor(shares * levels).astype(np.int64)
    return CapacityPool(replicas, parts, rate, current, max(levels // 3, parts))


def _permitted(rng: np.random.Generator, size: SplitSize, tenant: IntArray) -> BoolArray:
    """Each tenant may use about half of the pools, one at least."""
    allowed = rng.random((size.pools, size.tenants)) < 0.5
    allowed[rng.integers(0, size.pools, size.tenants), np.arange(size.tenants)] = True
    return allowed[:, tenant]


def _demand(rng: np.random.Generator, pools: tuple[CapacityPool, ...], kind: IntArray, load: float) -> FloatArray:
    """Lognormal rates that add up to ``load`` × what the pools carry, class by class of the mix."""
    raw = rng.lognormal(0.0, 0.8, len(kind))
    demand = np.zeros(len(kind))
    for c, share in enumerate(CLASS_MIX):
        carried = share * sum(float(pool.rate[c, -1]) for pool in pools)
        mine = kind == c
        if mine.any():
            demand[mine] = load * carried * raw[mine] / raw[mine].sum()
    return demand
