"""The independent checker: every rule broken in a valid plan is found under its own name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from data.catalog.load import Catalog
from data.fleet.types import Fleet, Site
from data.plan import Move, PlanDocument, UnmetDemand
from planner.capacity_table import capacity_table
from planner.demand import DemandTable
from planner.placement_input import placement_input
from planner.service import Clock, plan_once, planned_load
from planner.settings import PlannerSettings
from solver.backends import solve_here
from solver.placement import solve_placement
from solver.verify import verify_plan
from solver.violation import PlannedLoad

SETTINGS = PlannerSettings()
Case = tuple[PlanDocument, Fleet, PlannedLoad]


@pytest.fixture(scope="module")
def case(fleet: Fleet, catalog: Catalog, demand: DemandTable, clock: Clock) -> Case:
    """A valid plan with the rates it was made for."""
    plan = plan_once(fleet, catalog, demand, None, SETTINGS, clock, solve_here)
    table = capacity_table(fleet, catalog, demand, SETTINGS)
    given = placement_input(fleet, table, demand, fleet.placement, SETTINGS)
    load = planned_load(given, table, solve_placement(given.problem, SETTINGS.placement, solve=solve_here))
    assert verify_plan(plan, fleet, catalog, load=load) == []
    return plan, fleet, load


def _site(fleet: Fleet, name: str, **changes: object) -> Fleet:
    sites = tuple(replace(site, **changes) if site.name == name else site for site in fleet.sites)  # type: ignore[arg-type]
    return replace(fleet, sites=sites)


def _more_replicas(plan: PlanDocument, count: int) -> PlanDocument:
    first = next(row for row in plan.replicas if row.replicas and row.site == "eu-1")
    rows = tuple(replace(row, replicas=row.replicas + count) if row is first else row for row in plan.replicas)
    return replace(plan, replicas=rows)


def _first_share(plan: PlanDocument, **changes: object) -> PlanDocument:
    acme = next(share for share in plan.shares if share.tenant == "acme")
    rows = tuple(replace(row, **changes) if row is acme else row for row in plan.shares)  # type: ignore[arg-type]
    return replace(plan, shares=rows)


def _first_split(plan: PlanDocument, **changes: object) -> PlanDocument:
    acme = next(split for split in plan.splits if "acme" in split.tenant_quota_tokens_per_s)
    rows = tuple(replace(row, **changes) if row is acme else row for row in plan.splits)  # type: ignore[arg-type]
    return replace(plan, splits=rows)


def _foreign_quota(plan: PlanDocument) -> PlanDocument:
    """A quota for acme, whose data must stay in eu, in a pool of us-1."""
    there = next(split for split in plan.splits if split.site == "us-1")
    foreign = replace(there, tenant_quota_tokens_per_s={"acme": 0.0})
    return replace(plan, splits=tuple(foreign if row is there else row for row in plan.splits))


def _prewarm(plan: PlanDocument, count: int) -> PlanDocument:
    first = next(row for row in plan.replicas if row.site == "eu-1")
    rows = tuple(replace(row, prewarmed=count) if row is first else row for row in plan.replicas)
    return replace(plan, replicas=rows)


def _crowded(plan: PlanDocument) -> PlanDocument:
    """Every GPU of eu-1 starts anew while its two running replicas still drain."""
    row = next(row for row in plan.replicas if row.config == "chat-h100" and row.site == "eu-1")
    drain = Move("eu-1", "chat-h100", -2, 0.0, "make room", begin_s=(0.0, 0.0), lasts_s=30.0)
    start = Move("eu-1", "big-h100", 2, 0.0, "take it", begin_s=(0.0, 29.0), lasts_s=60.0)
    big = replace(row, config="big-h100", model="big@v1", gpus_per_replica=4, replicas=2, prewarmed=0)
    return replace(plan, replicas=(big,), shares=(), splits=(), moves=(drain, start))


Mutation = Callable[[PlanDocument, Fleet, PlannedLoad], tuple[PlanDocument, Fleet, PlannedLoad]]
MUTATIONS: dict[str, tuple[str, Mutation]] = {
    "more GPUs than the pool has": ("gpus", lambda p, f, w: (_more_replicas(p, 50), f, w)),
    "reserved GPUs taken": (
        "gpus",
        lambda p, f, w: (p, replace(f, pools=tuple(replace(q, reserved_gpus=q.count - 1) for q in f.pools)), w),
    ),
    "unknown configuration": (
        "names",
        lambda p, f, w: (replace(p, replicas=(replace(p.replicas[0], config="nope"), *p.replicas[1:])), f, w),
    ),
    "wrong GPUs per replica": (
        "names",
        lambda p, f, w: (replace(p, replicas=(replace(p.replicas[0], gpus_per_replica=7), *p.replicas[1:])), f, w),
    ),
    "listed twice": ("names", lambda p, f, w: (replace(p, replicas=(*p.replicas, p.replicas[0])), f, w)),
    "negative replicas": (
        "numbers",
        lambda p, f, w: (replace(p, replicas=(replace(p.replicas[0], replicas=-1), *p.replicas[1:])), f, w),
    ),
    "bound below the objective": ("numbers", lambda p, f, w: (replace(p, bound=p.objective / 2), f, w)),
    "objective not finite": ("numbers", lambda p, f, w: (replace(p, objective=float("inf")), f, w)),
    "share of an unknown tenant": ("names", lambda p, f, w: (_first_share(p, tenant="nobody"), f, w)),
    "share out of range": ("numbers", lambda p, f, w: (_first_share(p, share=1.5), f, w)),
    "residency": ("residency", lambda p, f, w: (_first_share(p, site="us-1"), f, w)),
    "permission": (
        "permission",
        lambda p, f, w: (
            p,
            replace(
                f, tenants=tuple(replace(t, models=("big@v1",)) if t.name == "beta" else t for t in f.tenants)
            ),
            w,
        ),
    ),
    "entry site": ("permission", lambda p, f, w: (_first_share(p, site="door"), f, w)),
    "no link": ("reach", lambda p, f, w: (p, replace(f, links=()), w)),
    "shares above 1": (
        "share_sum",
        lambda p, f, w: (replace(p, shares=(*p.shares, replace(p.shares[0], share=1.0))), f, w),
    ),
    "traffic without a replica": (
        "no_replica",
        lambda p, f, w: (
            replace(
                p,
                replicas=tuple(
                    r for r in p.replicas if (r.site, r.model) != (p.shares[0].site, p.shares[0].model)
                ),
            ),
            f,
            w,
        ),
    ),
    "start budget": (
        "start_budget",
        lambda p, f, w: (p, _site(_site(f, "eu-1", start_budget_gpus=0), "us-1", start_budget_gpus=0), w),
    ),
    "missing move": ("moves", lambda p, f, w: (replace(p, moves=p.moves[1:]), f, w)),
    "invented move": (
        "moves",
        lambda p, f, w: (replace(p, moves=(*p.moves, replace(p.moves[0], change=9))), f, w),
    ),
    "GPUs taken before they are given back": (
        "order",
        lambda p, f, w: (_crowded(p), _site(f, "eu-1", start_budget_gpus=None), w),
    ),
    "broken reservation": (
        "reservation",
        lambda p, f, w: (
            p,
            replace(
                f,
                tenants=tuple(
                    replace(t, reservations=tuple(replace(r, replicas=40) for r in t.reservations))
                    for t in f.tenants
                ),
            ),
            w,
        ),
    ),
    "broken throughput": (
        "reservation",
        lambda p, f, w: (
            p,
            replace(
                f,
                tenants=tuple(
                    replace(t, reservations=tuple(replace(r, tokens_per_s=1e6) for r in t.reservations))
                    for t in f.tenants
                ),
            ),
            w,
        ),
    ),
    "power": ("power", lambda p, f, w: (p, _site(f, "eu-1", power_kw=0.5), w)),
    "host memory": ("host_memory", lambda p, f, w: (_prewarm(p, 100), f, w)),
    "load above the ceiling": (
        "load",
        lambda p, f, w: (p, f, replace(w, loads={key: 3 * rate for key, rate in w.loads.items()})),
    ),
    "traffic beyond the planned load": (
        "load",
        lambda p, f, w: (p, f, replace(w, demand={key: 3 * rate for key, rate in w.demand.items()})),
    ),
    "more replicas shared out than stand": ("split", lambda p, f, w: (_first_split(p, replicas=99), f, w)),
    "quotas beyond the class's part": ("split", lambda p, f, w: (_first_split(p, tokens_per_s=1.0), f, w)),
    "quota of an unknown tenant": (
        "names",
        lambda p, f, w: (_first_split(p, tenant_quota_tokens_per_s={"nobody": 1.0}), f, w),
    ),
    "split for an unknown class": ("names", lambda p, f, w: (_first_split(p, workload_class="nope"), f, w)),
    "quota where data must not go": ("residency", lambda p, f, w: (_foreign_quota(p), f, w)),
    "ingress": ("ingress", lambda p, f, w: (p, _site(f, "eu-1", ingress_tokens_per_s=10.0), w)),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_each_broken_rule_is_caught_by_name(case: Case, catalog: Catalog, name: str) -> None:
    rule, change = MUTATIONS[name]
    plan, fleet, load = change(*case)
    assert rule in {found.rule for found in verify_plan(plan, fleet, catalog, load=load)}


def test_a_missed_promise_that_is_reported_is_no_violation(case: Case, catalog: Catalog) -> None:
    plan, fleet, load = case
    tenants = tuple(
        replace(t, reservations=tuple(replace(r, replicas=40) for r in t.reservations)) for t in fleet.tenants
    )
    told = UnmetDemand("reservation", "chat@v1", "", "acme", 40.0, "replicas", "no room")
    plan = replace(plan, unmet=(told,))
    rules = {found.rule for found in verify_plan(plan, replace(fleet, tenants=tenants), catalog, load=load)}
    assert "reservation" not in rules


def test_an_order_that_waits_for_the_drains_is_sound(case: Case, catalog: Catalog) -> None:
    plan, fleet, _ = case
    crowded = _crowded(plan)
    drain, start = crowded.moves
    patient = replace(crowded, moves=(drain, replace(start, begin_s=(0.0, 30.0))))
    rules = [{v.rule for v in verify_plan(one, fleet, catalog)} for one in (crowded, patient)]
    assert "order" in rules[0]
    assert "order" not in rules[1]


def test_a_violation_reads_like_a_sentence(case: Case, catalog: Catalog) -> None:
    plan, fleet, load = case
    cold: Site = replace(fleet.site("eu-1"), power_kw=0.5)
    other = replace(fleet, sites=tuple(cold if s.name == "eu-1" else s for s in fleet.sites))
    (found,) = [v for v in verify_plan(plan, other, catalog, load=load) if v.rule == "power"]
    assert str(found).startswith("power at eu-1: ")
    assert "0.5 allowed" in str(found)
