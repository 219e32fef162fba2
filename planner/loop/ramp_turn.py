"""The loop's turn at a ramp between versions: look at both versions, and publish what follows from it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from data.errors import PlanFileError, TokenFleetError
from data.fleet.types import Fleet
from data.log.reader import LogReader
from data.plan import PlanDocument, VersionRamp
from data.types import Status
from planner.loop.log_source import LAG_S, level_of
from planner.loop.ramp import RampSpec, VersionService, before_ramp, judge_ramp, ramp_of, with_ramp
from planner.plan_store.entry import EntryKind
from planner.plan_store.layout import Published, StoreFolder
from planner.service import sealed

LOG = logging.getLogger("tokenfleet.planner")
DEADLINE_S = 60.0
Both = tuple[VersionService | None, VersionService | None]


class Publisher(Protocol):
    """The part of the loop that a turn needs."""

    fleet: Fleet

    def put_in_force(
        self, plan: PlanDocument, over: Published, kind: EntryKind, reason: str, restores: int | None = None
    ) -> None:
        """Publish a plan that no step made, unless another one than ``over`` is in force by now."""
        ...


@dataclass(frozen=True, slots=True)
class RampTurn:
    """One ramp.

    Attributes:
        spec: What is wanted.
        log: Folder of the log in which both versions are compared.
        plans: The plan store.
        settle_s: Time that the first replicas of the new version get to load (0 or more).
    """

    spec: RampSpec
    log: Path
    plans: StoreFolder
    settle_s: float

    def take(self, loop: Publisher, apart: Callable[..., Any], now_s: float) -> None:
        """Move the ramp in the plan in force on, or back; nothing happens while it stays where it is.

        Raises:
            TokenFleetError, OSError: As ``Publisher.put_in_force``.
        """
        current = self.plans.current()
        if current is None or all(ramp.ramp_id != self.spec.ramp_id for ramp in current.plan.ramps):
            return  # The next step puts it into a plan.
        ramp, seen = ramp_of(current.plan, self.spec, now_s), (None, None)
        if ramp.state != "ramping":
            return
        if ramp.share > 0:
            try:
                asked = (self.log, loop.fleet, self.spec, ramp, now_s)
                seen = apart(seen_versions, *asked, deadline_s=DEADLINE_S)
            except (TokenFleetError, OSError) as error:
                LOG.warning("no look at both versions of %s: %s", ramp.model, error)
        verdict = judge_ramp(self.spec, ramp, *seen, now_s=now_s, settle_s=self.settle_s)
        if not verdict.moved:
            return
        if verdict.ramp.state != "failed":
            LOG.info("ramp of %s: %.0f %% now, %s", ramp.model, 100 * verdict.ramp.share, verdict.reason)
            made = sealed(with_ramp(current.plan, verdict.ramp))
            loop.put_in_force(made, current, EntryKind.PUBLISHED, f"ramp of {ramp.model}: {verdict.reason}")
            return
        LOG.warning("ramp of %s is taken back: %s", ramp.model, verdict.reason)
        before = self._before(ramp)
        stands = current.plan if before is None else before.plan
        made = sealed(replace(with_ramp(stands, verdict.ramp), parent_id=current.plan.plan_id))
        restores = None if before is None else before.entry.version
        kind = EntryKind.PUBLISHED if before is None else EntryKind.ROLLED_BACK
        loop.put_in_force(made, current, kind, f"ramp of {ramp.model}: {verdict.reason}", restores)

    def _before(self, ramp: VersionRamp) -> Published | None:
        """The newest whole version without the ramp: what stood before it began."""
        for number in self.plans.versions():
            try:
                found = self.plans.version(number)
            except PlanFileError:
                continue
            if before_ramp([found.plan], ramp) is not None:
                return found
        return None


def seen_versions(log: Path, fleet: Fleet, spec: RampSpec, ramp: VersionRamp, now_s: float) -> Both:
    """Service of the old and the new version since the step began, without what may still be running.

    Where the old one has too few requests in it (all traffic is at the new one), the time before the step counts.

    Raises:
        LogError: The log cannot be read.
    """
    since_s, until_s = datetime.fromisoformat(ramp.since).timestamp(), now_s - LAG_S
    if until_s <= since_s:
        return None, None
    reader = LogReader(log, look_ahead_s=LAG_S)
    rows = reader.window(since_s, until_s)
    old, new = (service_of(rows, fleet, key, since_s, until_s) for key in (ramp.old, ramp.new))
    if old is None or old.requests < spec.least_requests:
        earlier_s = since_s - spec.hold_s
        old = service_of(reader.window(earlier_s, since_s), fleet, ramp.old, earlier_s, since_s)
    return old, new


def service_of(rows: pa.Table, fleet: Fleet, model: str, since_s: float, until_s: float) -> VersionService | None:
    """Service of one version in joined rows of the log; ``None`` = no request of it ended."""
    own = rows.filter(pc.equal(rows.column("model").cast(pa.string()), model))
    status = own.column("status").to_numpy(zero_copy_only=False).astype(np.float64)
    ended = np.isfinite(status) & (status != Status.CLIENT_ERROR) & (status != Status.CANCELLED)
    if not ended.any():
        return None
    ttft = own.column("ttft_s").to_numpy(zero_copy_only=False).astype(np.float64)
    ttft = ttft[(status == Status.COMPLETED) & np.isfinite(ttft)]
    p95_s = float(np.quantile(ttft, 0.95)) if len(ttft) else float("nan")
    failed = (status == Status.FAILED) | (status == Status.REJECTED)
    level = level_of(own, fleet, since_s, until_s)
    return VersionService(float(ended.sum()), p95_s, float(failed.sum() / ended.sum()), level.good_share)
