"""Seeded random placement problems with the shape of real fleets: for benchmarks, tests and sizing questions.

Sites in three zones hold one to three GPU types; models of 3 to 680 GB have one or two configurations a type;
demand follows a Zipf law over models, so that most (site, model) pairs need less than one replica, which is what
makes placement hard. Offered load 1 means that the demand, served by the best GPUs, would fill the fleet.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from data.types import FloatArray, IntArray
from solver.problem import (
    BoolArray,
    BurstCover,
    Commodities,
    FlowPromise,
    PlacementProblem,
    Placements,
    Pools,
    ReplicaPromise,
    SiteLimits,
    SiteLossCover,
)

GPU_MEMORY_GB = np.array([24.0, 40.0, 80.0, 80.0, 141.0])
GPU_SPEED = np.array([0.22, 0.8, 1.0, 1.9, 2.4])
GPU_POWER_KW = np.array([0.09, 0.4, 0.45, 0.75, 0.8])
WEIGHTS_GB = np.array([3.0, 8.0, 16.0, 28.0, 65.0, 140.0, 250.0, 680.0])
CLASS_VALUE = np.array([3.0, 2.0, 1.0])
CLASS_SHARE = np.array([0.45, 0.22, 1.0])
"""SLO-feasible share of the peak decode rate: interactive, long context, batch."""
CLASS_MIX = np.array([0.5, 0.2, 0.3])
SEGMENT_WIDTH = np.array([0.85, 0.30, 0.35])
SEGMENT_CHANCE = np.array([0.97, 0.50, 0.08])


@dataclass(frozen=True, slots=True)
class InstanceSize:
    """How large and how loaded a random problem is."""

    sites: int
    models: int
    load: float = 1.0
    nodes: tuple[int, int] = (1, 9)
    """Nodes of 8 GPUs in a pool, from and below."""
    promises: bool = True
    running_share: float = 0.0
    """Share of the GPUs taken by a random running placement."""


@dataclass(frozen=True, slots=True)
class _Ways:
    """Configurations of all models as columns."""

    model: IntArray
    gpu: IntArray
    degree: IntArray
    rate: FloatArray
    weights_gb: FloatArray


def random_problem(size: InstanceSize, seed: int) -> PlacementProblem:
    """A placement problem of that size; equal seeds give equal problems."""
    rng = np.random.default_rng(seed)
    zones = min(3, size.sites)
    zone = np.concatenate([np.arange(zones), rng.integers(0, zones, size.sites - zones)])
    pools = _pools(rng, size)
    ways = _ways(rng, size.models)
    permitted = rng.random((size.models, size.sites)) < 0.7
    permitted[np.arange(size.models), rng.integers(0, size.sites, size.models)] = True
    places = _placements(rng, size, pools, ways, permitted)
    best = np.zeros((size.models, len(CLASS_VALUE)))
    np.maximum.at(best, ways.model, ways.rate / (ways.degree * GPU_SPEED[ways.gpu])[:, None])
    jobs = _commodities(rng, size, zone, pools, places, best)
    power = np.bincount(pools.site, pools.gpus * GPU_POWER_KW[[int(g) for g in pools.gpu_type]], size.sites)
    sites = SiteLimits(
        names=tuple(f"s{i}" for i in range(size.sites)),
        zone=zone,
        power_kw=power * rng.uniform(0.8, 1.1, size.sites),
        ingress_tokens_per_s=np.full(size.sites, np.inf),
        host_memory_gb=rng.uniform(500.0, 4000.0, size.sites),
        start_budget_gpus=np.full(size.sites, np.inf),
    )
    names = tuple(f"m{i}" for i in range(size.models))
    problem = PlacementProblem(sites, pools, places, jobs, names, ("interactive", "long", "batch"))
    return _with_promises(rng, problem) if size.promises else problem


def _pools(rng: np.random.Generator, size: InstanceSize) -> Pools:
    site: list[int] = []
    kind: list[str] = []
    gpus: list[float] = []
    for s in range(size.sites):
        for g in sorted(rng.choice(len(GPU_SPEED), size=int(rng.integers(1, 4)), replace=False).tolist()):
            site.append(s)
            kind.append(str(g))
            gpus.append(8.0 * int(rng.integers(*size.nodes)))
    return Pools(np.array(site), tuple(kind), np.array(gpus))


def _ways(rng: np.random.Generator, models: int) -> _Ways:
    weights = rng.choice(WEIGHTS_GB, models, p=[0.14, 0.2, 0.2, 0.14, 0.14, 0.1, 0.05, 0.03])
    rows: list[tuple[int, int, int]] = []
    rates: list[FloatArray] = []
    for m in range(models):
        for g in range(len(GPU_SPEED)):
            fitting = [t for t in (1, 2, 4, 8) if weights[m] * 1.35 <= t * GPU_MEMORY_GB[g]]
            for t in fitting[: 2 if g >= 2 else 1]:
                rate = 2600.0 * GPU_SPEED[g] * t**0.88 * (8.0 / weights[m]) ** 0.65 * CLASS_SHARE
                rate = rate * rng.uniform(0.9, 1.1)
                rate[0] *= weights[m] / (t * GPU_SPEED[g]) <= 90
                rate[1] *= GPU_MEMORY_GB[g] * t - weights[m] >= 20
                rows.append((m, g, t))
                rates.append(rate)
    table = np.array(rows)
    return _Ways(table[:, 0], table[:, 1], table[:, 2], np.array(rates), weights[table[:, 0]])


def _placements(
    rng: np.random.Generator, size: InstanceSize, pools: Pools, ways: _Ways, permitted: BoolArray
) -> Placements:
    pairs = [
        (p, w)
        for p in range(len(pools.site))
        for w in np.flatnonzero(ways.gpu == int(pools.gpu_type[p])).tolist()
        if permitted[ways.model[w], pools.site[p]] and ways.degree[w] <= pools.gpus[p]
    ]
    pool = np.array([p for p, _ in pairs], dtype=np.int64)
    way = np.array([w for _, w in pairs], dtype=np.int64)
    gpus = ways.degree[way]
    room = np.floor(pools.gpus[pool] / gpus).astype(np.int64)
    current = np.zeros(len(pool), dtype=np.int64)
    left = size.running_share * pools.gpus.copy()
    for i in rng.permutation(len(pool)).tolist():
        current[i] = min(int(left[pool[i]] // gpus[i]), int(rng.integers(0, 3)))
        left[pool[i]] -= current[i] * gpus[i]
    rate = ways.rate[way]
    return Placements(
        site=pools.site[pool],
        pool=pool,
        model=ways.model[way],
        config=tuple(f"c{w}" for w in way.tolist()),
        gpus=gpus,
        power_kw=gpus * GPU_POWER_KW[ways.gpu[way]],
        weights_gb=ways.weights_gb[way],
        rate=0.85 * rate,
        mix_rate=0.85 * rate.mean(axis=1),
        current=current,
        lower=np.zeros(len(pool), dtype=np.int64),
        upper=room,
        start_cost=np.minimum(0.5, (20 + ways.weights_gb[way] / 2.0) / 1800.0) * rate.max(axis=1),
        prewarm_limit=np.where(rng.random(len(pool)) < 0.2, 1, 0),
        prewarm_current=np.zeros(len(pool), dtype=np.int64),
    )


def _commodities(
    rng: np.random.Generator,
    size: InstanceSize,
    zone: IntArray,
    pools: Pools,
    places: Placements,
    best: FloatArray,
) -> Commodities:
    """Demand of each (model, class) from each zone; 30 % of it must stay in its zone."""
    popularity = rng.permutation(1.0 / np.arange(1, size.models + 1) ** 0.9)
    popularity /= popularity.sum()
    fleet = float((pools.gpus * GPU_SPEED[[int(g) for g in pools.gpu_type]]).sum())
    can = np.zeros((len(zone), size.models, len(CLASS_VALUE)), dtype=bool)
    np.logical_or.at(can, (places.site, places.model), places.rate > 0)
    rows: list[tuple[int, int, float, float]] = []
    allowed: list[FloatArray] = []
    route: list[FloatArray] = []
    for m in range(size.models):
        worth = rng.uniform(0.75, 1.35) / max(best[m].max(), 1e-9)
        shares = rng.dirichlet(np.full(int(zone.max()) + 1, 0.6))
        for c in np.flatnonzero(best[m] > 0).tolist():
            for z, share in enumerate(shares.tolist()):
                rate = size.load * fleet * popularity[m] * CLASS_MIX[c] * best[m, c] * 0.62 * share
                for part, bound in ((0.7, False), (0.3, True)):
                    rows.append((m, c, part * rate, CLASS_VALUE[c] * worth * 1000.0))
                    allowed.append(can[:, m, c] & ((zone == z) | (not bound)))
                    route.append(np.where(zone == z, 0.0, 1e-3) * worth * 1000.0)
    table = np.array(rows)
    return Commodities(
        model=table[:, 0].astype(np.int64),
        workload_class=table[:, 1].astype(np.int64),
        allowed=np.array(allowed, dtype=bool),
        entering=np.zeros((len(rows), len(zone))),
        route_cost=np.array(route),
        width=table[:, 2:3] * SEGMENT_WIDTH,
        value=table[:, 3:4] * SEGMENT_CHANCE,
        weight=table[:, 3],
    )


def _with_promises(rng: np.random.Generator, problem: PlacementProblem) -> PlacementProblem:
    """Replica and throughput reservations, protected models and burst covers for a tenth of the models each."""
    places, jobs, sites = problem.placements, problem.commodities, problem.sites
    count = max(1, len(problem.models) // 10)
    top = 100.0 * float(jobs.weight.max()) * float(places.rate.max())
    replicas: list[ReplicaPromise] = []
    for m in rng.choice(len(problem.models), size=count, replace=False).tolist():
        here = np.flatnonzero((places.model == m) & (sites.zone[places.site] == int(rng.integers(0, 3))))
        if len(here):
            replicas.append(ReplicaPromise(f"replicas of m{m}", here, int(rng.integers(1, 3)), top))
    served = np.flatnonzero(jobs.allowed.any(axis=1))
    chosen = rng.choice(served, size=min(count, len(served)), replace=False).tolist()
    anywhere = np.ones(len(sites.names), dtype=bool)
    worth = float(jobs.weight.max())
    flows = [
        FlowPromise(f"throughput {j}", np.array([j]), anywhere, 0.4 * float(jobs.width[j].sum()), 20.0 * worth)
        for j in chosen
    ]
    demand = np.bincount(jobs.model, jobs.width.sum(axis=1), len(problem.models))
    largest = np.argsort(-demand)[:count].tolist()
    covers = [SiteLossCover(f"m{m}", m, 0.1 * float(demand[m]), 30.0 * float(jobs.weight.max())) for m in largest]
    bursts = [
        BurstCover(m, z, 0.05 * float(demand[m]), 0.1 * float(jobs.weight.mean()))
        for m in largest
        for z in range(int(sites.zone.max()) + 1)
    ]
    return PlacementProblem(
        sites,
        problem.pools,
        places,
        jobs,
        problem.models,
        problem.classes,
        tuple(replicas),
        tuple(flows),
        tuple(covers),
        tuple(bursts),
    )
