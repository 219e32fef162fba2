"""The loop: what is due, done; its thread, and what the API may ask of it.

``tick`` does whatever is due at a moment and says when it wants to be called next; time, processes and outlets are
arguments, so that a test drives it by hand. Whatever happens in a step, the plan in force stays until a better one
is verified, tried and published. States and verdicts are in ``planner.loop.machine`` and ``planner.loop.judge``.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from data.errors import InputError, TokenFleetError
from data.fleet.load import load_fleet
from data.fleet.types import Fleet
from data.plan import PlanDocument
from planner.apart import run_apart
from planner.digests import fleet_digest
from planner.loop.judge import StepVerdict, Watch, WatchVerdict, judge_look, judge_step
from planner.loop.loop_parts import LoopParts
from planner.loop.machine import LoopState, adopted, looked, set_back, step_done, step_failed, taken_out
from planner.loop.service_level import ServiceLevel
from planner.loop.settings import LoopSettings, effective
from planner.loop.sources import seen_level
from planner.loop.status import LoopStatus, StepReport
from planner.loop.step import StepJob, StepResult, run_step
from planner.plan_store.entry import Baseline, EntryKind, StoreEntry
from planner.plan_store.layout import Published
from planner.plan_store.store import renewed
from router.serving.reload import WatchedFile

LOG = logging.getLogger("tokenfleet.planner")
RETRY_S = STANDBY_S = 5.0
"""Pause after trouble with the store, and between two tries to take over."""
LOOK_DEADLINE_S = LONGEST_SLEEP_S = 60.0
LEASE_PARTS = 3.0
"""The leadership is renewed so many times within its lease."""

Apart = Callable[..., Any]
"""Runs a function elsewhere; see :func:`planner.apart.run_apart`."""


class PlannerLoop:
    """Plans on a schedule until it is told to stop.

    Args:
        parts: What it is made of.
        clock: Seconds since the epoch.
        apart: Runs steps and looks in a process of their own.

    Raises:
        FleetFileError: The fleet file is wrong.
    """

    def __init__(self, parts: LoopParts, clock: Callable[[], float] = time.time, apart: Apart = run_apart) -> None:
        self.parts = parts
        self.fleet: Fleet = load_fleet(parts.fleet_path)
        self._fleet_file: WatchedFile[Fleet] = WatchedFile(
            "fleet", parts.fleet_path, load_fleet, self._take_fleet, fleet_digest, fleet_digest(self.fleet)
        )
        self._clock, self._apart = clock, apart
        self._mutex = threading.RLock()
        self._stop, self._wake = threading.Event(), threading.Event()
        self._seen_s = clock()
        self._state = LoopState(next_step_s=self._seen_s)
        self._stepping = self._leads = False
        self._last: StepReport | None = None
        self._trouble = ""
        self._counts: Counter[str] = Counter()

    @property
    def state(self) -> LoopState:
        """What it knows now."""
        return self._state

    def status(self) -> LoopStatus:
        """How it stands now."""
        with self._mutex:
            return LoopStatus(
                self._leads,
                self.parts.store.leader.epoch,
                self._stepping,
                self._state.next_step_s,
                self._state.failures,
                self._state.watch,
                self._last,
                self._trouble,
                self._fleet_file.status,
                tuple(source.label for source in self.parts.sources),
                Counter(self._counts),
                effective(self.parts.loop, self.parts.given),
            )

    def run(self) -> None:
        """Work until :meth:`stop`; for a thread of its own."""
        while not self._stop.is_set():
            try:
                wake_s = self.tick()
                self._trouble = ""
            except (TokenFleetError, OSError) as error:
                self._trouble = f"{type(error).__name__}: {error}"
                LOG.warning("the loop has trouble: %s", error)
                wake_s = self._clock() + RETRY_S
            except Exception as error:
                # A fault of ours must not leave the fleet without a planner: it is told, and the loop goes on.
                self._trouble = f"{type(error).__name__}: {error}"
                LOG.exception("a fault in the loop")
                wake_s = self._clock() + RETRY_S
            # A clock that is set back must not make it sleep on.
            self._wake.wait(min(max(wake_s - self._clock(), 0.0), LONGEST_SLEEP_S))
            self._wake.clear()
        self.parts.store.leader.close()

    def stop(self) -> None:
        """Stop soon; a running step is given up and publishes nothing."""
        self._stop.set()
        self._wake.set()

    def step_soon(self) -> None:
        """Take the next step now."""
        with self._mutex:
            self._state = replace(self._state, next_step_s=self._clock())
        self._wake.set()

    def tick(self) -> float:
        """Do what is due; gives when to come back, seconds since the epoch.

        Raises:
            TokenFleetError, OSError: Trouble with the store; what is in force stays.
        """
        now_s, store = self._clock(), self.parts.store
        with self._mutex:
            if now_s < self._seen_s:
                self._state = set_back(self._state, self._seen_s - now_s, self.parts.schedule.next_s(now_s))
            self._seen_s = now_s
            self._leads = store.lead(now_s)
            if not self._leads:
                return now_s + STANDBY_S
            self._state = adopted(self._state, store.current(), now_s, self.parts.loop)
        if self._state.watch is not None and self._state.look_due(now_s):
            self._look(self._state.watch, now_s)
        if self.parts.ramp is not None:
            self.parts.ramp.take(self, self._apart, now_s)
        if self._state.step_due(now_s):
            self._step(now_s)
        return self._state.wake_s(self._clock() + store.leader.lease_s / LEASE_PARTS)

    def roll_back(self, reason: str, version: int | None = None) -> StoreEntry:
        """Put an earlier plan back and keep what is in force out for a while.

        Raises:
            PlanFileError: There is no such version, or nothing to go back to.
            NotLeaderError: Another planner leads.
            OSError: The store cannot be written.
        """
        with self._mutex:
            now_s, store = self._clock(), self.parts.store
            before = store.current()
            entry = store.roll_back(now_s, reason, version)
            after = store.folder.version(entry.version)
            if before is not None:
                self._state = taken_out(self._state, before, after, now_s, self.parts.loop)
            self._counts["roll_back"] += 1
            self.parts.on_published(after)
            return entry

    def put_in_force(
        self, plan: PlanDocument, over: Published, kind: EntryKind, reason: str, restores: int | None = None
    ) -> None:
        """Publish a plan that no step made, unless another one than ``over`` is in force by now; then step soon.

        Raises:
            NotLeaderError: Another planner leads.
            OSError: The store cannot be written.
        """
        with self._mutex:
            if _version(self.parts.store.current()) != over.entry.version:
                return
            now_s, watch = self._clock(), self._state.watch
            made = renewed(plan, now_s, self._state.next_step_s + self.parts.loop.step_deadline_s)
            baseline = None if watch is None or kind is EntryKind.ROLLED_BACK else watch.baseline
            entry = self.parts.store.publish(
                made, now_s, kind=kind, reason=reason, restores=restores, baseline=baseline
            )
            after = self.parts.store.folder.version(entry.version)
            self._state = replace(adopted(self._state, after, now_s, self.parts.loop), next_step_s=now_s)
            self.parts.on_published(after)

    def _step(self, now_s: float) -> None:
        if self._fleet_file.changed():
            self._fleet_file.take(self._fleet_file.read())
        parts, current = self.parts, self.parts.store.current()
        with self._mutex:
            self._state = replace(self._state, next_step_s=parts.schedule.next_s(now_s))
            self._stepping = True
        job = StepJob(
            self.fleet,
            parts.sources,
            None if current is None else current.plan,
            self._state.recent,
            now_s,
            parts.planner,
            parts.loop,
            parts.capacity_cache,
            parts.feedback,
            None if parts.ramp is None else parts.ramp.spec,
        )
        try:
            result = self._apart(run_step, job, deadline_s=parts.loop.step_deadline_s, stop=self._stop)
        except (TokenFleetError, OSError) as error:
            result = f"{type(error).__name__}: {error}"
        finally:
            self._stepping = False
        with self._mutex:
            if isinstance(result, StepResult):
                self._state = step_done(self._state, result.demand, parts.loop)
                if parts.measuring is not None:
                    parts.measuring.want(result.lacking)
                report = self._judged(result, current, now_s)
            else:
                self._state = step_failed(self._state)
                report = StepReport(now_s, "failed", result)
            self._last = report
            self._counts[report.verdict] += 1
        level = logging.WARNING if report.verdict == "failed" else logging.INFO
        LOG.log(level, "step: %s, %s", report.verdict, report.reason)

    def _judged(self, result: StepResult, planned_on: Published | None, now_s: float) -> StepReport:
        """Act on a step's plan, and say what was done."""
        parts, found = self.parts, result
        report = StepReport(
            now_s, "keep", "", found.plan.plan_id, None, found.shadow, found.level, found.notes, found.seconds
        )
        current = parts.store.current()
        if _version(current) != _version(planned_on):
            return replace(report, reason="the plan in force changed during the step")
        plan = None if current is None else current.plan
        judged = judge_step(result.plan, plan, result.shadow, self._state.quarantined(now_s), parts.loop)
        entry, now = None, self._clock()
        # In force until the next step is over, however long that takes.
        until_s = self._state.next_step_s + parts.loop.step_deadline_s
        if judged.verdict is StepVerdict.PUBLISH:
            baseline, made = _baseline(result.level, parts.loop), renewed(result.plan, now, until_s)
            entry = parts.store.publish(made, now, reason=judged.reason, baseline=baseline)
        elif plan is not None:
            # Refusing a plan is a decision for the one in force, which then holds for another period.
            baseline = None if self._state.watch is None else self._state.watch.baseline
            again = renewed(plan, now, until_s)
            entry = parts.store.publish(
                again, now, kind=EntryKind.RENEWED, reason=judged.reason, baseline=baseline
            )
        if entry is not None:
            published = parts.store.folder.version(entry.version)
            self._state = adopted(self._state, published, now_s, parts.loop)
            parts.on_published(published)
        version = None if entry is None else entry.version
        return replace(report, verdict=judged.verdict.value, reason=judged.reason, version=version)

    def _look(self, watch: Watch, now_s: float) -> None:
        """See how the plan under watch does."""
        loop, level = self.parts.loop, None
        since_s = min(max(watch.from_s, now_s - loop.window_s), now_s - 1.0)
        try:
            asked = (self.parts.sources, self.fleet, since_s, now_s)
            level = self._apart(seen_level, *asked, deadline_s=LOOK_DEADLINE_S, stop=self._stop)
        except (TokenFleetError, OSError) as error:
            LOG.warning("no look at the Goodput: %s", error)
        verdict = judge_look(watch, level, now_s, loop)
        with self._mutex:
            if _version(self.parts.store.current()) != self._state.version:
                return
            if verdict.verdict is not WatchVerdict.ROLL_BACK:
                self._state = looked(self._state, verdict, now_s, loop)
                return
            LOG.warning("plan of version %d is taken back: %s", watch.version, verdict.reason)
            try:
                self.roll_back(verdict.reason)
            except InputError as error:
                # The first plan of a store has nothing before it.
                LOG.warning("nothing to roll back to: %s", error)
                self._state = replace(self._state, watch=None)

    def _take_fleet(self, fleet: Fleet) -> None:
        self.fleet = fleet


def _version(published: Published | None) -> int:
    return 0 if published is None else published.entry.version


def _baseline(level: ServiceLevel | None, settings: LoopSettings) -> Baseline | None:
    """What a new plan is compared with: the service before it, if enough was seen."""
    if level is None or level.requests < settings.least_requests:
        return None
    return Baseline(level.good_share, level.offered_tokens_per_s)
