"""Answers on the wire, built from what the core decided."""

from __future__ import annotations

import math

from data.types import RefusalReason
from router.pb.v1 import router_pb2 as pb
from router.pilot_decision import LastDecision
from router.serving.open_leases import OpenLease
from router.slomax.refusals import NO_ENDPOINT_RETRY_S, STATUS, retry_hint_s

MESSAGES = {
    RefusalReason.NO_ENDPOINT: "no replica of this model version is ready",
    RefusalReason.NO_PERMITTED_SITE: "replicas are up, but none where this tenant may go",
    RefusalReason.CONTEXT_TOO_LONG: "prompt and output budget exceed every replica's context limit or KV memory",
    RefusalReason.ALL_UNHEALTHY: "replicas are up, but none is healthy",
    RefusalReason.OVERLOADED: "every replica stands at its load ceiling",
    RefusalReason.QUEUE_FULL: "the queue of this model and class is full",
    RefusalReason.EXPIRED: "the time in the queue is over",
    RefusalReason.BUDGET_EXHAUSTED: "the tenant's budget is used up",
    RefusalReason.SHUTTING_DOWN: "this router is shutting down; ask another one",
    RefusalReason.UNKNOWN_MODEL: "the fleet file names no such model version",
    RefusalReason.UNKNOWN_TENANT: "the fleet file names no such tenant",
    RefusalReason.UNKNOWN_CLASS: "the fleet file names no such class",
    RefusalReason.INVALID_REQUEST: "the request itself is wrong",
}
"""What each reason means, for people; callers go by the reason."""


def refusal(
    reason: RefusalReason, draw: float, message: str = "", after_s: float = NO_ENDPOINT_RETRY_S
) -> pb.Refusal:
    """A refusal; where another try may help it says when.

    Args:
        reason: Why.
        draw: In [0, 1): spreads the hints of requests that are refused together.
        message: What is told instead of the general meaning.
        after_s: When another try may help, seconds.
    """
    status = STATUS[reason]
    answer = pb.Refusal(reason=reason.value, http_status=status, message=message or MESSAGES[reason])
    if status in (429, 503):
        answer.retry_after_s = retry_hint_s(after_s, draw)
    return answer


def placement(
    lease: OpenLease, address: str, site: str, cache_salt: str, last: LastDecision | None
) -> pb.Placement:
    """Where the request goes; without a prediction the quantiles stay absent."""
    answer = pb.Placement(
        endpoint_id=lease.endpoint_id,
        address=address,
        site=site,
        lease_id=lease.wire_id,
        lease_s=lease.lease_s,
        predicted_hit_tokens=round(lease.hit_tokens),
        cache_salt=cache_salt,
    )
    if last is not None:
        _quantiles(answer.ttft, last.ttft_p50_s, last.ttft_p90_s)
        _quantiles(answer.tpot, last.tpot_p50_s, last.tpot_p90_s)
    return answer


def _quantiles(field: pb.Quantiles, p50_s: float, p90_s: float | None) -> None:
    if math.isfinite(p50_s):
        field.p50_s = p50_s
        if p90_s is not None:
            field.p90_s = p90_s
