"""Which sites may serve what, and which filter excluded each of the others: hard rules before any cost."""

from __future__ import annotations

from collections import Counter

from data.fleet.types import Fleet, Site, Tenant, WorkloadClass
from planner.capacity_table import CapacityTable
from planner.settings import PlannerSettings
from solver.explain import FilterCounts

FILTERS = ("entry", "permission", "residency", "unreachable", "gpu_type", "capacity", "slo")
"""Filters in the order in which they are applied; a site counts under the first that excludes it."""


class SiteFilters:
    """Answers for one fleet and capacity table."""

    def __init__(self, fleet: Fleet, table: CapacityTable, settings: PlannerSettings) -> None:
        self._fleet = fleet
        self._table = table
        self._settings = settings
        self._pools = {(pool.site, pool.gpu_type): pool.count - pool.reserved_gpus for pool in fleet.pools}
        standing = {(p.site, p.config) for p in fleet.placement if p.replicas}
        self._unknown_pools = {
            (site, fleet.config(config).gpu_type)
            for site, config in standing
            if (site, fleet.config(config).gpu_type) not in self._pools
        }

    def right(self, tenant: Tenant, site: Site, model: str) -> str | None:
        """The hard rule that keeps the tenant's use of the model from the site, or ``None``."""
        if site.role != "compute":
            return "entry"
        if (tenant.sites and site.name not in tenant.sites) or (tenant.models and model not in tenant.models):
            return "permission"
        if tenant.residency_zones and site.zone not in tenant.residency_zones:
            return "residency"
        return None

    def stands(self, site: Site, model: str, kind: str | None = None) -> str | None:
        """Why no replica of the model can stand and serve at the site, or ``None``."""
        configs = self._table.of_model(model)
        here = [c for c in configs if self._gpus(site, c.config.gpu_type) is not None]
        if not here:
            return "gpu_type"
        fitting = [c for c in here if (self._gpus(site, c.config.gpu_type) or 0) >= c.config.tensor_parallel]
        if not fitting:
            return "capacity"
        kinds = [kind] if kind else [k.name for k in self._fleet.classes]
        if not any(c.rate(name) > 0 for c in fitting for name in kinds):
            return "slo"
        return None

    def flow(self, tenant: Tenant, model: str, kind: WorkloadClass, origin: str, site: Site) -> str | None:
        """The first filter that keeps this traffic from the site, or ``None`` if it may go there."""
        barred = self.right(tenant, site, model)
        if barred:
            return barred
        link = self._fleet.link(origin, site.name)
        target = kind.slo.ttft_s
        if link is None or (target is not None and link.rtt_s > self._settings.rtt_share * target):
            return "unreachable"
        return self.stands(site, model, kind.name)

    def flow_counts(self, tenant: Tenant, model: str, kind: WorkloadClass, origin: str) -> FilterCounts:
        """How many sites each filter took from this traffic."""
        return _counts([self.flow(tenant, model, kind, origin, site) for site in self._fleet.sites])

    def replica_counts(self, tenant: Tenant, model: str, sites: tuple[str, ...]) -> FilterCounts:
        """How many sites each filter took from a replica promised to the tenant (at those sites, if any)."""
        found: list[str | None] = []
        for site in self._fleet.sites:
            reason = self.right(tenant, site, model)
            if reason is None and sites and site.name not in sites:
                reason = "permission"
            found.append(reason or self.stands(site, model))
        return _counts(found)

    def _gpus(self, site: Site, gpu_type: str) -> int | None:
        """Usable GPUs; ``None`` = no such pool. A pool of unknown size takes no new replica: size 0."""
        pool = (site.name, gpu_type)
        return 0 if pool in self._unknown_pools else self._pools.get(pool)


def _counts(reasons: list[str | None]) -> FilterCounts:
    excluded = Counter(reason for reason in reasons if reason)
    return FilterCounts(len(reasons), reasons.count(None), {name: excluded.get(name, 0) for name in FILTERS})
