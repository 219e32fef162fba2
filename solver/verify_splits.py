"""Plan rules about capacity splits: they share out replicas that stand, among tenants that may use them."""

from __future__ import annotations

from collections import defaultdict

from data.fleet.types import Fleet
from data.plan import PlanDocument, PoolSplit
from solver.violation import Violation

ROUNDING = 1e-3
"""Rates of split rows are rounded to this many tokens/s, one rounding a tenant and configuration."""


def split_violations(plan: PlanDocument, fleet: Fleet) -> list[Violation]:
    """Names exist, no class gets more replicas than stand, quotas are permitted and fit into the class's part.

    A replica that two classes share is counted in both rows, so rows are not added up.
    """
    stand: dict[tuple[str, str, str], int] = defaultdict(int)
    for row in plan.replicas:
        stand[row.site, row.model, row.gpu_type] += row.replicas
    found: list[Violation] = []
    for split in plan.splits:
        found += _split(split, fleet, stand[split.site, split.model, split.gpu_type])
    return found


def _split(split: PoolSplit, fleet: Fleet, standing: int) -> list[Violation]:
    where = f"{split.site}/{split.model}/{split.gpu_type}/{split.workload_class}"
    if split.workload_class not in {kind.name for kind in fleet.classes}:
        return [Violation("names", where, "the fleet has no such class")]
    if split.replicas > standing:
        return [Violation("split", where, f"{split.replicas} replicas are shared out, {standing} stand")]
    found: list[Violation] = []
    tenants, site = {tenant.name: tenant for tenant in fleet.tenants}, fleet.site(split.site)
    for name in split.tenant_quota_tokens_per_s:
        tenant = tenants.get(name)
        if tenant is None:
            found.append(Violation("names", where, f"the fleet has no tenant {name}"))
        elif not fleet.may_use(tenant, site, split.model):
            residency = bool(tenant.residency_zones) and site.zone not in tenant.residency_zones
            rule = "residency" if residency else "permission"
            found.append(Violation(rule, where, f"{name} has a quota and may not use this model there"))
    quotas = sum(split.tenant_quota_tokens_per_s.values())
    slack = ROUNDING * (2 + len(split.tenant_quota_tokens_per_s)) + 1e-6 * split.tokens_per_s
    if quotas > split.tokens_per_s + slack:
        found.append(Violation("split", where, f"quotas of {quotas:g} tokens/s, {split.tokens_per_s:g} carried"))
    return found
