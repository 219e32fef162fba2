"""What the loop tells about itself."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from planner.loop.judge import Watch
from planner.loop.service_level import ServiceLevel
from planner.loop.shadow import Shadow
from router.serving.reload import ReloadStatus


@dataclass(frozen=True, slots=True)
class StepReport:
    """One step.

    Attributes:
        at_s: When it began, seconds since the epoch.
        verdict: ``publish``, ``renew``, ``keep`` or ``failed``.
        reason: Why.
        plan_id: Plan that the step made; "" if it failed.
        version: Version that it published, if any.
        shadow: Simulated Goodput of both plans.
        level: Service over the last window.
        notes: What the sources and the planner had to say.
        seconds: Duration of its parts.
    """

    at_s: float
    verdict: str
    reason: str
    plan_id: str = ""
    version: int | None = None
    shadow: Shadow | None = None
    level: ServiceLevel | None = None
    notes: tuple[str, ...] = ()
    seconds: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LoopStatus:
    """The loop at one moment.

    Attributes:
        leads: Whether this planner may publish.
        epoch: Its fencing token; 0 = none.
        stepping: Whether a step is running.
        next_step_s: When the next one is due, seconds since the epoch.
        failures: Steps in a row that failed.
        watch: The plan under watch, if any.
        last_step: The last step.
        trouble: What keeps the loop from working now; "" = nothing.
        fleet: What became of the last change of the fleet file.
        sources: Where it sees demand.
        counts: How often each verdict was reached, and roll-backs, since the start.
        settings: Each setting of the loop: name, value, and whether it was given or is the default.
    """

    leads: bool
    epoch: int
    stepping: bool
    next_step_s: float
    failures: int
    watch: Watch | None
    last_step: StepReport | None
    trouble: str
    fleet: ReloadStatus
    sources: tuple[str, ...]
    counts: Counter[str]
    settings: tuple[tuple[str, float | str, bool], ...] = ()
