"""One step of the loop as one function: observe, forecast, plan, verify, simulate. It runs in its own process.

It decides nothing and publishes nothing: what comes back is judged and published by the loop.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from data.catalog.load import load_catalog
from data.errors import InputError
from data.fleet.types import Fleet, Placed
from data.plan import PlanDocument
from models.capacity import GroupRate
from models.capacity_check import CapacityCase
from planner.capacity_cache import CapacityCache
from planner.demand import DemandTable
from planner.loop.feedback_files import read_corrections
from planner.loop.ramp import RampSpec, ramp_of, ramped_demand, with_ramp
from planner.loop.service_level import ServiceLevel
from planner.loop.settings import LoopSettings
from planner.loop.settled_demand import hold_running, settled
from planner.loop.shadow import Shadow, Window, shadow
from planner.loop.sources import DemandSource, LastWindow, seen_demand, seen_level
from planner.loop.window_requests import drawn_window
from planner.plan_diff import plan_diff
from planner.service import plan_once, sealed
from planner.settings import PlannerSettings
from solver.linear import ModelSolver

Lacking = tuple[tuple[CapacityCase, GroupRate], ...]


@dataclass(frozen=True, slots=True)
class StepJob:
    """What a step works on.

    Attributes:
        fleet: The fleet.
        sources: Where demand is seen.
        running: Plan in force; ``None`` = the fleet file's placement stands.
        recent: Demand of the last steps, oldest first, without failed ones.
        now_s: Moment of the step, seconds since the epoch.
        planner, loop: Settings.
        capacity_cache: File of measured capacities; ``None`` = closed form.
        feedback: Files in which routers keep their feedback.
        ramp: The ramp between two versions of a model that is wanted, if any.
    """

    fleet: Fleet
    sources: tuple[DemandSource, ...]
    running: PlanDocument | None
    recent: tuple[DemandTable, ...]
    now_s: float
    planner: PlannerSettings
    loop: LoopSettings
    capacity_cache: Path | None = None
    feedback: tuple[Path, ...] = ()
    ramp: RampSpec | None = None


@dataclass(frozen=True, slots=True)
class StepResult:
    """What came out.

    Attributes:
        plan: A plan that the independent checker accepts.
        demand: What the sources said, to be remembered.
        level: Service over the last window; ``None`` = nobody knows.
        shadow: Both plans simulated; ``None`` = nothing moves, or there was nothing to simulate.
        notes: What a reader should know.
        seconds: Duration of each part.
        lacking: Capacities that are not measured yet, with their closed form.
    """

    plan: PlanDocument
    demand: DemandTable
    level: ServiceLevel | None
    shadow: Shadow | None
    notes: tuple[str, ...] = field(default=())
    seconds: dict[str, float] = field(default_factory=dict)
    lacking: Lacking = ()


@dataclass(frozen=True, slots=True)
class FixedClock:
    """The moment of the step as the time of day, and the machine's stopwatch."""

    now_s: float

    def now(self) -> datetime:
        """The moment of the step, in UTC."""
        return datetime.fromtimestamp(self.now_s, UTC)

    def seconds(self) -> float:
        """A monotonic count of seconds."""
        return time.monotonic()


def run_step(job: StepJob, solve: ModelSolver | None = None) -> StepResult:
    """Take one step; ``solve`` solves linear models (``None`` = a guarded process of its own).

    Raises:
        InputError: No source answered.
        TokenFleetError: As :func:`planner.service.plan_once`.
    """
    seconds: dict[str, float] = {}
    began = time.monotonic()
    seen = seen_demand(job.sources, job.fleet, job.now_s, job.planner.period_s)
    if seen.demand is None:
        raise InputError("no source of demand answers: " + "; ".join(seen.failed))
    level = seen_level(job.sources, job.fleet, job.now_s - job.loop.window_s, job.now_s)
    began = _lap(seconds, "observe", began)
    demand = believed_demand(job, seen.demand)
    ramp = None if job.ramp is None else ramp_of(job.running, job.ramp, job.now_s)
    if job.ramp is not None and ramp is not None:
        demand = ramped_demand(demand, job.ramp, ramp)
    catalog = load_catalog()
    clock, check = FixedClock(job.now_s), _capacities(job)
    told = read_corrections(job.feedback, job.now_s)
    plan = plan_once(job.fleet, catalog, demand, job.running, job.planner, clock, solve, check, told.corrections)
    if ramp is not None:
        plan = sealed(with_ramp(plan, ramp))
    began = _lap(seconds, "plan", began)
    tried = None
    if job.running is None or plan_diff(job.running, plan).places:
        window = _last_window(job, seen.demand)
        tried = try_plan(job.fleet, standing(job.fleet, job.running), plan, window, job.planner, job.loop)
    _lap(seconds, "simulate", began)
    lacking = () if check is None else tuple(check.lacking)
    notes = (*demand.notes, *told.notes, *_lacking_note(lacking))
    return StepResult(plan, seen.demand, level, tried, notes, seconds, lacking)


def believed_demand(job: StepJob, newest: DemandTable) -> DemandTable:
    """The demand to plan with; what is not settled yet takes no replica away."""
    steps = job.loop.shrink_after_steps
    recent = (*job.recent, newest)[-steps:]
    demand = settled(recent, steps)
    if len(recent) < steps or newest.missing:
        demand = hold_running(demand, job.fleet, standing(job.fleet, job.running))
    return demand


def standing(fleet: Fleet, running: PlanDocument | None) -> tuple[Placed, ...]:
    """What stands: the plan in force without configurations that the fleet no longer has, else its placement."""
    if running is None:
        return fleet.placement
    sites, configs = {site.name for site in fleet.sites}, {config.name for config in fleet.configs}
    return tuple(
        Placed(row.site, row.config, row.replicas, row.prewarmed)
        for row in running.replicas
        if row.site in sites and row.config in configs
    )


def try_plan(
    fleet: Fleet,
    running: Sequence[Placed],
    plan: PlanDocument,
    window: Window,
    planner: PlannerSettings,
    loop: LoopSettings,
) -> Shadow | None:
    """Simulate a plan against what stands; see :mod:`planner.loop.shadow`."""
    return shadow(
        fleet,
        load_catalog(),
        running,
        standing(fleet, plan),
        window,
        period_s=planner.period_s,
        policy=loop.shadow_policy,
        moves=plan.moves,
    )


def _last_window(job: StepJob, demand: DemandTable) -> Window:
    """Logged requests if a source knows them, else requests drawn from the demand."""
    wanted = LastWindow(job.now_s, job.loop.window_s, job.loop.shadow_requests, job.loop.shadow_seeds)
    for source in job.sources:
        try:
            found = source.requests(job.fleet, wanted)
        except (InputError, OSError):
            continue
        if found is not None:
            return found
    known = replace(demand, missing=())
    return drawn_window(known, job.fleet, wanted.window_s, wanted.most_requests, wanted.seeds)


def _lacking_note(lacking: Lacking) -> list[str]:
    return [f"{len(lacking)} capacities are not measured yet: closed form"] if lacking else []


def _capacities(job: StepJob) -> CapacityCache | None:
    """Capacities that are known; none is measured here, see :mod:`planner.loop.measuring`."""
    return None if job.capacity_cache is None else CapacityCache(job.capacity_cache, limit_s=0.0)


def _lap(seconds: dict[str, float], name: str, began: float) -> float:
    now = time.monotonic()
    seconds[name] = round(now - began, 3)
    return now
