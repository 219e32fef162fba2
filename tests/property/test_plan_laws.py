"""Laws of every plan, on random fleets: the checker accepts it, residency holds, the bound is a bound."""

from __future__ import annotations

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
from planner.demand import DemandRow, DemandTable, demand_table, spread_quantiles
from planner.service import plan_once
from planner.settings import PlannerSettings
from solver.backends import solve_here
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


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**31 - 2))
def test_every_plan_of_a_random_fleet_is_safe(seed: int) -> None:
    fleet = _random_fleet(seed)
    demand = _random_demand(fleet, seed)
    options = PlannerSettings(
        placement=PlacementSettings(time_limit_s=5.0),
        protected_models=("chat@v1",) if seed % 3 == 0 else (),
        frozen_sites=("s1",) if seed % 5 == 0 else (),
    )
    plan = plan_once(fleet, load_catalog(), demand, None, options, _Clock(), solve_here)
    _check(plan, fleet)
    if check_fleet(fleet, load_catalog()):
        # A fleet file with these faults would be refused; the planner must cope all the same.
        return
    again = plan_once(fleet, load_catalog(), demand, plan, options, _Clock(), solve_here)
    if plan.status is PlanStatus.OPTIMAL and not any(site.start_budget_gpus is not None for site in fleet.sites):
        assert again.moves == ()
