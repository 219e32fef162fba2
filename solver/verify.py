"""Independent checker of plans: restates every hard rule from the fleet and the plan document alone.

It shares no code with the solver: no matrix, no problem, no library. Only a plan with an empty list is published.
Rates and demand are the planner's business: the load rules need a ``PlannedLoad`` and are skipped without one.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping

from data.fleet.types import Fleet, Placed
from data.plan import PlanDocument, TrafficShare
from solver.verify_order import order_violations
from solver.verify_promises import reservation_violations
from solver.verify_resources import host_memory_violations, ingress_violations, load_violations, power_violations
from solver.verify_splits import split_violations
from solver.violation import TOLERANCE, CatalogLookup, CommodityKey, PlannedLoad, Violation


def verify_plan(
    plan: PlanDocument,
    fleet: Fleet,
    catalog: CatalogLookup | None = None,
    *,
    running: Iterable[Placed] | None = None,
    load: PlannedLoad | None = None,
) -> list[Violation]:
    """Every hard rule that the plan breaks.

    Args:
        plan: The plan.
        fleet: The fleet that it is for.
        catalog: For power and host memory; without it these two are not checked.
        running: What stands now; default: the fleet's placement.
        load: Demand, rates and loads; without it load ceilings and ingress are not checked.

    Returns:
        Violations in a fixed order of rules; empty for a sound plan.
    """
    found = _document(plan, fleet)
    if found:
        # Names or numbers are wrong: the other rules would only repeat it.
        return found
    before = _by_place(fleet.placement if running is None else running)
    found += _gpus(plan, fleet, before)
    found += _permissions(plan, fleet)
    found += _share_sums(plan)
    found += _served_where_placed(plan)
    found += _start_budget(plan, fleet, before)
    found += _moves(plan, before)
    found += order_violations(plan, fleet, before)
    found += split_violations(plan, fleet)
    found += reservation_violations(plan, fleet, load)
    if catalog is not None:
        found += power_violations(plan, fleet, catalog)
        found += host_memory_violations(plan, fleet, catalog)
    if load is not None:
        found += load_violations(plan, fleet, load)
        found += ingress_violations(plan, fleet, load)
    return found


def _by_place(placed: Iterable[Placed]) -> dict[tuple[str, str], int]:
    return {(p.site, p.config): p.replicas for p in placed}


def _document(plan: PlanDocument, fleet: Fleet) -> list[Violation]:
    """Names exist, repeated facts agree with the fleet, numbers are finite and not negative."""
    found: list[Violation] = []
    sites = {site.name: site for site in fleet.sites}
    configs = {config.name: config for config in fleet.configs}
    seen: set[tuple[str, str]] = set()
    for row in plan.replicas:
        where = f"{row.site}/{row.config}"
        if row.site not in sites or row.config not in configs:
            found.append(Violation("names", where, "the fleet has no such site or configuration"))
            continue
        config = configs[row.config]
        stated = (row.model, row.gpu_type, row.gpus_per_replica)
        actual = (config.model, config.gpu_type, config.tensor_parallel)
        if stated != actual:
            found.append(Violation("names", where, f"states {stated}, the fleet says {actual}"))
        if (row.site, row.config) in seen:
            found.append(Violation("names", where, "listed twice"))
        seen.add((row.site, row.config))
        if row.replicas < 0 or row.prewarmed < 0:
            found.append(Violation("numbers", where, f"{row.replicas} replicas, {row.prewarmed} prewarmed"))
    names = (
        {m.key for m in fleet.models},
        {c.name for c in fleet.classes},
        {t.name for t in fleet.tenants},
        set(sites),
        set(sites),
    )
    for share in plan.shares:
        stated_names = (share.model, share.workload_class, share.tenant, share.origin, share.site)
        if any(name not in known for name, known in zip(stated_names, names, strict=True)):
            found.append(Violation("names", _flow(share), "the fleet lacks one of these names"))
        if not 0 <= share.share <= 1 + TOLERANCE:
            found.append(Violation("numbers", _flow(share), f"share {share.share}"))
    for name, value in (("objective", plan.objective), ("bound", plan.bound)):
        if not math.isfinite(value):
            found.append(Violation("numbers", name, f"{value} is not finite"))
    if plan.bound < plan.objective - TOLERANCE * (1 + abs(plan.objective)):
        found.append(Violation("numbers", "bound", f"{plan.bound:g} is below the objective {plan.objective:g}"))
    return found


def _flow(share: TrafficShare) -> str:
    return f"{share.tenant}/{share.model}/{share.workload_class} from {share.origin} to {share.site}"


def _gpus(plan: PlanDocument, fleet: Fleet, before: Mapping[tuple[str, str], int]) -> list[Violation]:
    """Σ replicas × GPUs per replica + reserved GPUs <= GPUs of each pool; no pool, no change."""
    free = {(pool.site, pool.gpu_type): pool.count - pool.reserved_gpus for pool in fleet.pools}
    used: dict[tuple[str, str], int] = defaultdict(int)
    found: list[Violation] = []
    for row in plan.replicas:
        pool = (row.site, row.gpu_type)
        if pool in free:
            used[pool] += row.replicas * row.gpus_per_replica
        elif row.replicas != before.get((row.site, row.config), 0):
            detail = f"the fleet states no {row.gpu_type} GPUs there, so nothing may change"
            found.append(Violation("gpus", f"{row.site}/{row.config}", detail))
    for pool, count in used.items():
        if count > free[pool]:
            detail = f"{count} GPUs planned, {free[pool]} may be used"
            found.append(Violation("gpus", f"{pool[0]}/{pool[1]}", detail))
    return found


def _permissions(plan: PlanDocument, fleet: Fleet) -> list[Violation]:
    """Every share passes permission and residency and goes to a site with GPUs."""
    found: list[Violation] = []
    for share in plan.shares:
        tenant, site = fleet.tenant(share.tenant), fleet.site(share.site)
        if site.role != "compute":
            found.append(Violation("permission", _flow(share), "an entry site serves nothing"))
        elif not fleet.may_use(tenant, site, share.model):
            residency = bool(tenant.residency_zones) and site.zone not in tenant.residency_zones
            rule = "residency" if residency else "permission"
            found.append(Violation(rule, _flow(share), "the tenant may not use this model there"))
        if fleet.link(share.origin, share.site) is None:
            found.append(Violation("reach", _flow(share), "no link joins the two sites"))
    return found


def _share_sums(plan: PlanDocument) -> list[Violation]:
    total: dict[CommodityKey, float] = defaultdict(float)
    for share in plan.shares:
        total[share.model, share.workload_class, share.tenant, share.origin] += share.share
    return [
        Violation("share_sum", "/".join(key), f"shares add up to {value:.6f}")
        for key, value in total.items()
        if value > 1 + TOLERANCE
    ]


def _served_where_placed(plan: PlanDocument) -> list[Violation]:
    """Traffic goes only to sites where the model has a replica."""
    stand = {(row.site, row.model) for row in plan.replicas if row.replicas > 0}
    return [
        Violation("no_replica", _flow(share), "no replica of the model stands there")
        for share in plan.shares
        if share.share > TOLERANCE and (share.site, share.model) not in stand
    ]


def _changes(plan: PlanDocument, before: Mapping[tuple[str, str], int]) -> dict[tuple[str, str], int]:
    after = {(row.site, row.config): row.replicas for row in plan.replicas}
    keys = sorted(set(after) | set(before))
    return {key: after.get(key, 0) - before.get(key, 0) for key in keys if after.get(key, 0) != before.get(key, 0)}


def _start_budget(plan: PlanDocument, fleet: Fleet, before: Mapping[tuple[str, str], int]) -> list[Violation]:
    started: dict[str, int] = defaultdict(int)
    for (site, config), change in _changes(plan, before).items():
        started[site] += max(change, 0) * fleet.config(config).tensor_parallel
    found: list[Violation] = []
    for place in fleet.sites:
        limit = place.start_budget_gpus
        if limit is not None and started[place.name] > limit:
            detail = f"replicas on {started[place.name]} GPUs start, the budget is {limit}"
            found.append(Violation("start_budget", place.name, detail))
    return found


def _moves(plan: PlanDocument, before: Mapping[tuple[str, str], int]) -> list[Violation]:
    """The listed moves are exactly the difference to what stands."""
    stated: dict[tuple[str, str], int] = defaultdict(int)
    for move in plan.moves:
        stated[move.site, move.config] += move.change
    actual = _changes(plan, before)
    return [
        Violation(
            "moves",
            f"{site}/{config}",
            f"states {stated.get((site, config), 0):+d}, is {actual.get((site, config), 0):+d}",
        )
        for site, config in sorted(set(stated) | set(actual))
        if stated.get((site, config), 0) != actual.get((site, config), 0)
    ]
