"""The loop's state and how it changes: values and the time in, the next state out.

::

            step due                     PUBLISH, with a baseline
    idle ------------> stepping ------------------------------------> watched
      ^                   | RENEW, KEEP, failed                         |  look: GO_ON (stays)
      +-------------------+---------------------------------------------+  look: PASSED, ROLL_BACK
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from planner.demand import DemandTable
from planner.loop.judge import Looked, Watch, WatchVerdict, placement_digest, watch_after
from planner.loop.settings import LoopSettings
from planner.plan_store.entry import EntryKind
from planner.plan_store.layout import Published


@dataclass(frozen=True, slots=True)
class LoopState:
    """What the loop knows between two moments.

    Attributes:
        next_step_s, next_look_s: When they are due, seconds since the epoch.
        version: Version in force that was taken notice of; 0 = none.
        watch: The plan under watch.
        quarantine: Placement digest to the moment until which it is not published.
        recent: Demand of the last good steps, oldest first.
        failures: Steps in a row that failed.
    """

    next_step_s: float
    next_look_s: float = 0.0
    version: int = 0
    watch: Watch | None = None
    quarantine: Mapping[str, float] = field(default_factory=dict)
    recent: tuple[DemandTable, ...] = ()
    failures: int = 0

    def look_due(self, now_s: float) -> bool:
        """Whether the plan under watch is to be looked at."""
        return self.watch is not None and now_s >= self.next_look_s

    def step_due(self, now_s: float) -> bool:
        """Whether a step is to be taken."""
        return now_s >= self.next_step_s

    def wake_s(self, renew_s: float) -> float:
        """When something is due again; ``renew_s`` is when the leadership is to be renewed."""
        due = [self.next_step_s, renew_s]
        return min([*due, self.next_look_s] if self.watch is not None else due)

    def quarantined(self, now_s: float) -> frozenset[str]:
        """Placements that are not published now."""
        return frozenset(key for key, until_s in self.quarantine.items() if until_s > now_s)


def adopted(state: LoopState, current: Published | None, now_s: float, settings: LoopSettings) -> LoopState:
    """Take notice of what is in force, by whomever: a watch outlives a restart of the planner.

    A renewal goes on with the watch of the plan that it renews. A plan that was put back is not watched.
    """
    if current is None or current.entry.version == state.version:
        return state
    entry = current.entry
    state = replace(state, version=entry.version)
    if entry.kind is EntryKind.RENEWED and state.watch is not None:
        return state
    watch = watch_after(entry.version, current.plan, entry.published_s, entry.baseline, settings)
    if entry.kind is EntryKind.ROLLED_BACK or watch is None or watch.until_s <= now_s:
        return replace(state, watch=None)
    return replace(state, watch=watch, next_look_s=watch.from_s)


def set_back(state: LoopState, by_s: float, next_step_s: float) -> LoopState:
    """After the clock was set back: what was to come in a while still comes in that while, not ``by_s`` later.

    Args:
        state: Before.
        by_s: By so much (0 or more).
        next_step_s: The schedule's next moment from now.
    """
    watch = state.watch
    if watch is not None:
        watch = replace(watch, from_s=watch.from_s - by_s, until_s=watch.until_s - by_s)
    return replace(
        state,
        next_step_s=min(state.next_step_s, next_step_s),
        next_look_s=state.next_look_s - by_s,
        watch=watch,
        quarantine={key: until_s - by_s for key, until_s in state.quarantine.items()},
    )


def step_failed(state: LoopState) -> LoopState:
    """After a step without result: what was known before a silence is no proof for a fall after it."""
    return replace(state, recent=(), failures=state.failures + 1)


def step_done(state: LoopState, demand: DemandTable, settings: LoopSettings) -> LoopState:
    """After a good step."""
    return replace(state, recent=(*state.recent, demand)[-settings.shrink_after_steps :], failures=0)


def looked(state: LoopState, verdict: Looked, now_s: float, settings: LoopSettings) -> LoopState:
    """After a look that does not roll back."""
    if state.watch is None or verdict.verdict is WatchVerdict.PASSED:
        return replace(state, watch=None)
    watch = replace(state.watch, falls=verdict.falls)
    return replace(state, watch=watch, next_look_s=now_s + settings.look_every_s)


def taken_out(
    state: LoopState, before: Published, after: Published, now_s: float, settings: LoopSettings
) -> LoopState:
    """After a roll-back: the placement that went is kept out for a while."""
    gone = placement_digest(before.plan)
    kept = {key: until_s for key, until_s in state.quarantine.items() if until_s > now_s}
    if gone != placement_digest(after.plan):
        kept[gone] = now_s + settings.quarantine_s
    return adopted(replace(state, quarantine=kept), after, now_s, settings)
