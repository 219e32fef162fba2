"""Plan rules that need rates, power or memory: load ceilings, ingress, power, host memory."""

from __future__ import annotations

import math
from collections import defaultdict

from data.fleet.types import Fleet
from data.plan import PlanDocument
from solver.violation import TOLERANCE, CatalogLookup, PlannedLoad, Violation, over_limit


def power_violations(plan: PlanDocument, fleet: Fleet, catalog: CatalogLookup) -> list[Violation]:
    """Power of the GPUs in use at each site."""
    used: dict[str, float] = defaultdict(float)
    for row in plan.replicas:
        used[row.site] += row.replicas * row.gpus_per_replica * catalog.gpu(row.gpu_type).power_kw
    return over_limit(used, {site.name: site.power_kw for site in fleet.sites}, "power", "kW")


def host_memory_violations(plan: PlanDocument, fleet: Fleet, catalog: CatalogLookup) -> list[Violation]:
    """Weights of prewarmed copies in each site's host memory."""
    used: dict[str, float] = defaultdict(float)
    for row in plan.replicas:
        if row.prewarmed:
            facts = catalog.facts(fleet.model(row.model).catalog, row.gpu_type, row.gpus_per_replica)
            used[row.site] += row.prewarmed * facts.weights_gb
    return over_limit(used, {site.name: site.host_memory_gb for site in fleet.sites}, "host_memory", "GB")


def load_violations(plan: PlanDocument, fleet: Fleet, load: PlannedLoad) -> list[Violation]:
    """Planned loads cover the shares, and no placement carries more than its ceiling."""
    found: list[Violation] = []
    sent: dict[tuple[str, str, str], float] = defaultdict(float)
    for share in plan.shares:
        key = (share.model, share.workload_class, share.tenant, share.origin)
        sent[share.site, share.model, share.workload_class] += share.share * load.demand.get(key, 0.0)
    carried: dict[tuple[str, str, str], float] = defaultdict(float)
    worth: dict[tuple[str, str], float] = defaultdict(float)
    for (site, config, kind), rate in load.loads.items():
        carried[site, fleet.config(config).model, kind] += rate
        if rate > 0:
            able = load.rates.get((config, kind), 0.0) * fleet.config(config).load_ceiling
            worth[site, config] += rate / able if able > 0 else math.inf
    for place, rate in sent.items():
        if rate > carried[place] + TOLERANCE * (1 + rate):
            found.append(
                Violation("load", "/".join(place), f"{rate:g} tokens/s sent, {carried[place]:g} planned for")
            )
    stand = {(row.site, row.config): row.replicas for row in plan.replicas}
    for (site, config), need in worth.items():
        have = stand.get((site, config), 0)
        if need > have + 1e-5 * (1 + have):
            detail = f"load needs {need:.4f} replicas within the ceiling, {have} stand"
            found.append(Violation("load", f"{site}/{config}", detail))
    return found


def ingress_violations(plan: PlanDocument, fleet: Fleet, load: PlannedLoad) -> list[Violation]:
    """Traffic that enters each site from elsewhere."""
    entering: dict[str, float] = defaultdict(float)
    for share in plan.shares:
        if share.origin != share.site:
            key = (share.model, share.workload_class, share.tenant, share.origin)
            entering[share.site] += share.share * load.demand.get(key, 0.0)
    limits = {site.name: site.ingress_tokens_per_s for site in fleet.sites}
    return over_limit(entering, limits, "ingress", "tokens/s")
