"""Plan rules about promises: each is kept, or the plan says by how much it is missed."""

from __future__ import annotations

from data.fleet.types import Fleet, Reservation, Tenant
from data.plan import PlanDocument
from solver.violation import TOLERANCE, PlannedLoad, Violation


def reservation_violations(plan: PlanDocument, fleet: Fleet, load: PlannedLoad | None) -> list[Violation]:
    """Every promise is kept, or the plan says by how much it is missed."""
    found: list[Violation] = []
    for tenant in fleet.tenants:
        for promise in tenant.reservations:
            where = f"{tenant.name}/{promise.model}"
            if promise.replicas:
                lacking = promise.replicas - _standing(plan, fleet, tenant, promise)
                found += _unreported(plan, tenant, promise, "replicas", lacking, where)
            if promise.tokens_per_s and load is not None:
                missing = promise.tokens_per_s - _room(plan, fleet, tenant, promise, load)
                found += _unreported(plan, tenant, promise, "tokens/s", missing, where)
    return found


def _homes(fleet: Fleet, tenant: Tenant, promise: Reservation) -> set[str]:
    return {
        site.name
        for site in fleet.sites
        if (not promise.sites or site.name in promise.sites) and fleet.may_use(tenant, site, promise.model)
    }


def _standing(plan: PlanDocument, fleet: Fleet, tenant: Tenant, promise: Reservation) -> int:
    homes = _homes(fleet, tenant, promise)
    return sum(row.replicas for row in plan.replicas if row.model == promise.model and row.site in homes)


def _room(plan: PlanDocument, fleet: Fleet, tenant: Tenant, promise: Reservation, load: PlannedLoad) -> float:
    """Most output tokens/s that the replicas at the promise's sites can carry on its class."""
    homes = _homes(fleet, tenant, promise)
    total = 0.0
    for row in plan.replicas:
        if row.model == promise.model and row.site in homes:
            rates = [
                load.rates.get((row.config, kind.name), 0.0)
                for kind in fleet.classes
                if promise.workload_class in (None, kind.name)
            ]
            total += row.replicas * max(rates, default=0.0) * fleet.config(row.config).load_ceiling
    return total


def _unreported(
    plan: PlanDocument, tenant: Tenant, promise: Reservation, unit: str, missing: float, where: str
) -> list[Violation]:
    reported = sum(
        row.missing
        for row in plan.unmet
        if row.what == "reservation"
        and row.unit == unit
        and (row.tenant, row.model) == (tenant.name, promise.model)
        and row.workload_class in ("", promise.workload_class or "")
    )
    if missing > reported + TOLERANCE * (1 + abs(missing)) and missing > 1e-3 * promise.tokens_per_s:
        return [Violation("reservation", where, f"{missing:g} {unit} missing, {reported:g} reported")]
    return []
