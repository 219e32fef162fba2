"""What the feedback changes in a plan's capacity split, and what a plan says about missed guarantees."""

from __future__ import annotations

import re
from dataclasses import replace

from data.catalog.load import Catalog
from data.fleet.types import Fleet, Reservation
from data.plan import PlanDocument
from planner.demand import DemandTable
from planner.service import Clock, plan_once
from planner.settings import PlannerSettings
from router.slomax.corrections import NEUTRAL, Corrections
from solver.backends import solve_here
from solver.capacity_problem import CapacitySettings
from solver.settings import PlacementSettings
from solver.verify import verify_plan

SETTINGS = PlannerSettings(
    placement=PlacementSettings(time_limit_s=10.0), split=CapacitySettings(relative_gap=1e-4)
)


def _plan(
    fleet: Fleet, catalog: Catalog, demand: DemandTable, clock: Clock, corrections: Corrections = NEUTRAL
) -> PlanDocument:
    return plan_once(fleet, catalog, demand, None, SETTINGS, clock, solve_here, corrections=corrections)


def _carried(plan: PlanDocument, kind: str) -> float:
    return sum(row.tokens_per_s / max(row.replicas, 1) for row in plan.splits if row.workload_class == kind)


def test_a_pool_that_delivers_less_is_planned_with_less(
    fleet: Fleet, catalog: Catalog, demand: DemandTable, clock: Clock
) -> None:
    """A factor of 0.6 on the interactive class: no row promises more than before, and the plan still verifies."""
    before = _plan(fleet, catalog, demand, clock)
    factors = {(model, "interactive"): 0.6 for model in ("chat@v1", "big@v1")}
    after = _plan(fleet, catalog, demand, clock, Corrections(capacity=factors))
    assert verify_plan(after, fleet, catalog) == []
    assert before.replicas == after.replicas
    assert _carried(after, "interactive") < _carried(before, "interactive")


def test_a_neutral_feedback_changes_nothing(
    fleet: Fleet, catalog: Catalog, demand: DemandTable, clock: Clock
) -> None:
    ones = Corrections(capacity={("chat@v1", "interactive"): 1.0}, debt={("interactive", "acme"): 1.0})
    assert _plan(fleet, catalog, demand, clock, ones) == _plan(fleet, catalog, demand, clock)


def test_a_missed_guarantee_is_told_in_the_plan(
    fleet: Fleet, catalog: Catalog, demand: DemandTable, clock: Clock
) -> None:
    """F097: pools that turn out slow cannot keep a promise; the plan names it, the amount and the pool."""
    promise = Reservation("chat@v1", tokens_per_s=9000.0, workload_class="interactive")
    tenants = tuple(replace(one, reservations=(promise,)) if one.name == "acme" else one for one in fleet.tenants)
    slow = Corrections(capacity={("chat@v1", "interactive"): 0.1})
    plan = _plan(replace(fleet, tenants=tenants), catalog, demand, clock, slow)
    told = [row.reason for row in plan.unmet if row.what == "notice" and "acme's guarantee" in row.reason]
    assert len(told) == 1
    assert re.search(r"in interactive is missed by [\d.]+: .*eu-1/chat@v1/H100", told[0])
