"""Promises of a fleet as rows of the placement problem, and those that no placement could ever keep.

Penalties stand an order of magnitude apart: replicas that were promised, then the loss of a site, then promised
throughput; each far above the worth of any traffic that could take their place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from data.fleet.types import Fleet, Reservation, Site, Tenant
from data.types import FloatArray
from planner.placement_jobs import Job, jobs_of_promise, promised_rates
from planner.settings import PlannerSettings
from planner.site_filters import SiteFilters
from solver.problem import (
    BoolArray,
    BurstCover,
    Commodities,
    FlowPromise,
    Placements,
    ReplicaPromise,
    SiteLossCover,
)

FLOW_PENALTY = 10.0
"""Worth of a missed promised token, in units of the dearest token; the others follow at a factor of 10."""
COVER_PENALTY = 100.0
REPLICA_PENALTY = 1000.0


@dataclass(frozen=True, slots=True)
class BrokenPromise:
    """A promise that the structure of the fleet cannot keep: no solver is needed to see it."""

    tenant: str
    model: str
    workload_class: str
    missing: float
    unit: str
    reason: str


@dataclass(frozen=True, slots=True)
class Promises:
    """Promises of the problem, with the tenant and reservation that each one stands for."""

    replicas: tuple[ReplicaPromise, ...]
    replica_of: tuple[tuple[Tenant, Reservation], ...]
    flows: tuple[FlowPromise, ...]
    flow_of: tuple[tuple[Tenant, Reservation], ...]
    covers: tuple[SiteLossCover, ...]
    broken: tuple[BrokenPromise, ...]


def build_promises(
    fleet: Fleet,
    sites: Sequence[Site],
    models: Sequence[str],
    places: Placements,
    jobs: Sequence[Job],
    commodities: Commodities,
    filters: SiteFilters,
    settings: PlannerSettings,
) -> Promises:
    """All promises of the fleet; one without any placement or commodity is broken from the start."""
    dearest = float(commodities.weight.max(initial=1.0))
    broken: list[BrokenPromise] = []
    replica_of = [
        (tenant, promise)
        for tenant in sorted(fleet.tenants, key=lambda t: t.name)
        for promise in tenant.reservations
        if promise.replicas > 0
    ]
    fastest = float(places.rate.max(initial=1.0))
    replicas: list[ReplicaPromise] = []
    kept_replicas: list[tuple[Tenant, Reservation]] = []
    for tenant, promise in replica_of:
        rights = _rights(filters, tenant, promise, sites)
        options = np.flatnonzero((places.model == models.index(promise.model)) & rights[places.site])
        options = options[places.upper[options] > 0]
        if not len(options):
            broken.append(
                _broken(fleet, tenant, promise, float(promise.replicas), "replicas", rights, sites, filters)
            )
            continue
        label = f"{tenant.name}: {promise.replicas} replicas of {promise.model}"
        replicas.append(ReplicaPromise(label, options, promise.replicas, REPLICA_PENALTY * dearest * fastest))
        kept_replicas.append((tenant, promise))
    flows: list[FlowPromise] = []
    kept_flows: list[tuple[Tenant, Reservation]] = []
    for tenant, promise in promised_rates(fleet):
        rights = _rights(filters, tenant, promise, sites)
        mine = np.array(jobs_of_promise(jobs, tenant, promise), dtype=np.int64)
        if not (commodities.allowed[mine] & rights).any():
            broken.append(
                _broken(fleet, tenant, promise, promise.tokens_per_s, "tokens/s", rights, sites, filters)
            )
            continue
        label = f"{tenant.name}: {promise.tokens_per_s:g} tokens/s of {promise.model}"
        flows.append(FlowPromise(label, mine, rights, promise.tokens_per_s, FLOW_PENALTY * dearest))
        kept_flows.append((tenant, promise))
    covers = _covers(models, places, jobs, dearest, settings, broken)
    return Promises(
        tuple(replicas), tuple(kept_replicas), tuple(flows), tuple(kept_flows), tuple(covers), tuple(broken)
    )


def _rights(filters: SiteFilters, tenant: Tenant, promise: Reservation, sites: Sequence[Site]) -> BoolArray:
    """Sites where the promise may be kept: the tenant's rights and the promise's own list."""
    return np.array(
        [
            filters.right(tenant, site, promise.model) is None
            and (not promise.sites or site.name in promise.sites)
            for site in sites
        ],
        dtype=bool,
    )


def _broken(
    fleet: Fleet,
    tenant: Tenant,
    promise: Reservation,
    missing: float,
    unit: str,
    rights: BoolArray,
    sites: Sequence[Site],
    filters: SiteFilters,
) -> BrokenPromise:
    """Why no placement can keep the promise, with the numbers where GPUs are what is lacking."""
    reason = filters.replica_counts(tenant, promise.model, promise.sites).text()
    homes = {site.name for site, ok in zip(sites, rights, strict=True) if ok}
    needs = [
        (config.tensor_parallel - pool.count + pool.reserved_gpus, config, pool)
        for config in fleet.configs
        if config.model == promise.model
        for pool in fleet.pools
        if pool.site in homes and pool.gpu_type == config.gpu_type
    ]
    if needs:
        short, config, pool = min(needs, key=lambda need: (need[0], need[1].name, need[2].site))
        if short > 0:
            free = pool.count - pool.reserved_gpus
            have = (
                f"{config.tensor_parallel} {config.gpu_type} at {pool.site}, {free} available (short by {short})"
            )
            reason = f"one replica needs {have}; {reason}"
    return BrokenPromise(tenant.name, promise.model, promise.workload_class or "", missing, unit, reason)


def _covers(
    models: Sequence[str],
    places: Placements,
    jobs: Sequence[Job],
    dearest: float,
    settings: PlannerSettings,
    broken: list[BrokenPromise],
) -> list[SiteLossCover]:
    """Protected models that have two sites to stand at; the others cannot be protected."""
    covers: list[SiteLossCover] = []
    for name in sorted(set(settings.protected_models)):
        rate = settings.protected_share * sum(job.median for job in jobs if job.model == name)
        if name not in models or rate <= 0:
            continue
        model = models.index(name)
        hosts = np.unique(places.site[(places.model == model) & (places.upper > 0)])
        if len(hosts) < 2:
            reason = f"only {len(hosts)} site can hold the model: nothing is left when it is lost"
            broken.append(BrokenPromise("", name, "", rate, "tokens/s", reason))
            continue
        covers.append(SiteLossCover(name, model, rate, COVER_PENALTY * dearest))
    return covers


def prewarm_limits(
    fleet: Fleet, places: Placements, classes: Sequence[str], jobs: Commodities, settings: PlannerSettings
) -> Placements:
    """Prewarm positions: the smallest configuration at each (site, model) that urgent demand may reach."""
    limits = np.zeros(len(places), dtype=np.int64)
    urgent = _urgent(fleet, classes)
    wanted = {
        (int(s), int(jobs.model[j]))
        for j in np.flatnonzero(urgent[jobs.workload_class] & (jobs.width[:, :-1].sum(axis=1) > 0))
        for s in np.flatnonzero(jobs.allowed[j])
    }
    for site, model in sorted(wanted):
        here = np.flatnonzero((places.site == site) & (places.model == model))
        able = here[places.rate[here][:, urgent].max(axis=1, initial=0.0) > 0]
        if len(able):
            limits[able[int(np.argmin(places.gpus[able]))]] = settings.prewarm_limit
    return replace(places, prewarm_limit=limits)


def _urgent(fleet: Fleet, classes: Sequence[str]) -> BoolArray:
    """Classes with a target for the first token: those that cannot wait for a cold start."""
    return np.array([fleet.workload_class(name).slo.ttft_s is not None for name in classes], dtype=bool)


def burst_covers(
    fleet: Fleet,
    sites: Sequence[Site],
    jobs: Commodities,
    classes: Sequence[str],
    settings: PlannerSettings,
) -> tuple[BurstCover, ...]:
    """Bursts worth covering in each zone: a share of the urgent demand that may be served there."""
    if settings.prewarm_limit == 0:
        return ()
    zones = sorted({site.zone for site in sites})
    urgent = _urgent(fleet, classes)[jobs.workload_class]
    forecast: FloatArray = jobs.width[:, :-1].sum(axis=1)
    covers: list[BurstCover] = []
    for z, zone in enumerate(zones):
        inside = np.array([site.zone == zone for site in sites])
        for model in range(int(jobs.model.max(initial=-1)) + 1):
            mine = urgent & (jobs.model == model) & jobs.allowed[:, inside].any(axis=1)
            amount = float(forecast[mine].sum())
            if amount > 0:
                worth = float((forecast * jobs.weight)[mine].sum()) / amount
                covers.append(BurstCover(model, z, settings.burst_share * amount, settings.burst_value * worth))
    return tuple(covers)
