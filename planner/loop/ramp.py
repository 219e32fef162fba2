"""Moving traffic from one version of a model to the next, in steps, each behind a gate.

A ramp begins with a share of 0: the plan makes room for the first step beside all that the old version has, and
only then is traffic moved. At each step the new version is compared with the old one; it goes on when every gate
has held for ``hold_s`` on enough requests, and all traffic goes back at once when one fails. Until the last gate
has passed the old version keeps every replica, so the way back needs neither a load nor a solve.

Values in, verdicts out: no clock, no file. The state stands in the plan (``data.plan.VersionRamp``), so that it is
published, renewed and taken back together with the replicas that it needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path

from data.errors import InputError
from data.fleet.types import Fleet
from data.plan import PlanDocument, VersionRamp
from data.strict.document import read_document
from data.strict.faults import Fault
from data.strict.rules import NAME, Rule, RuleBook
from planner.demand import DemandRow, DemandTable
from planner.digests import digest
from planner.plan_store.store import utc_text


@dataclass(frozen=True, slots=True)
class RampSpec:
    """What an operator wants.

    Attributes:
        model: Name of the model, without a version.
        old, new: Versions: all traffic is at ``old`` and shall be at ``new``.
        steps: Shares of traffic at ``new``, rising; the last is 1.
        hold_s: A step lasts so long at least (1 to 2,678,400).
        least_requests: ... and until the new version has ended so many requests in it (1 or more).
        ttft_p95_ratio: P95 of the TTFT at ``new`` over that at ``old``, at most (above 0 to 100).
        error_rise: Share of failed requests at ``new`` less that at ``old``, at most (0 to 1).
        good_fall: Share of offered tokens that is Goodput at ``old`` less that at ``new``, at most (0 to 1).
    """

    model: str
    old: str
    new: str
    steps: tuple[float, ...] = (0.1, 0.5, 1.0)
    hold_s: float = 900.0
    least_requests: float = 100.0
    ttft_p95_ratio: float = 1.2
    error_rise: float = 0.01
    good_fall: float = 0.05

    @property
    def old_key(self) -> str:
        """``name@version`` of the old version."""
        return f"{self.model}@{self.old}"

    @property
    def new_key(self) -> str:
        """``name@version`` of the new version."""
        return f"{self.model}@{self.new}"

    @property
    def ramp_id(self) -> str:
        """Digest of all of it: another ramp begins anew."""
        return f"ramp-{digest(str(self))}"

    def after(self, share: float) -> float:
        """The step after this share; 1 after the last."""
        return next((step for step in self.steps if step > share), 1.0)


@dataclass(frozen=True, slots=True)
class VersionService:
    """How one version served in a window.

    Attributes:
        requests: Requests that ended.
        ttft_p95_s: 95th percentile of the TTFT of completed ones; NaN without any.
        error_share: Failed ones among them.
        good_share: Goodput over offered tokens.
    """

    requests: float
    ttft_p95_s: float
    error_share: float
    good_share: float


@dataclass(frozen=True, slots=True)
class RampVerdict:
    """The ramp as it shall be from now on, and why; ``moved`` = it is another share or state than before."""

    ramp: VersionRamp
    moved: bool
    reason: str


BOOK = RuleBook(
    annotations=True,
    rules={
        RampSpec: {
            "model": NAME,
            "old": NAME,
            "new": NAME,
            "steps": Rule(minimum=0, above=True, maximum=1),
            "hold_s": Rule(minimum=1, maximum=2_678_400),
            "least_requests": Rule(minimum=1),
            "ttft_p95_ratio": Rule(minimum=0, above=True, maximum=100),
            "error_rise": Rule(minimum=0, maximum=1),
            "good_fall": Rule(minimum=0, maximum=1),
        }
    },
)


def load_ramp(path: Path, fleet: Fleet) -> RampSpec:
    """Read a ramp file.

    Raises:
        InputError: It cannot be read, or the fleet does not have both versions.
        DocumentError: It is wrong; ``problems`` holds every fault.
    """
    spec = read_document(path, RampSpec, BOOK, _faults)
    known = sorted(model.key for model in fleet.models)
    for field, key in (("old", spec.old_key), ("new", spec.new_key)):
        if key not in known:
            raise InputError(
                "not in the fleet", source=str(path), field=field, value=key, expected=", ".join(known)
            )
    return spec


def _faults(spec: RampSpec) -> list[Fault]:
    faults = []
    if not spec.steps or spec.steps[-1] != 1.0 or any(later <= step for step, later in pairwise(spec.steps)):
        faults.append(
            Fault(("steps",), "not rising to 1", value=list(spec.steps), expected="such as [0.1, 0.5, 1]")
        )
    if spec.old == spec.new:
        faults.append(Fault(("new",), "the same version twice", value=spec.new, expected="another one"))
    return faults


def ramp_of(plan: PlanDocument | None, spec: RampSpec, now_s: float) -> VersionRamp:
    """Where the ramp stands in the plan in force; a new one where that plan has another or none."""
    for ramp in () if plan is None else plan.ramps:
        if ramp.ramp_id == spec.ramp_id:
            return ramp
    return VersionRamp(
        spec.model,
        spec.old_key,
        spec.new_key,
        0.0,
        utc_text(now_s),
        spec.ramp_id,
        reason="room for the first step",
    )


def ramped_demand(demand: DemandTable, spec: RampSpec, ramp: VersionRamp) -> DemandTable:
    """Demand to plan with while a ramp is on.

    Ramping: the old version keeps what runs and is sized for all traffic; the new one is sized for the step that
    comes next, so that its replicas stand before the traffic comes. Failed: all traffic is the old version's.
    Done: as it is.
    """
    if ramp.state == "done":
        return demand
    ahead = spec.after(ramp.share) if ramp.state == "ramping" else 0.0
    kept = [row for row in demand.rows if row.model not in (ramp.old, ramp.new)]
    both: dict[tuple[str, str, str], list[DemandRow]] = {}
    for row in demand.rows:
        if row.model in (ramp.old, ramp.new):
            both.setdefault((row.workload_class, row.tenant, row.origin), []).append(row)
    for rows in both.values():
        total = tuple(sum(levels) for levels in zip(*(row.quantiles for row in rows), strict=True))
        kept.append(replace(rows[0], model=ramp.old, quantiles=total))
        if ahead:
            kept.append(replace(rows[0], model=ramp.new, quantiles=tuple(ahead * level for level in total)))
    missing = set(demand.missing)
    if ramp.state == "ramping":
        missing |= {(ramp.old, *place) for place in both}
    return replace(demand, rows=tuple(sorted(kept, key=lambda row: row.key)), missing=tuple(sorted(missing)))


def judge_ramp(
    spec: RampSpec,
    ramp: VersionRamp,
    old: VersionService | None,
    new: VersionService | None,
    now_s: float,
    settle_s: float,
) -> RampVerdict:
    """Whether the next step may be taken, this one goes on, or all goes back.

    Args:
        spec, ramp: What is wanted, and where it stands.
        old, new: Service of both versions since the step began; ``None`` = nobody knows.
        now_s: Now.
        settle_s: Time that replicas get to load before the first traffic comes.
    """
    if ramp.state != "ramping":
        return RampVerdict(ramp, False, ramp.reason)
    lasted_s = now_s - datetime.fromisoformat(ramp.since).timestamp()
    if ramp.share == 0.0:
        if lasted_s < settle_s:
            return RampVerdict(ramp, False, "replicas of the new version get time to load")
        return _moved(ramp, spec.after(0.0), "ramping", "the new version had time to load", now_s)
    if old is None or new is None or min(old.requests, new.requests) < spec.least_requests:
        return RampVerdict(ramp, False, "too few requests to judge the new version by")
    failed = _failed_gate(spec, old, new)
    if failed:
        return _moved(ramp, 0.0, "failed", f"at {ramp.share:.0%} of the traffic {failed}", now_s)
    if lasted_s < spec.hold_s:
        return RampVerdict(ramp, False, "every gate holds; the step is not over")
    if ramp.share >= 1.0:
        return _moved(ramp, 1.0, "done", "the last gate has passed", now_s)
    return _moved(ramp, spec.after(ramp.share), "ramping", f"every gate held at {ramp.share:.0%}", now_s)


def _failed_gate(spec: RampSpec, old: VersionService, new: VersionService) -> str:
    """Gate, value and limit of the first gate that does not hold; "" = all do."""
    limit_s = spec.ttft_p95_ratio * old.ttft_p95_s
    if new.ttft_p95_s > limit_s:
        return (
            f"the P95 of the TTFT is {new.ttft_p95_s:.3g} s; limit {limit_s:.3g} s ({spec.ttft_p95_ratio:g} x old)"
        )
    if new.error_share > old.error_share + spec.error_rise:
        limit = old.error_share + spec.error_rise
        return f"the share of failed requests is {new.error_share:.1%}; limit {limit:.1%}"
    if new.good_share < old.good_share - spec.good_fall:
        return (
            f"Goodput is {new.good_share:.1%} of the offered tokens; limit {old.good_share - spec.good_fall:.1%}"
        )
    return ""


def _moved(ramp: VersionRamp, share: float, state: str, reason: str, now_s: float) -> RampVerdict:
    changed = replace(ramp, share=share, state=state, reason=reason, since=utc_text(now_s))  # type: ignore[arg-type]
    return RampVerdict(changed, True, reason)


def with_ramp(plan: PlanDocument, ramp: VersionRamp) -> PlanDocument:
    """The plan with this ramp in place of another one of the same model."""
    others = tuple(one for one in plan.ramps if one.model != ramp.model)
    return replace(plan, ramps=(*others, ramp))


def before_ramp(plans: Sequence[PlanDocument], ramp: VersionRamp) -> PlanDocument | None:
    """The first of these plans, newest first, that does not have the ramp; ``None`` = all have it."""
    return next((plan for plan in plans if all(one.ramp_id != ramp.ramp_id for one in plan.ramps)), None)
