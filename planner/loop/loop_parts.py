"""What a planner loop is made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from planner.loop.measuring import Measuring
from planner.loop.ramp_turn import RampTurn
from planner.loop.schedule import Schedule
from planner.loop.settings import LoopSettings
from planner.loop.sources import DemandSource
from planner.plan_store.layout import Published
from planner.plan_store.store import PlanStore
from planner.settings import PlannerSettings

OnPublished = Callable[[Published], None]


@dataclass(frozen=True, slots=True)
class LoopParts:
    """What a loop is made of.

    Attributes:
        fleet_path: Fleet file; read again when it changes.
        store: Where plans are published.
        sources: Where demand is seen, one or more.
        schedule: When steps are due.
        planner, loop: Settings.
        capacity_cache: File of measured capacities; ``None`` = closed form.
        measuring: Measures what that file lacks; ``None`` = it is filled elsewhere.
        feedback: Files in which routers keep their feedback; it corrects the capacity split.
        given: Names of the loop's settings that were given at the start; the others hold their defaults.
        ramp: Moves traffic from one version of a model to the next; ``None`` = nothing is moved.
        on_published: Told of each new version, roll-backs included; must return at once.
    """

    fleet_path: Path
    store: PlanStore
    sources: tuple[DemandSource, ...]
    schedule: Schedule
    planner: PlannerSettings
    loop: LoopSettings
    capacity_cache: Path | None = None
    given: frozenset[str] = frozenset()
    measuring: Measuring | None = None
    ramp: RampTurn | None = None
    on_published: OnPublished = lambda _: None
    feedback: tuple[Path, ...] = ()
