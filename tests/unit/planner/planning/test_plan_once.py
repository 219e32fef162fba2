"""One planning step, end to end: rules, promises, explanations, holds, determinism."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from data.catalog.load import Catalog
from data.errors import InfeasibleError
from data.fleet.load import parse_fleet
from data.fleet.types import Fleet, GpuPool, Placed
from data.plan import PlanDocument, PlanStatus
from data.plan_io import plan_from_json, plan_to_json
from planner.demand import DemandRow, DemandTable, demand_table, spread_quantiles
from planner.outlets.explain_plan import explain_plan
from planner.service import Clock, plan_once, sealed
from planner.settings import PlannerSettings
from solver.backends import solve_here
from solver.move_order_cp_sat import MoveOrderLimits
from solver.settings import PlacementSettings
from solver.verify import verify_plan

SETTINGS = PlannerSettings(
    placement=PlacementSettings(time_limit_s=10.0), order=MoveOrderLimits(time_limit_s=0.2, deterministic=True)
)
Planner = Callable[..., PlanDocument]


@pytest.fixture
def run(fleet: Fleet, catalog: Catalog, demand: DemandTable, clock: Clock) -> Planner:
    """Plans the small fleet; any input may be replaced."""

    def planned(
        on: Fleet = fleet,
        need: DemandTable = demand,
        running: PlanDocument | None = None,
        settings: PlannerSettings = SETTINGS,
    ) -> PlanDocument:
        return plan_once(on, catalog, need, running, settings, clock, solve_here)

    return planned


def _replicas(plan: PlanDocument) -> dict[tuple[str, str], int]:
    return {(row.site, row.config): row.replicas for row in plan.replicas if row.replicas}


def test_the_plan_verifies_and_survives_the_file(run: Planner, fleet: Fleet, catalog: Catalog) -> None:
    plan = run()
    assert plan.status is PlanStatus.OPTIMAL
    assert verify_plan(plan, fleet, catalog) == []
    assert plan_from_json(plan_to_json(plan)) == plan
    assert plan.bound >= plan.objective > 0
    assert 0 <= plan.gap <= 0.0101


def test_residency_and_permission_hold_for_every_share(run: Planner, fleet: Fleet) -> None:
    for share in run().shares:
        assert fleet.may_use(fleet.tenant(share.tenant), fleet.site(share.site), share.model)
        assert fleet.site(share.site).role == "compute"


def test_total_gpus_are_replicas_times_gpus_per_replica(run: Planner, fleet: Fleet) -> None:
    """F101: one unit a quantity; the sum stays within the inventory less the reserved GPUs."""
    plan = run()
    for pool in fleet.pools:
        used = sum(
            row.replicas * row.gpus_per_replica
            for row in plan.replicas
            if (row.site, row.gpu_type) == (pool.site, pool.gpu_type)
        )
        assert used <= pool.count - pool.reserved_gpus
    big = [row for row in plan.replicas if row.config == "big-h100"]
    assert all(row.gpus_per_replica == 4 for row in big)


def test_moves_are_the_difference_to_what_runs(run: Planner, fleet: Fleet) -> None:
    plan = run()
    before = {(p.site, p.config): p.replicas for p in fleet.placement}
    for move in plan.moves:
        key = (move.site, move.config)
        assert move.change == _replicas(plan).get(key, 0) - before.get(key, 0)
        assert move.reason
        assert (move.cost > 0) == (move.change > 0)


def test_unchanged_input_gives_zero_moves_and_the_same_replicas(run: Planner) -> None:
    first = run()
    again = run(running=first)
    assert again.moves == ()
    assert _replicas(again) == _replicas(first)
    assert again.parent_id == first.plan_id


def test_the_same_input_gives_the_same_bytes(run: Planner) -> None:
    """F088: fixed seed and clock."""
    assert plan_to_json(run()) == plan_to_json(run())


@pytest.mark.parametrize("turn", range(1, 6))
def test_the_order_of_a_fleet_file_changes_nothing(
    run: Planner, fleet: Fleet, demand: DemandTable, turn: int
) -> None:
    """F088: rotated lists give the same plan id."""

    def turned(items: tuple[Any, ...]) -> tuple[Any, ...]:
        cut = turn % len(items)
        return items[cut:] + items[:cut]

    other = replace(
        fleet,
        sites=turned(fleet.sites),
        pools=turned(fleet.pools),
        models=turned(fleet.models),
        configs=turned(fleet.configs),
        classes=turned(fleet.classes),
        tenants=turned(fleet.tenants),
        placement=turned(fleet.placement),
        links=turned(fleet.links),
    )
    assert run(on=other).plan_id == run().plan_id


def test_zero_traffic_scales_down_and_missing_data_holds(run: Planner, fleet: Fleet) -> None:
    """F098: no traffic and no data are different inputs."""
    calm = run(need=demand_table([DemandRow("chat@v1", "batch", "beta", "door", (0.0, 0.0, 0.0, 0.0))]))
    kept = _replicas(calm)
    assert kept.get(("us-1", "chat-l40s"), 0) == 0
    blind = run(need=demand_table([], [("chat@v1", "batch", "beta", "door")]))
    assert _replicas(blind)["us-1", "chat-l40s"] == 2
    assert _replicas(blind)["eu-1", "chat-h100"] >= 2
    assert any(row.what == "notice" and "without data" in row.reason for row in blind.unmet)


def test_a_running_model_that_the_demand_forgets_is_named(run: Planner, fleet: Fleet) -> None:
    """F098: silence about a model drains it, so the plan says that it was silence."""
    plan = run(need=demand_table([DemandRow("big@v1", "batch", "beta", "door", spread_quantiles(300.0, 0.1))]))
    said = [row.reason for row in plan.unmet if row.what == "notice"]
    assert any(reason.startswith("chat@v1 runs and the demand does not name it") for reason in said)
    told = run(need=demand_table([DemandRow("chat@v1", "batch", "beta", "door", (0.0, 0.0, 0.0, 0.0))]))
    assert not any("does not name it" in row.reason for row in told.unmet)


def test_drains_say_whether_demand_is_gone_unserved_or_elsewhere(run: Planner, fleet: Fleet) -> None:
    calm = run(need=demand_table([DemandRow("chat@v1", "batch", "beta", "door", (0.0, 0.0, 0.0, 0.0))]))
    reasons = {move.reason for move in calm.moves if move.change < 0}
    assert reasons == {"no demand is forecast for the model: GPUs are left free"}
    models = tuple(replace(m, token_value=100.0 if m.name == "big" else 0.01) for m in fleet.models)
    small = replace(
        fleet,
        models=models,
        pools=(GpuPool("us-1", "H100", 8),),
        placement=(Placed("us-1", "chat-h100", 2),),
        tenants=tuple(t for t in fleet.tenants if not t.reservations),
    )
    rows = [DemandRow(m.key, "batch", "beta", "door", spread_quantiles(90_000.0, 0.1)) for m in models]
    (drain,) = [move for move in run(on=small, need=demand_table(rows)).moves if move.change < 0]
    assert drain.reason == "GPUs are worth more in other use: the model's demand is not served"


def test_a_promise_that_fits_nowhere_is_explained(run: Planner, fleet_text: str, catalog: Catalog) -> None:
    """F097: acme wants a large model in a zone that is too small; the others keep what they have."""
    text = fleet_text.replace("- {site: eu-1, gpu_type: H100, count: 9, reserved_gpus: 1}", "")
    text = text.replace("gpu_pools:", "gpu_pools:\n  - {site: eu-1, gpu_type: H100, count: 3}")
    fleet = parse_fleet(text, "small.yaml")
    tenant = replace(
        fleet.tenant("acme"),
        reservations=(replace(fleet.tenant("acme").reservations[1], model="big@v1", replicas=1),),
    )
    fleet = replace(fleet, tenants=(tenant, *(t for t in fleet.tenants if t.name != "acme")))
    plan = run(on=fleet)
    assert plan.status is PlanStatus.INFEASIBLE
    (row,) = [row for row in plan.unmet if row.what == "reservation"]
    assert (row.tenant, row.model, row.missing, row.unit) == ("acme", "big@v1", 1.0, "replicas")
    assert "4 H100 at eu-1, 3 available (short by 1)" in row.reason
    assert not any(share.tenant == "acme" and share.site == "us-1" for share in plan.shares)
    assert sum(_replicas(plan).values()) > 0
    assert verify_plan(plan, fleet, catalog) == []


def test_a_promise_too_large_for_its_zone_is_one_sentence(run: Planner, fleet: Fleet) -> None:
    """F097: where, how many of how many, and which pool is full; the plan still places everything else."""
    promise = replace(fleet.tenant("acme").reservations[1], replicas=9)
    tenants = tuple(replace(t, reservations=(promise,)) if t.name == "acme" else t for t in fleet.tenants)
    sites = tuple(replace(site, start_budget_gpus=None) for site in fleet.sites)
    plan = run(on=replace(fleet, tenants=tenants, sites=sites))
    (row,) = [row for row in plan.unmet if row.what == "reservation"]
    assert row.reason == "zone eu: 1 of 9 reserved replicas of chat@v1 missing; full: H100 pool of eu-1 (8 GPUs)"
    assert f"{row.reason} (promised to acme)" in [line.text for line in explain_plan(plan)]
    assert _replicas(plan)["eu-1", "chat-h100"] == 8
    (price,) = [price for price in plan.prices if price.site == "eu-1"]
    assert (price.resource, price.gpu_type) == ("gpus", "H100")
    assert price.mends == "1 replicas of acme: 9 replicas of chat@v1"


def test_moves_know_their_worth_their_limits_and_their_moments(run: Planner) -> None:
    plan = run()
    assert plan.moves
    for move in plan.moves:
        assert len(move.begin_s) == abs(move.change)
        assert move.gain is not None
        assert move.gain >= 0
        assert bool(move.binding) == (move.change > 0)
    assert any(move.gain for move in plan.moves if move.change > 0)


def test_the_id_of_a_plan_is_that_of_its_decision_not_of_its_moments(run: Planner) -> None:
    plan = run()
    first, *rest = plan.moves
    later = replace(first, begin_s=tuple(moment + 5.0 for moment in first.begin_s))
    assert sealed(replace(plan, moves=(later, *rest))).plan_id == plan.plan_id
    other = replace(first, change=first.change + 1, begin_s=())
    assert sealed(replace(plan, moves=(other, *rest))).plan_id != plan.plan_id


def test_lost_caches_cost_what_the_prompts_use_them(run: Planner, fleet: Fleet) -> None:
    small = replace(fleet, placement=(Placed("us-1", "chat-l40s", 2), Placed("eu-1", "chat-h100", 2)))
    gone = demand_table([DemandRow("chat@v1", "interactive", "beta", "door", spread_quantiles(300.0, 0.1))])
    costs = []
    for share in (0.0, 0.5):
        plan = run(on=small, need=gone, settings=replace(SETTINGS, hit_share=share))
        costs.append(sum(move.lost_cache for move in plan.moves if move.change < 0))
        assert all(move.lost_cache == 0 for move in plan.moves if move.change > 0)
    assert costs[0] == 0 < costs[1]


def test_filter_counts_of_unplaced_demand(run: Planner) -> None:
    """F117: three sites, each excluded by another filter, and the counts say so."""
    need = demand_table([DemandRow("big@v1", "interactive", "night", "door", spread_quantiles(500.0, 0.1))])
    plan = run(need=need)
    (row,) = [row for row in plan.unmet if row.what == "demand"]
    assert "3 sites: 1 entry, 2 permission, 0 allowed" in row.reason
    assert row.missing == pytest.approx(500.0, rel=0.02)


def test_unknown_inventory_freezes_its_replicas(run: Planner, fleet: Fleet, catalog: Catalog) -> None:
    """F100: a pool that is not stated is never guessed; strict mode refuses to plan."""
    blind = replace(fleet, pools=tuple(p for p in fleet.pools if p.gpu_type != "L40S"))
    plan = run(on=blind)
    assert _replicas(plan)["us-1", "chat-l40s"] == 2
    assert not any(move.config == "chat-l40s" for move in plan.moves)
    assert any("us-1/L40S is unknown" in row.reason for row in plan.unmet)
    with pytest.raises(InfeasibleError, match="strict_inventory"):
        run(on=blind, settings=replace(SETTINGS, strict_inventory=True))


def test_frozen_site_has_no_moves(run: Planner) -> None:
    plan = run(settings=replace(SETTINGS, frozen_sites=("us-1",)))
    assert not any(move.site == "us-1" for move in plan.moves)
    assert any("us-1 is frozen" in row.reason for row in plan.unmet)


def test_start_budget_is_kept(run: Planner, fleet: Fleet) -> None:
    sites = tuple(replace(s, start_budget_gpus=1) if s.role == "compute" else s for s in fleet.sites)
    plan = run(on=replace(fleet, sites=sites))
    for site in ("eu-1", "us-1"):
        started = sum(
            m.change * (4 if m.config == "big-h100" else 1) for m in plan.moves if m.site == site and m.change > 0
        )
        assert started <= 1


def test_demand_above_a_budget_is_reported_not_planned(run: Planner) -> None:
    need = demand_table([DemandRow("chat@v1", "batch", "night", "door", spread_quantiles(9000.0, 0.0))])
    plan = run(need=need)
    (row,) = [row for row in plan.unmet if row.what == "budget"]
    assert (row.tenant, row.missing) == ("night", pytest.approx(6000.0))


def test_protected_model_survives_the_loss_of_a_site(run: Planner) -> None:
    plan = run(settings=replace(SETTINGS, protected_models=("chat@v1",), protected_share=0.2))
    for site in ("eu-1", "us-1"):
        assert (
            sum(n for (where, name), n in _replicas(plan).items() if where != site and name.startswith("chat")) > 0
        )
    assert not any(row.what == "site_loss" for row in plan.unmet)


def test_a_model_with_one_possible_site_cannot_be_protected(run: Planner, fleet: Fleet) -> None:
    pools = tuple(p for p in fleet.pools if p.site == "us-1")
    alone = replace(fleet, pools=(*pools, GpuPool("eu-1", "H100", 3)), placement=())
    plan = run(on=alone, settings=replace(SETTINGS, protected_models=("big@v1",)))
    assert any(row.what == "site_loss" and "only 1 site" in row.reason for row in plan.unmet)


def test_splits_cover_the_planned_traffic(run: Planner, demand: DemandTable) -> None:
    plan = run()
    assert plan.splits
    for row in plan.splits:
        assert sum(row.tenant_quota_tokens_per_s.values()) <= row.tokens_per_s * (1 + 1e-3) + 1e-2
    pools = {(r.site, r.model, r.gpu_type) for r in plan.replicas if r.replicas}
    assert {(row.site, row.model, row.gpu_type) for row in plan.splits} <= pools
    owed = sum(
        quota
        for row in plan.splits
        if row.workload_class == "interactive"
        for tenant, quota in row.tenant_quota_tokens_per_s.items()
        if tenant == "acme"
    )
    assert owed >= 1000.0 * 0.99


def test_strange_names_survive_unchanged(run: Planner, fleet: Fleet) -> None:
    """F093: names never reach a solver; the plan has them as they were and is worth the same."""
    names = ["a+b", "a-b", "a b", "1st", "équipe-ü", "z" * 200]
    plain = [f"t{k}" for k in range(len(names))]

    def plan_for(tenants: list[str]) -> PlanDocument:
        beta = fleet.tenant("beta")
        many = tuple(replace(beta, name=name, weight=1.0 + 0.1 * k) for k, name in enumerate(tenants))
        need = demand_table(
            [DemandRow("chat@v1", "interactive", name, "door", spread_quantiles(1000.0, 0.2)) for name in tenants]
        )
        return run(on=replace(fleet, tenants=many), need=need)

    odd, even = plan_for(names), plan_for(plain)
    assert {share.tenant for share in odd.shares} == set(names)
    assert odd.objective == pytest.approx(even.objective, rel=0.01)


def test_replicas_of_unknown_configurations_stay(run: Planner, fleet: Fleet) -> None:
    """A running replica that the catalog cannot describe is left alone and keeps its GPUs."""
    odd = replace(fleet.configs[0], name="chat-h100-odd", tensor_parallel=3)
    other = replace(
        fleet, configs=(*fleet.configs, odd), placement=(*fleet.placement, Placed("eu-1", "chat-h100-odd", 1))
    )
    plan = run(on=other)
    assert _replicas(plan)["eu-1", "chat-h100-odd"] == 1
    used = sum(r.replicas * r.gpus_per_replica for r in plan.replicas if (r.site, r.gpu_type) == ("eu-1", "H100"))
    assert used <= 8


def test_negative_and_nan_forecasts_become_zero(run: Planner) -> None:
    """F109: clamped, counted, and no negative replica or cost anywhere."""
    need = demand_table([DemandRow("chat@v1", "batch", "beta", "door", (-12.5, float("nan"), -1.0, -0.5))])
    assert need.clamped == 4
    plan = run(need=need)
    assert all(row.replicas >= 0 for row in plan.replicas)
    assert all(move.cost >= 0 for move in plan.moves)
    assert any("clamped=4" in row.reason for row in plan.unmet)
