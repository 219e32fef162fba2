"""Takes in what became of dispatches: first tokens and ends, each exactly once, and leases that run out."""

from __future__ import annotations

import enum
import math
from dataclasses import replace

from data.outcome_sink import RecordSink
from data.types import Outcome, Status
from router.core import RouterCore
from router.log_rows import outcome_row
from router.pb.v1 import router_pb2 as pb
from router.serving.attempt_end import (
    EXPIRED,
    LEFT,
    NEVER_SENT,
    STOPPED,
    AttemptEnd,
    InvalidEventError,
    read_end,
    seconds,
)
from router.serving.class_lengths import ClassLengths
from router.serving.live_listener import LiveListener
from router.serving.open_leases import GONE, OpenLease, OpenLeases


class ReportResult(enum.Enum):
    """What became of a report."""

    ACCEPTED = "accepted"
    UNKNOWN_LEASE = "unknown_lease"
    INVALID = "invalid"


class LeaseReports:
    """Closes leases and tells policy, log and listener.

    Args:
        core: Accounting and policy.
        leases: Open dispatches.
        sink: The decision and outcome log; ``None`` = none.
        listener: Told of everything.
        lengths: Learns output lengths.
    """

    def __init__(
        self,
        core: RouterCore,
        leases: OpenLeases,
        sink: RecordSink | None,
        listener: LiveListener,
        lengths: ClassLengths,
    ) -> None:
        self.lengths = lengths
        self._core = core
        self._leases = leases
        self._sink = sink
        self._listener = listener

    def take(self, event: pb.ReportEvent, owner: str, now_s: float) -> ReportResult:
        """One event of the client ``owner``; another client's leases are unknown to it."""
        lease = self._leases.get(event.lease_id)
        if lease is None or lease.owner != owner:
            self._listener.unknown_lease()
            return ReportResult.UNKNOWN_LEASE
        try:
            end = read_end(event, not math.isnan(lease.first_token_s))
            told_s = seconds("first_token.ttft_s", event.first_token, "ttft_s") if end is None else end.ttft_s
        except InvalidEventError:
            return ReportResult.INVALID
        if end is None:
            self._first_token(lease, told_s, now_s)
            self._leases.renew(lease, now_s)
            return ReportResult.ACCEPTED
        if math.isnan(lease.first_token_s) and (end.output_tokens > 0 or not math.isnan(told_s)):
            # Nobody told of the first token when it came. Without a time, its moment stays unknown.
            self._late_first_token(lease, told_s, now_s)
        self._end(lease, end, now_s)
        return ReportResult.ACCEPTED

    def expire(self, now_s: float) -> int:
        """End the leases whose time is over; gives how many."""
        expired = self._leases.expired(now_s)
        for lease in expired:
            self._end(lease, AttemptEnd(Status.FAILED, EXPIRED, 0), now_s)
        return len(expired)

    def give_up_all(self, now_s: float) -> int:
        """End all leases because the router stops; gives how many."""
        leases = list(self._leases)
        for lease in leases:
            self._end(lease, AttemptEnd(Status.FAILED, STOPPED, 0), now_s)
        return len(leases)

    def withdraw(self, wire_id: int, now_s: float) -> None:
        """End a lease whose caller had gone before it was told of it."""
        lease = self._leases.get(wire_id)
        if lease is not None:
            self._end(lease, AttemptEnd(Status.CANCELLED, NEVER_SENT, 0), now_s)

    def endpoint_left(self, row: int, now_s: float) -> None:
        """The endpoint of a row goes: its leases stay open for their callers' reports, but weigh on no row."""
        for lease in self._leases.at(row):
            outcome = attempt_outcome(lease, AttemptEnd(Status.FAILED, LEFT, 0), now_s)
            self._core.policy.finished(lease.request, outcome)
            if self._core.sites is not None:
                # No fault of the site: an engine was taken away or restarted.
                self._core.sites.finished(lease.request, replace(outcome, status=Status.REJECTED))
            lease.endpoint = GONE

    def unobserved(self, lease: OpenLease, now_s: float) -> None:
        """Nothing will be told of this dispatch before its end: no site may count as silent for its sake."""
        if self._core.sites is not None:
            outcome = attempt_outcome(lease, AttemptEnd(Status.REJECTED, "", 0), now_s)
            self._core.sites.finished(lease.request, outcome)

    def _first_token(self, lease: OpenLease, told_s: float, now_s: float) -> None:
        if not math.isnan(lease.first_token_s):
            return
        passed_s = now_s - lease.decided_s if math.isnan(told_s) else told_s
        lease.first_token_s = now_s
        lease.ttft_s = max(passed_s - lease.rtt_s, 0.0)
        self._count_first_token(lease, now_s)

    def _late_first_token(self, lease: OpenLease, told_s: float, now_s: float) -> None:
        lease.first_token_s = now_s
        lease.ttft_s = max(told_s - lease.rtt_s, 0.0) if not math.isnan(told_s) else math.nan
        if math.isnan(told_s):
            self.unobserved(lease, now_s)  # no measured time, so nothing that a site could be judged by
        self._count_first_token(lease, now_s)

    def _count_first_token(self, lease: OpenLease, now_s: float) -> None:
        if lease.endpoint == GONE:
            self._core.book.first_token(lease.lease, now_s)
        else:
            self._core.first_token(lease.request, lease.endpoint, lease.lease, now_s, lease.ttft_s)
        self._listener.first_token(lease, now_s)

    def _end(self, lease: OpenLease, end: AttemptEnd, now_s: float) -> None:
        self._leases.remove(lease)
        outcome = attempt_outcome(lease, end, now_s)
        if lease.endpoint == GONE:
            self._core.book.close(lease.lease, now_s, end.status)
        else:
            self._core.finished(lease.request, lease.lease, outcome)
        if end.status is Status.COMPLETED:
            self.lengths.learn(lease.request.workload_class, end.output_tokens)
        if self._sink is not None:
            # The log's times count from the decision to the engine's answer, without queue and network.
            e2e_s = max(outcome.e2e_s - lease.queued_s - lease.rtt_s, 0.0)
            self._sink.outcome(outcome_row(outcome, lease.ttft_s, e2e_s))
        self._listener.ended(lease, end, now_s)


def attempt_outcome(lease: OpenLease, end: AttemptEnd, now_s: float) -> Outcome:
    """The outcome of an attempt; its times count from the first arrival of the request, the queue included."""
    request = lease.request
    e2e_s = now_s - lease.decided_s if math.isnan(end.e2e_s) else end.e2e_s
    return Outcome(
        request_id=request.request_id,
        attempt=request.attempt,
        status=end.status,
        workload_class=request.workload_class,
        tenant=request.tenant,
        endpoint=lease.endpoint,
        arrival_s=lease.decided_s - lease.queued_s,
        finished_s=now_s,
        ttft_s=lease.ttft_s + lease.rtt_s + lease.queued_s,
        e2e_s=e2e_s + lease.queued_s,
        input_tokens=request.input_tokens,
        cached_tokens=end.cached_tokens or 0,
        output_tokens=end.output_tokens,
        preemptions=end.preemptions,
        reason=end.reason,
    )
