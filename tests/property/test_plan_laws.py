"""Laws of every plan, on random fleets: residency holds, the bound is one, the checker finds what is broken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from data.catalog.load import load_catalog
from data.fleet.check import check_fleet
from data.fleet.types import (
    Fleet,
    GpuPool,
    Link,
    Model,
    Placed,
    ReplicaConfig,
    Reservation,
    Site,
    Tenant,
    WorkloadClass,
)
from data.plan import PlanDocument, PlanStatus
from data.plan_io import plan_from_json, plan_to_json
from data.types import Slo
from planner.capacity_table import capacity_table
from planner.demand import DemandRow, DemandTable, demand_table, spread_quantiles
from planner.placement_input import placement_input
from planner.service import plan_once
from planner.settings import PlannerSettings
from solver.backends import solve_here
from solver.move_order_cp_sat import MoveOrderLimits
from solver.settings import PlacementSettings
from solver.verify import verify_plan

ZONES = ("eu", "us", "ap")
GPUS = ("H100", "A100", "L40S")


class _Clock:
    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC)

    def seconds(self) -> float:
        return 0.0


def _random_fleet(seed: int) -> Fleet:
    """One entry, two to four compute sites, two models, random limits, rights, promises and running replicas."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(2, 5))

    def maybe(low: float, high: float) -> float | None:
        return float(rng.uniform(low, high)) if rng.random() < 0.4 else None

    compute = tuple(
        Site(
            f"s{i}",
            "compute",
            ZONES[int(rng.integers(0, 3))],
            power_kw=maybe(4, 30),
            ingress_tokens_per_s=maybe(500, 20_000),
            host_memory_gb=maybe(10, 400),
            start_budget_gpus=int(rng.integers(0, 12)) if rng.random() < 0.5 else None,
        )
        for i in range(count)
    )
    sites = (Site("door", "entry", "eu"), *compute)
    links = tuple(
        Link("door", site.name, float(rng.uniform(0.001, 0.2)), 10.0) for site in compute if rng.random() < 0.9
    ) or (Link("door", "s0", 0.01, 10.0),)
    pools = tuple(
        GpuPool(site.name, gpu, int(rng.integers(1, 17)), reserved_gpus=int(rng.integers(0, 2)))
        for site in compute
        for gpu in rng.choice(GPUS, size=int(rng.integers(1, 3)), replace=False).tolist()
    )
    models = (Model("chat", "v1", "llama-3.1-8b", 16_384), Model("big", "v1", "llama-3.3-70b", 8_192))
    configs = (
        *(ReplicaConfig(f"chat-{gpu}", "chat@v1", gpu, 1) for gpu in GPUS),
        ReplicaConfig("big-H100", "big@v1", "H100", 4),
        ReplicaConfig("big-A100", "big@v1", "A100", 4),
    )
    classes = (
        WorkloadClass("fast", Slo(ttft_s=2.0, tpot_s=0.08), 1.0, 1000, 200),
        WorkloadClass("slow", Slo(deadline_s=300.0), 0.4, 2000, 400),
    )
    placement: list[Placed] = []
    for pool in pools:
        free = pool.count - pool.reserved_gpus
        if rng.random() < 0.6 and free > 0:
            placement.append(Placed(pool.site, f"chat-{pool.gpu_type}", int(rng.integers(1, free + 1))))
    return Fleet("random", sites, links, pools, models, configs, classes, _tenants(rng, compute), tuple(placement))


def _tenants(rng: np.random.Generator, compute: tuple[Site, ...]) -> tuple[Tenant, ...]:
    tenants: list[Tenant] = []
    for k in range(int(rng.integers(1, 5))):
        zones = tuple({site.zone for site in compute if rng.random() < 0.5}) if rng.random() < 0.5 else ()
        sites = tuple(site.name for site in compute if rng.random() < 0.7) if rng.random() < 0.3 else ()
        promises: tuple[Reservation, ...] = ()
        if rng.random() < 0.5:
            model = ("chat@v1", "big@v1")[int(rng.integers(0, 2))]
            promises = (
                Reservation(model, replicas=int(rng.integers(1, 4))),
                Reservation(model, tokens_per_s=float(rng.uniform(50, 3000)), workload_class="fast"),
            )
        tier = ("guaranteed", "standard", "best_effort")[int(rng.integers(0, 3))]
        budget = float(rng.uniform(200, 3000)) if rng.random() < 0.3 else None
        tenants.append(
            Tenant(f"t{k}", tier, float(rng.uniform(0.5, 3)), tuple(sorted(zones)), (), sites, promises, budget)  # type: ignore[arg-type]
        )
    return tuple(tenants)


def _random_demand(fleet: Fleet, seed: int) -> DemandTable:
    rng = np.random.default_rng(seed + 1)
    rows = [
        DemandRow(model.key, kind.name, tenant.name, "door", spread_quantiles(float(rng.uniform(0, 4000)), 0.3))
        for model in fleet.models
        for kind in fleet.classes
        for tenant in fleet.tenants
        if rng.random() < 0.7
    ]
    missing = [("chat@v1", "fast", "t0", "door")] if rng.random() < 0.2 else []
    return demand_table(rows, missing)


def _check(plan: PlanDocument, fleet: Fleet) -> None:
    assert verify_plan(plan, fleet, load_catalog()) == []
    for share in plan.shares:
        assert fleet.may_use(fleet.tenant(share.tenant), fleet.site(share.site), share.model)
    assert plan.bound >= plan.objective - 1e-6 * (1 + abs(plan.objective))
    assert plan_from_json(plan_to_json(plan)) == plan
    for row in plan.unmet:
        assert row.missing >= 0
        assert row.reason


def _damages(plan: PlanDocument, fleet: Fleet) -> Iterator[tuple[str, PlanDocument, Fleet]]:
    """Every kind of violation that this plan can be given: the rule it breaks, the plan, the fleet."""
    yield "numbers", replace(plan, bound=plan.objective - 1 - abs(plan.objective)), fleet
    if plan.replicas:
        row, rest = plan.replicas[0], plan.replicas[1:]
        for rule, broken in (
            ("names", replace(row, config="nope")),
            ("names", replace(row, gpus_per_replica=row.gpus_per_replica + 1)),
            ("numbers", replace(row, replicas=-1)),
            ("gpus", replace(row, replicas=row.replicas + 99)),
            ("moves", replace(row, replicas=row.replicas + 1)),
        ):
            yield rule, replace(plan, replicas=(broken, *rest)), fleet
        yield "names", replace(plan, replicas=(row, *plan.replicas)), fleet
        yield from _tight_sites(plan, fleet)
    for move in plan.moves[:1]:
        yield "moves", replace(plan, moves=plan.moves[1:]), fleet
        yield "moves", replace(plan, moves=(*plan.moves, replace(move, change=7, begin_s=()))), fleet
    for split in plan.splits[:1]:
        yield "split", replace(plan, splits=(replace(split, replicas=999), *plan.splits[1:])), fleet
        owner = fleet.tenants[0].name
        greedy = replace(split, tenant_quota_tokens_per_s={owner: split.tokens_per_s * 2 + 1})
        yield "split", replace(plan, splits=(greedy, *plan.splits[1:])), fleet
    tenant = fleet.tenants[0]
    promised = replace(tenant, reservations=(Reservation("chat@v1", replicas=10_000),))
    yield "reservation", plan, replace(fleet, tenants=(promised, *fleet.tenants[1:]))
    yield from _damaged_shares(plan, fleet)


def _tight_sites(plan: PlanDocument, fleet: Fleet) -> Iterator[tuple[str, PlanDocument, Fleet]]:
    """Sites whose limits are a little less than what the plan uses."""
    started: Counter[str] = Counter()
    for move in plan.moves:
        started[move.site] += max(move.change, 0) * fleet.config(move.config).tensor_parallel
    for row in plan.replicas:
        site = fleet.site(row.site)
        limits = {
            "power": (row.replicas, {"power_kw": 0.01}),
            "host_memory": (row.prewarmed, {"host_memory_gb": 0.01}),
            "start_budget": (started[row.site], {"start_budget_gpus": max(started[row.site] - 1, 0)}),
        }
        for rule, (used, change) in limits.items():
            if used:
                tight = replace(site, **change)  # type: ignore[arg-type]
                yield rule, plan, replace(fleet, sites=tuple(tight if s is site else s for s in fleet.sites))


def _damaged_shares(plan: PlanDocument, fleet: Fleet) -> Iterator[tuple[str, PlanDocument, Fleet]]:
    for share in plan.shares[:1]:
        rest = plan.shares[1:]
        for rule, broken in (
            ("names", replace(share, tenant="nobody")),
            ("numbers", replace(share, share=1.5)),
            ("permission", replace(share, site="door")),
        ):
            yield rule, replace(plan, shares=(broken, *rest)), fleet
        yield "share_sum", replace(plan, shares=(*plan.shares, replace(share, share=1.0))), fleet
        yield "reach", plan, replace(fleet, links=())
        gone = tuple(
            replace(row, replicas=0) if (row.site, row.model) == (share.site, share.model) else row
            for row in plan.replicas
        )
        yield "no_replica", replace(plan, replicas=gone), fleet
    for share in plan.shares:
        tenant = fleet.tenant(share.tenant)
        for site in fleet.sites:
            if site.role == "compute" and not fleet.may_use(tenant, site, share.model):
                foreign = bool(tenant.residency_zones) and site.zone not in tenant.residency_zones
                rule = "residency" if foreign else "permission"
                yield rule, replace(plan, shares=(*plan.shares, replace(share, site=site.name, share=0.0))), fleet


def _check_filters(fleet: Fleet, demand: DemandTable, options: PlannerSettings) -> None:
    """A flow that residency, permission or reach forbids is no column; a site passed over has a reason."""
    catalog = load_catalog()
    given = placement_input(
        fleet, capacity_table(fleet, catalog, demand, options), demand, fleet.placement, options
    )
    for j, job in enumerate(given.jobs):
        kind = fleet.workload_class(job.workload_class)
        for s, site in enumerate(given.sites):
            allowed = bool(given.problem.commodities.allowed[j, s])
            for name in job.tenants:
                tenant = fleet.tenant(name)
                legal = site.role == "compute" and fleet.may_use(tenant, site, job.model)
                assert legal or not allowed
                assert fleet.link(job.origin, site.name) is not None or not allowed
                reason = given.filters.flow(tenant, job.model, kind, job.origin, site)
                assert (reason is None) == allowed


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**31 - 2))
def test_every_plan_of_a_random_fleet_is_safe(seed: int) -> None:
    fleet = _random_fleet(seed)
    demand = _random_demand(fleet, seed)
    options = PlannerSettings(
        placement=PlacementSettings(time_limit_s=5.0),
        order=MoveOrderLimits(time_limit_s=0.1),
        protected_models=("chat@v1",) if seed % 3 == 0 else (),
        frozen_sites=("s1",) if seed % 5 == 0 else (),
        prewarm_limit=seed % 2,
    )
    plan = plan_once(fleet, load_catalog(), demand, None, options, _Clock(), solve_here)
    _check(plan, fleet)
    for rule, broken, there in _damages(plan, fleet):
        found = {
            violation.rule for violation in verify_plan(broken, there, load_catalog(), running=fleet.placement)
        }
        assert rule in found
    _check_filters(fleet, demand, options)
    if check_fleet(fleet, load_catalog()):
        # A fleet file with these faults would be refused; the planner must cope all the same.
        return
    again = plan_once(fleet, load_catalog(), demand, plan, options, _Clock(), solve_here)
    limited = any(site.start_budget_gpus is not None for site in fleet.sites)
    # A copy that the first plan prewarms makes a start cheaper in the second: there, moves are right.
    if plan.status is PlanStatus.OPTIMAL and not limited and not any(row.prewarmed for row in plan.replicas):
        assert again.moves == ()
