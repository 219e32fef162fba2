"""A fleet and a plan document for a random placement problem and its solution, for the checker to judge."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from data.fleet.types import Fleet, GpuPool, Link, Model, ReplicaConfig, Site, Tenant, WorkloadClass
from data.plan import Move, PlanDocument, PlannedReplicas, PlanStatus, TrafficShare
from data.types import Slo
from solver.instances import GPU_POWER_KW
from solver.problem import PlacementProblem
from solver.solution import PlacementSolution
from solver.violation import PlannedLoad

CEILING = 0.85


@dataclass(frozen=True, slots=True)
class Weighed:
    """What the checker asks of a GPU type or of a way to run a model."""

    power_kw: float = 0.0
    weights_gb: float = 0.0


class RandomCatalog:
    """Power and weights of the random problem; satisfies ``solver.violation.CatalogLookup``."""

    def __init__(self, problem: PlacementProblem) -> None:
        places = problem.placements
        self._weights = {f"m{m}": float(w) for m, w in zip(places.model, places.weights_gb, strict=True)}

    def gpu(self, name: str) -> Any:
        """Power of a GPU type."""
        return Weighed(power_kw=float(GPU_POWER_KW[int(name)]))

    def facts(self, catalog_model: str, gpu_type: str, tensor_parallel: int) -> Any:
        """Weights of a model, the same on every GPU type and degree."""
        del gpu_type, tensor_parallel
        return Weighed(weights_gb=self._weights[catalog_model])


def fleet_of(problem: PlacementProblem) -> Fleet:
    """Every site, pool, model and configuration; an entry site in each zone, and a link from each to each."""
    sites, places = problem.sites, problem.placements
    zones = sorted({int(z) for z in sites.zone})
    doors = tuple(Site(f"door{z}", "entry", f"z{z}") for z in zones)
    compute = tuple(
        Site(
            name,
            "compute",
            f"z{int(sites.zone[s])}",
            float(sites.power_kw[s]),
            None,
            float(sites.host_memory_gb[s]),
        )
        for s, name in enumerate(sites.names)
    )
    names = [site.name for site in (*doors, *compute)]
    configs = {
        places.config[i]: ReplicaConfig(
            places.config[i],
            f"m{int(places.model[i])}@v1",
            problem.pools.gpu_type[int(places.pool[i])],
            int(places.gpus[i]),
            CEILING,
        )
        for i in range(len(places))
    }
    return Fleet(
        name="random",
        sites=(*doors, *compute),
        links=tuple(Link(a, b, 0.02, 10.0) for a, b in combinations(names, 2)),
        pools=tuple(
            GpuPool(sites.names[int(s)], kind, int(count))
            for s, kind, count in zip(problem.pools.site, problem.pools.gpu_type, problem.pools.gpus, strict=True)
        ),
        models=tuple(Model(name, "v1", name, 8192) for name in problem.models),
        configs=tuple(configs.values()),
        classes=tuple(WorkloadClass(name, Slo(1.0, 0.1)) for name in problem.classes),
        tenants=(Tenant("free"), *(Tenant(f"bound{z}", residency_zones=(f"z{z}",)) for z in zones)),
    )


def document_of(problem: PlacementProblem, found: PlacementSolution) -> tuple[PlanDocument, PlannedLoad]:
    """The plan with its certificate of loads."""
    places, names = problem.placements, problem.sites.names
    rows = np.flatnonzero((found.replicas > 0) | (found.prewarmed > 0)).tolist()
    replicas = tuple(
        PlannedReplicas(
            site=names[int(places.site[i])],
            model=f"m{int(places.model[i])}@v1",
            config=places.config[i],
            gpu_type=problem.pools.gpu_type[int(places.pool[i])],
            gpus_per_replica=int(places.gpus[i]),
            replicas=int(found.replicas[i]),
            prewarmed=int(found.prewarmed[i]),
        )
        for i in rows
    )
    moves = tuple(Move(r.site, r.config, r.replicas, 0.0, "first plan") for r in replicas if r.replicas)
    shares, demand = _shares(problem, found)
    rates = {
        (places.config[i], kind): float(places.rate[i, c]) / CEILING
        for i in rows
        for c, kind in enumerate(problem.classes)
    }
    loads = {
        (names[int(places.site[i])], places.config[i], kind): float(found.loads[i, c])
        for i in rows
        for c, kind in enumerate(problem.classes)
        if found.loads[i, c] > 0
    }
    plan = PlanDocument(
        plan_id="random",
        parent_id=None,
        made_at="2026-01-01T00:00:00Z",
        valid_from="2026-01-01T00:00:00Z",
        valid_until="2026-01-01T01:00:00Z",
        fleet="random",
        input_digests={},
        status=PlanStatus.FEASIBLE_LIMIT,
        objective=found.value,
        goodput_tokens_per_s=float(found.flows.sum()),
        bound=found.bound,
        bound_name=found.bound_name,
        replicas=replicas,
        shares=shares,
        moves=moves,
    )
    return plan, PlannedLoad(demand, rates, loads)


def _shares(
    problem: PlacementProblem, found: PlacementSolution
) -> tuple[tuple[TrafficShare, ...], dict[tuple[str, str, str, str], float]]:
    """Traffic shares and the demand they refer to; commodities come in the generator's order: zone, then part."""
    jobs = problem.commodities
    zones = int(problem.sites.zone.max()) + 1
    demand: dict[tuple[str, str, str, str], float] = {}
    shares: list[TrafficShare] = []
    for j in range(len(jobs)):
        zone, bound = (j // 2) % zones, bool(j % 2)
        tenant = f"bound{zone}" if bound else "free"
        key = (f"m{int(jobs.model[j])}@v1", problem.classes[int(jobs.workload_class[j])], tenant, f"door{zone}")
        demand[key] = float(jobs.width[j].sum())
        shares += [
            TrafficShare(*key, problem.sites.names[s], min(float(found.flows[j, s]) / demand[key], 1.0))
            for s in np.flatnonzero(found.flows[j] > 1e-9).tolist()
        ]
    return tuple(shares), demand
