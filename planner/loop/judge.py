"""What becomes of a plan: published, renewed or refused after a step; kept or taken back while it is watched.

Values in, verdicts out: no clock, no file, no process.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from data.plan import PlanDocument, PlanStatus
from planner.digests import digest
from planner.loop.service_level import ServiceLevel
from planner.loop.settings import LoopSettings
from planner.loop.shadow import Shadow
from planner.plan_diff import plan_diff
from planner.plan_store.entry import Baseline


class StepVerdict(StrEnum):
    """What to do with a step's plan."""

    PUBLISH = "publish"
    RENEW = "renew"
    """It decides what the plan in force decides: that one goes on."""
    KEEP = "keep"
    """It is refused; the plan in force goes on."""


class WatchVerdict(StrEnum):
    """What to do with a plan that is watched."""

    GO_ON = "go_on"
    PASSED = "passed"
    ROLL_BACK = "roll_back"


@dataclass(frozen=True, slots=True)
class Judged:
    """A verdict on a step, and why."""

    verdict: StepVerdict
    reason: str


@dataclass(frozen=True, slots=True)
class Watch:
    """A published plan under watch.

    Attributes:
        version: Its version in the store.
        placement: Digest of what it places.
        baseline: How the fleet served before it.
        from_s, until_s: When looks count, seconds since the epoch.
        falls: Looks in a row that saw Goodput below the limit.
    """

    version: int
    placement: str
    baseline: Baseline
    from_s: float
    until_s: float
    falls: int = 0


@dataclass(frozen=True, slots=True)
class Looked:
    """A verdict on a look: what to do, why, and how many looks in a row saw a fall."""

    verdict: WatchVerdict
    reason: str
    falls: int


def placement_digest(plan: PlanDocument) -> str:
    """Digest of what a plan places; the same for plans that differ only in shares or times."""
    return digest(sorted((r.site, r.config, r.replicas, r.prewarmed) for r in plan.replicas))


def judge_step(
    candidate: PlanDocument,
    current: PlanDocument | None,
    shadow: Shadow | None,
    quarantined: frozenset[str],
    settings: LoopSettings,
) -> Judged:
    """Whether a step's plan goes into force.

    Args:
        candidate: A verified plan.
        current: What is in force; ``None`` = nothing yet.
        shadow: Both simulated on the last window; ``None`` = it could not be done.
        quarantined: Digests of placements that were taken back.
        settings: Limits.
    """
    total = sum(row.replicas for row in candidate.replicas)
    if current is None:
        if total == 0:
            return Judged(StepVerdict.KEEP, "it places no replica at all")
        return Judged(StepVerdict.PUBLISH, "the first plan")
    changes = plan_diff(current, candidate)
    if not changes.places and not changes.shares and _kept(current, candidate):
        return Judged(StepVerdict.RENEW, "nothing changes")
    if candidate.status is PlanStatus.KEPT_LAST and not changes.places:
        return Judged(StepVerdict.RENEW, "no better plan was found in time")
    if total == 0 and candidate.status is PlanStatus.INFEASIBLE:
        return Judged(StepVerdict.KEEP, "it breaks promises and places no replica at all")
    if changes.places and placement_digest(candidate) in quarantined:
        return Judged(StepVerdict.KEEP, "the same placement was taken back lately")
    if changes.places and shadow is not None and shadow.loss > settings.shadow_loss:
        return Judged(StepVerdict.KEEP, f"on the last window it loses {shadow.loss:.1%} of the simulated Goodput")
    moved = sum(abs(place.replicas_after - place.replicas_before) for place in changes.places)
    return Judged(StepVerdict.PUBLISH, f"{moved} replicas and {len(changes.shares)} shares change")


def _kept(current: PlanDocument, candidate: PlanDocument) -> bool:
    """Whether the capacity split and the ramps between versions stay as they are."""
    return current.splits == candidate.splits and current.ramps == candidate.ramps


def watch_after(
    version: int, plan: PlanDocument, published_s: float, baseline: Baseline | None, settings: LoopSettings
) -> Watch | None:
    """The watch of a plan that was published; ``None`` = nothing to compare with, or watching is off."""
    if baseline is None or settings.watch_s <= 0:
        return None
    from_s = published_s + settings.settle_s
    return Watch(version, placement_digest(plan), baseline, from_s, from_s + settings.watch_s)


def judge_look(watch: Watch, level: ServiceLevel | None, now_s: float, settings: LoopSettings) -> Looked:
    """Whether a plan under watch stays in force.

    A look without data, or with too few requests, says nothing: it is no fall and ends no row of them.
    """
    over = now_s >= watch.until_s
    at_end = WatchVerdict.PASSED if over else WatchVerdict.GO_ON
    if level is None:
        return Looked(at_end, "no data on Goodput", watch.falls)
    if level.since_s < watch.from_s:
        return Looked(at_end, "the window began before the plan had settled", watch.falls)
    if level.requests < settings.least_requests:
        return Looked(at_end, f"{level.requests:g} requests are too few to judge by", watch.falls)
    before, now = watch.baseline.good_share, level.good_share
    seen = f"Goodput is {now:.1%} of the offered tokens, {before:.1%} before the plan"
    if now >= before * (1.0 - settings.fall_limit):
        return Looked(at_end, seen, 0)
    allowed = watch.baseline.offered_tokens_per_s * (1.0 + settings.rise_limit)
    if level.offered_tokens_per_s > allowed:
        return Looked(at_end, f"{seen}, but demand rose beyond what it was planned for", 0)
    falls = watch.falls + 1
    if falls < settings.falls:
        return Looked(WatchVerdict.GO_ON, f"{seen}: fall {falls} of {settings.falls}", falls)
    return Looked(WatchVerdict.ROLL_BACK, seen, falls)
