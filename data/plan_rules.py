"""Rules of the plan document: ranges of its fields, and what must hold between them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime

from data.plan import (
    PLAN_SCHEMA_VERSION,
    Move,
    PlanDocument,
    PlannedReplicas,
    PoolSplit,
    ShadowPrice,
    TrafficShare,
    UnmetDemand,
    VersionRamp,
)
from data.strict.faults import Fault
from data.strict.rules import NAME, NOT_NEGATIVE, POSITIVE, SHARE, Rule, RuleBook

SHARE_SLACK = 1e-6
"""Shares of one commodity may exceed 1 by this much: they are rounded sums of solver output."""

_COUNT = Rule(minimum=0, maximum=1_000_000)
_TIME = Rule(
    pattern=r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d{1,6})?(Z|\+00:00)",
    text="a UTC time such as 2026-01-31T12:00:00Z",
)
_SOME_TEXT = Rule(pattern=r"[\s\S]+", text="a text that is not empty")

PLAN_BOOK = RuleBook(
    rules={
        PlanDocument: {
            "plan_id": NAME,
            "parent_id": NAME,
            "made_at": _TIME,
            "valid_from": _TIME,
            "valid_until": _TIME,
            "solve_s": NOT_NEGATIVE,
            "schema_version": Rule(minimum=PLAN_SCHEMA_VERSION, maximum=PLAN_SCHEMA_VERSION),
        },
        PlannedReplicas: {
            "site": _SOME_TEXT,
            "config": _SOME_TEXT,
            "model": _SOME_TEXT,
            "gpu_type": _SOME_TEXT,
            "gpus_per_replica": Rule(minimum=1, maximum=1024),
            "replicas": _COUNT,
            "prewarmed": _COUNT,
        },
        TrafficShare: {"model": _SOME_TEXT, "site": _SOME_TEXT, "share": SHARE},
        PoolSplit: {
            "site": _SOME_TEXT,
            "model": _SOME_TEXT,
            "replicas": _COUNT,
            "tokens_per_s": NOT_NEGATIVE,
            "tenant_quota_tokens_per_s": NOT_NEGATIVE,
            "correction": POSITIVE,
        },
        UnmetDemand: {"missing": NOT_NEGATIVE},
        VersionRamp: {
            "model": NAME,
            "old": _SOME_TEXT,
            "new": _SOME_TEXT,
            "share": SHARE,
            "since": _TIME,
            "ramp_id": NAME,
        },
        Move: {
            "site": _SOME_TEXT,
            "config": _SOME_TEXT,
            "change": Rule(minimum=-1_000_000, maximum=1_000_000),
            "lost_cache": NOT_NEGATIVE,
            "begin_s": NOT_NEGATIVE,
            "lasts_s": NOT_NEGATIVE,
        },
        ShadowPrice: {"resource": _SOME_TEXT, "site": _SOME_TEXT, "amount": Rule(minimum=0, above=True)},
    }
)
"""Rules of every class that a plan document is made of."""


def plan_faults(plan: PlanDocument) -> list[Fault]:
    """What does not fit together inside a plan whose single fields are sound."""
    return [
        *_time_faults(plan),
        *_repeated_replicas(plan),
        *_share_faults(plan),
        *_ramp_faults(plan),
        *_move_faults(plan),
    ]


def _time_faults(plan: PlanDocument) -> Iterator[Fault]:
    times: dict[str, datetime] = {}
    for name in ("made_at", "valid_from", "valid_until"):
        text = getattr(plan, name)
        try:
            times[name] = datetime.fromisoformat(text)
        except ValueError:
            yield Fault((name,), "no such time", value=text, expected=_TIME.text)
    start, end = times.get("valid_from"), times.get("valid_until")
    if start is not None and end is not None and end < start:
        yield Fault(("valid_until",), "ends before it begins", value=plan.valid_until, expected="after valid_from")


def _ramp_faults(plan: PlanDocument) -> Iterator[Fault]:
    models = [ramp.model for ramp in plan.ramps]
    for i, ramp in enumerate(plan.ramps):
        if ramp.model in models[:i]:
            yield Fault(("ramps", i, "model"), "second ramp of a model", value=ramp.model, expected="one ramp")
        for field in ("old", "new"):
            key = getattr(ramp, field)
            if not key.startswith(f"{ramp.model}@"):
                expected = f"{ramp.model}@..."
                yield Fault(("ramps", i, field), "no version of the model", value=key, expected=expected)
        if ramp.old == ramp.new:
            yield Fault(("ramps", i, "new"), "the same version twice", value=ramp.new, expected="another one")


def _repeated_replicas(plan: PlanDocument) -> Iterator[Fault]:
    seen = set()
    for i, row in enumerate(plan.replicas):
        key = (row.site, row.config)
        if key in seen:
            yield Fault(
                ("replicas", i), "second row of a site and config", value=" / ".join(key), expected="one row"
            )
        seen.add(key)


def _share_faults(plan: PlanDocument) -> Iterator[Fault]:
    total: dict[tuple[str, str, str, str], float] = defaultdict(float)
    for i, row in enumerate(plan.shares):
        commodity = (row.model, row.workload_class, row.tenant, row.origin)
        before = total[commodity]
        total[commodity] += row.share
        if total[commodity] > 1 + SHARE_SLACK >= before:
            problem = f"shares of {' / '.join(commodity)} add up to {total[commodity]:g} here"
            yield Fault(("shares", i, "share"), problem, value=row.share, expected="a sum of at most 1")


def _move_faults(plan: PlanDocument) -> Iterator[Fault]:
    for i, move in enumerate(plan.moves):
        if move.change == 0:
            yield Fault(("moves", i, "change"), "a move that changes nothing", value=0, expected="not 0")
        elif move.begin_s and len(move.begin_s) != abs(move.change):
            expected = f"{abs(move.change)}, one a replica, or none"
            yield Fault(
                ("moves", i, "begin_s"), "wrong number of times", value=len(move.begin_s), expected=expected
            )
        if list(move.begin_s) != sorted(move.begin_s):
            yield Fault(("moves", i, "begin_s"), "not in rising order", value=list(move.begin_s))
