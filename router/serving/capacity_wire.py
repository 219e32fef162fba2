"""What sites can do, on the wire: ages instead of times of day, so that no two clocks are ever compared."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from router.pb.v1 import router_pb2 as pb
from router.sites.types import ReadyCapacity

MOST_AGE_S = 86_400.0
"""What is older, or was never seen, is told as this old."""


class Limits(NamedTuple):
    """Largest prompts that a site takes for one model, tokens."""

    context_tokens: float
    kv_tokens: float


NO_LIMITS = Limits(math.inf, math.inf)


def capacity_report(
    capacities: Iterable[ReadyCapacity], limits: Mapping[tuple[str, str], Limits], now_s: float
) -> pb.CapacityReport:
    """A report of ``capacities`` as of ``now_s``; ``limits`` by site and model."""
    return pb.CapacityReport(
        sites=[_entry(one, limits.get((one.site, one.model), NO_LIMITS), now_s) for one in capacities]
    )


def read_capacity(
    report: pb.CapacityReport, now_s: float
) -> tuple[list[ReadyCapacity], dict[tuple[str, str], Limits]]:
    """What a report says, stamped with the receiver's clock; entries that make no sense are left out."""
    found, limits = [], {}
    for entry in report.sites:
        if not _sound(entry):
            continue
        found.append(
            ReadyCapacity(
                site=entry.site,
                model=entry.model,
                ready=entry.ready,
                idle=min(entry.idle, entry.ready),
                free_slots=entry.free_slots,
                load=entry.load,
                queue_s=entry.queue_s,
                fixed_s=entry.fixed_s,
                prefill_s_per_token=entry.prefill_s_per_token,
                prefill_s_per_token2=entry.prefill_s_per_token2,
                tpot_s=entry.tpot_s,
                busy=entry.busy,
                at_s=now_s - entry.age_s,
                sequence=report.sequence,
                incarnation=report.lease_base,
            )
        )
        limits[entry.site, entry.model] = Limits(
            entry.context_limit_tokens or math.inf, entry.kv_capacity_tokens or math.inf
        )
    return found, limits


_NUMBERS = (
    "free_slots",
    "load",
    "queue_s",
    "fixed_s",
    "prefill_s_per_token",
    "prefill_s_per_token2",
    "tpot_s",
    "busy",
    "age_s",
)


def _sound(entry: pb.SiteCapacity) -> bool:
    """A site's numbers go into costs: none may be negative, infinite or NaN."""
    return bool(entry.site and entry.model) and all(0.0 <= getattr(entry, name) < math.inf for name in _NUMBERS)


def _entry(one: ReadyCapacity, limits: Limits, now_s: float) -> pb.SiteCapacity:
    age_s = now_s - one.at_s
    return pb.SiteCapacity(
        site=one.site,
        model=one.model,
        ready=one.ready,
        idle=one.idle,
        free_slots=_told(one.free_slots),
        load=_told(one.load),
        queue_s=_told(one.queue_s),
        fixed_s=_told(one.fixed_s),
        prefill_s_per_token=_told(one.prefill_s_per_token),
        prefill_s_per_token2=_told(one.prefill_s_per_token2),
        tpot_s=_told(one.tpot_s),
        busy=_told(one.busy),
        age_s=min(max(age_s, 0.0), MOST_AGE_S) if not math.isnan(age_s) else MOST_AGE_S,
        context_limit_tokens=0 if math.isinf(limits.context_tokens) else int(limits.context_tokens),
        kv_capacity_tokens=0 if math.isinf(limits.kv_tokens) else int(limits.kv_tokens),
    )


def _told(value: float) -> float:
    return min(max(value, 0.0), 1e9) if not math.isnan(value) else 0.0
