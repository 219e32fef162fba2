"""One request on its way through an entry router: which sites it has been handed to, and what they said."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from data.types import Outcome, RefusalReason, Status
from router.pb.v1 import router_pb2 as pb
from router.serving.open_leases import OpenLease
from router.serving.wire_request import Asked
from router.types import RouteRequest

ELSEWHERE = frozenset(
    (
        RefusalReason.NO_ENDPOINT,
        RefusalReason.ALL_UNHEALTHY,
        RefusalReason.NO_PERMITTED_SITE,
        RefusalReason.OVERLOADED,
        RefusalReason.QUEUE_FULL,
        RefusalReason.SHUTTING_DOWN,
        RefusalReason.CONTEXT_TOO_LONG,
        RefusalReason.UNKNOWN_MODEL,
    )
)
"""Refusals of one site that another one may not share. The others are about the request or its tenant."""
UNREACHED = "site_unreachable"
"""Reason of an attempt that no router of the site answered."""


@dataclass(slots=True, eq=False)
class EntryLease(OpenLease):
    """A placement that a site's router has made; ``wire_id`` is that router's lease.

    Attributes:
        site: The site.
        observed: The rule waits for what becomes of it.
    """

    site: str = ""
    observed: bool = False


@dataclass(slots=True, eq=False)
class Question:
    """One request.

    Attributes:
        asked: The message that sites are sent.
        owner: The entry's caller.
        began_s: When it came in.
        until_s: When it must be answered.
        site: Where it is now; empty = nowhere yet.
        sent_s: When it was sent there.
        rtt_s: Round trip from its origin to the site.
        tried: Sites that failed it, with the refusal of those that gave one.
    """

    asked: pb.RouteRequest
    read: Asked
    owner: str
    began_s: float
    until_s: float
    site: str = ""
    sent_s: float = math.nan
    rtt_s: float = 0.0
    tried: dict[str, pb.RouteReply | None] = field(default_factory=dict)

    @property
    def request(self) -> RouteRequest:
        """As the core decides on it."""
        return self.read.request

    def message(self, now_s: float) -> pb.RouteRequest:
        """What the next site is sent: the caller's request, with what is left of its own bound on queues."""
        if self.tried and self.asked.queue_ttl_s > 0:
            again = pb.RouteRequest()
            again.CopyFrom(self.asked)
            again.queue_ttl_s = max(self.asked.queue_ttl_s - (now_s - self.began_s), 0.001)
            return again
        return self.asked

    def ended(self, status: Status, reason: str, now_s: float) -> Outcome:
        """The outcome of an attempt that led to no placement."""
        request = self.request
        return Outcome(
            request_id=request.request_id,
            attempt=request.attempt,
            status=status,
            workload_class=request.workload_class,
            tenant=request.tenant,
            endpoint=-1,
            arrival_s=self.sent_s,
            finished_s=now_s,
            ttft_s=math.nan,
            e2e_s=now_s - self.sent_s,
            input_tokens=request.input_tokens,
            cached_tokens=0,
            output_tokens=0,
            reason=reason,
        )

    def best_refusal(self) -> pb.RouteReply | None:
        """What to tell the caller when no site takes the request: the mildest refusal that a site gave.

        429 comes before 503: capacity exists where it was contended.
        """
        given = [reply for reply in self.tried.values() if reply is not None]
        order: Mapping[int, int] = {429: 0, 503: 1}
        return min(given, key=lambda reply: order.get(reply.refusal.http_status, 2), default=None)


def entry_lease(question: Question, reply: pb.RouteReply, now_s: float) -> EntryLease:
    """What an entry remembers of a placement."""
    placed = reply.placement
    return EntryLease(
        wire_id=placed.lease_id,
        lease=0,
        request=question.request,
        endpoint=0,
        endpoint_id=placed.endpoint_id,
        gpu_type="",
        owner=question.owner,
        decided_s=now_s,
        rtt_s=question.rtt_s,
        hit_tokens=float(placed.predicted_hit_tokens),
        lease_s=placed.lease_s,
        expires_s=now_s + placed.lease_s,
        predicted=(
            placed.ttft.p50_s if placed.HasField("ttft") else math.nan,
            placed.tpot.p50_s if placed.HasField("tpot") else math.nan,
        ),
        ttft_p90_s=placed.ttft.p90_s if placed.ttft.HasField("p90_s") else math.nan,
        queued_s=reply.queued_s,
        reply=reply,
        site=question.site,
    )
