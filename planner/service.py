"""One planning step: from a fleet, a demand and the running plan to the next plan document.

observe → capacity table → problem → solve → verify (independent checker) → split → document. The step ends on time
with the best safe plan it has; a plan that does not verify is never returned.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Protocol

from data.catalog.load import Catalog
from data.errors import SolverError
from data.fleet.types import Fleet, Placed
from data.plan import Move, PlanDocument, PlanStatus
from data.plan_rules import PLAN_BOOK
from data.strict.encode import to_plain
from models.capacity_check import CapacityCheck
from planner.capacity_table import CapacityTable, capacity_table
from planner.demand import DemandTable
from planner.digests import demand_digest, digest, fleet_digest
from planner.move_order_input import ordered_moves
from planner.placement_input import PlacementInput, placement_input
from planner.plan_prices import shadow_prices
from planner.plan_rows import plain_goodput, planned_moves, planned_replicas, traffic_shares
from planner.pool_splits import pool_splits
from planner.settings import PlannerSettings
from planner.unmet import unmet_rows
from router.slomax.corrections import NEUTRAL, Corrections
from solver.child import ChildSolver
from solver.explain import Explanation, explain_misses
from solver.explain_moves import ResourcePrice, move_effects, resource_prices
from solver.greedy import kept_placement
from solver.linear import ModelSolver, SolveLimits
from solver.matrix import build_matrix
from solver.placement import solve_placement
from solver.solution import Origin, PlacementSolution
from solver.verify import verify_plan
from solver.violation import PlannedLoad, Violation

EXPLAIN_LIMIT_S = 5.0
AUDIT_WATCHDOG = 10.0


class Clock(Protocol):
    """The time of day and a stopwatch."""

    def now(self) -> datetime:
        """Now, in UTC."""
        ...

    def seconds(self) -> float:
        """A monotonic count of seconds."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now(self) -> datetime:
        """Now, in UTC."""
        return datetime.now(UTC)

    def seconds(self) -> float:
        """A monotonic count of seconds."""
        return time.monotonic()


@dataclass(frozen=True, slots=True)
class _Step:
    """Everything one planning step knows."""

    fleet: Fleet
    catalog: Catalog
    demand: DemandTable
    running_plan: PlanDocument | None
    running: tuple[Placed, ...]
    table: CapacityTable
    given: PlacementInput
    settings: PlannerSettings
    solve: ModelSolver
    corrections: Corrections


def plan_once(
    fleet: Fleet,
    catalog: Catalog,
    demand: DemandTable,
    running_plan: PlanDocument | None = None,
    settings: PlannerSettings | None = None,
    clock: Clock | None = None,
    solve: ModelSolver | None = None,
    check: CapacityCheck | None = None,
    corrections: Corrections = NEUTRAL,
) -> PlanDocument:
    """Plan one period.

    Args:
        fleet: The fleet; its placement is what stands, unless a running plan says otherwise.
        catalog: GPU types and service times.
        demand: Forecast by commodity.
        running_plan: The plan in force, if any: start of the search and measure of every move.
        settings: Worths, limits and policies.
        clock: Time of day for the document, stopwatch for ``solve_s``.
        solve: Solver of linear models; default: a guarded child process.
        check: Measured capacities; without it the capacity table is the closed form.
        corrections: Of the feedback; they bear on the capacity split.

    Returns:
        A plan that the independent checker accepts. Broken promises and unserved demand stand in ``unmet``.

    Raises:
        SolverError: Not even the running placement verifies against the fleet.
        InfeasibleError: ``strict_inventory`` is set and an inventory is unknown.
    """
    settings, clock = settings or PlannerSettings(), clock or SystemClock()
    if solve is None:
        with ChildSolver() as child:
            return plan_once(fleet, catalog, demand, running_plan, settings, clock, child, check, corrections)
    began = clock.seconds()
    running = _standing(fleet, running_plan)
    table = capacity_table(fleet, catalog, demand, settings, check)
    given = placement_input(fleet, table, demand, running, settings)
    step = _Step(fleet, catalog, demand, running_plan, running, table, given, settings, solve, corrections)
    solution = solve_placement(given.problem, settings.placement, solve=solve)
    plan, violations = _document(step, solution, clock)
    if violations:
        plan = _keep_last(step, violations, clock)
    return sealed(replace(plan, solve_s=round(clock.seconds() - began, 3)))


def _standing(fleet: Fleet, running_plan: PlanDocument | None) -> tuple[Placed, ...]:
    if running_plan is None:
        return fleet.placement
    known = {config.name for config in fleet.configs}
    return tuple(
        Placed(row.site, row.config, row.replicas, row.prewarmed)
        for row in running_plan.replicas
        if row.config in known
    )


def _document(step: _Step, solution: PlacementSolution, clock: Clock) -> tuple[PlanDocument, list[Violation]]:
    """The plan document of a solution, and what the independent checker says about it."""
    explanation = _explanation(step, solution)
    splits, notes = pool_splits(
        step.fleet, step.given, solution, step.running_plan, step.settings, step.solve, step.corrections
    )
    prices = resource_prices(step.given.problem, step.solve, _explain_limits(step))
    moves, order_notes = _moves(step, solution, prices)
    told = replace(solution, note=(*solution.note, *notes, *order_notes))
    unmet = unmet_rows(step.fleet, step.given, told, step.demand, explanation)
    made = clock.now()
    plan = PlanDocument(
        plan_id="pending",
        parent_id=step.running_plan.plan_id if step.running_plan else None,
        made_at=_utc(made),
        valid_from=_utc(made),
        valid_until=_utc(made + timedelta(seconds=step.settings.period_s)),
        fleet=step.fleet.name,
        input_digests=_digests(step),
        status=plan_status(solution, broken=bool(step.given.promises.broken)),
        objective=solution.value,
        goodput_tokens_per_s=plain_goodput(step.given, solution),
        bound=solution.bound,
        bound_name=solution.bound_name,
        replicas=planned_replicas(step.fleet, step.given, solution),
        shares=traffic_shares(step.given, solution),
        splits=splits,
        unmet=unmet,
        moves=moves,
        prices=shadow_prices(step.given, prices),
        solver=f"{solution.origin.value}: HiGHS",
    )
    load = planned_load(step.given, step.table, solution)
    return plan, verify_plan(plan, step.fleet, step.catalog, running=step.running, load=load)


def _moves(
    step: _Step, solution: PlacementSolution, prices: Sequence[ResourcePrice]
) -> tuple[tuple[Move, ...], tuple[str, ...]]:
    """The moves, what each brings and when it begins, and what there is to say about their order."""
    settings = step.settings
    effects = move_effects(step.given.problem, solution, prices, step.solve, _explain_limits(step))
    moves = planned_moves(step.given, solution, settings.period_s, effects, settings.hit_share)
    # Moves are put in order where the linear models are solved: in the guarded process if there is one.
    asker = step.solve if isinstance(step.solve, ChildSolver) else None
    return ordered_moves(step.fleet, step.given, solution, moves, settings, asker)


def _explain_limits(step: _Step) -> SolveLimits:
    """Time for prices, and again for the worth of moves; in audit mode enough never to matter."""
    return SolveLimits(EXPLAIN_LIMIT_S * (AUDIT_WATCHDOG if step.settings.placement.deterministic else 1.0))


def _explanation(step: _Step, solution: PlacementSolution) -> Explanation | None:
    """Why promises are missed, where some are."""
    problem = step.given.problem
    if not solution.misses.any(problem):
        return None
    return explain_misses(problem, build_matrix(problem), step.solve, SolveLimits(EXPLAIN_LIMIT_S))


def plan_status(solution: PlacementSolution, *, broken: bool) -> PlanStatus:
    """Status of a plan: a limit is never called optimal, and a promise that cannot be kept stays visible.

    ``broken`` says that the structure of the fleet alone rules a promise out.
    """
    if broken or solution.unavoidable:
        return PlanStatus.INFEASIBLE
    if solution.origin is Origin.GREEDY:
        return PlanStatus.GREEDY
    if solution.proved:
        return PlanStatus.OPTIMAL
    return PlanStatus.KEPT_LAST if solution.origin is Origin.KEPT else PlanStatus.FEASIBLE_LIMIT


def planned_load(given: PlacementInput, table: CapacityTable, solution: PlacementSolution) -> PlannedLoad:
    """The rates a plan was made for, as a certificate for the checker."""
    places = given.problem.placements
    loads = {
        (given.sites[int(places.site[i])].name, places.config[i], kind): float(solution.loads[i, c])
        for i in range(len(places))
        for c, kind in enumerate(given.classes)
        if solution.loads[i, c] > 0
    }
    rates = {
        (name, kind): capacity.rate(kind) for name, capacity in table.configs.items() for kind in given.classes
    }
    return PlannedLoad({row.key: row.median for job in given.jobs for row in job.rows}, rates, loads)


def _keep_last(step: _Step, violations: Sequence[Violation], clock: Clock) -> PlanDocument:
    """The running placement, when the new plan does not verify."""
    problem = step.given.problem
    kept = replace(
        kept_placement(problem, build_matrix(problem)),
        bound=float((problem.commodities.width * problem.commodities.value).sum()),
        bound_name="all demand served",
        note=tuple(f"new plan refused: {violation}" for violation in violations[:10]),
    )
    plan, still = _document(step, kept, clock)
    if still:
        raise SolverError(f"no plan verifies, nor does what runs: {still[0]} ({len(still)} in all)")
    return replace(plan, status=PlanStatus.KEPT_LAST)


def _digests(step: _Step) -> dict[str, str]:
    running = sorted((p.site, p.config, p.replicas, p.prewarmed) for p in step.running)
    return {
        "demand": demand_digest(step.demand),
        "fleet": fleet_digest(step.fleet),
        "running": digest(running),
        "settings": digest(str(step.settings)),
    }


def _utc(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def sealed(plan: PlanDocument) -> PlanDocument:
    """The plan under an id made of what it decides: the same decision has the same id whenever it is made."""
    content = dict(to_plain(plan, PLAN_BOOK))
    for name in ("plan_id", "made_at", "valid_from", "valid_until", "solve_s"):
        del content[name]
    # When a move begins depends on how long an order was looked for; what is decided does not.
    content["moves"] = [{**move, "begin_s": None} for move in content["moves"]]
    return replace(plan, plan_id=f"plan-{digest(content)}")
