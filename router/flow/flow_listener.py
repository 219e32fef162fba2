"""Tells a flow control what becomes of the requests that it let through."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from data.types import RefusalReason, Status
from router.flow.first_arrivals import FirstArrivals
from router.flow.silence import SilenceWatch
from router.serving.attempt_end import EXPIRED, NEVER_SENT, AttemptEnd
from router.serving.lease_reports import attempt_outcome
from router.serving.open_leases import OpenLease
from router.slomax.time_left import with_time_left
from router.slomax.types import FlowControl


class FlowListener:
    """A ``LiveListener`` for one flow control.

    Args:
        flow: The flow control.
        arrivals: Remembers the first arrival of what failed.
        opened: Told the time when somebody who waits may be able to go.
        silence: Told of each report of a caller.
    """

    def __init__(
        self,
        flow: FlowControl,
        arrivals: FirstArrivals,
        opened: Callable[[float], None],
        silence: SilenceWatch,
    ) -> None:
        self._silence = silence
        self._flow = flow
        self._arrivals = arrivals
        self._opened = opened

    def placed(self, lease: OpenLease, site: str, degraded: tuple[str, ...], seconds: float) -> None:  # noqa: ARG002
        """Charge the gate."""
        self._flow.dispatched(lease.request, lease.endpoint, lease.decided_s)

    def refused(self, reason: RefusalReason) -> None:
        """The flow control knows."""

    def first_token(self, lease: OpenLease, now_s: float) -> None:
        """A prefill is done; others may go."""
        self._silence.heard(now_s)
        self._flow.first_token(lease.request, lease.endpoint, now_s)
        self._opened(now_s)

    def ended(self, lease: OpenLease, end: AttemptEnd, now_s: float) -> None:
        """An attempt ended: its budget is settled with what it used."""
        if end.reason != EXPIRED:
            self._silence.heard(now_s)
        outcome = attempt_outcome(lease, end, now_s)
        if end.reason == NEVER_SENT:
            outcome = replace(outcome, input_tokens=0)
        elif end.status is Status.FAILED:
            self._arrivals.failed(lease.request.request_id, outcome.arrival_s, now_s)
        # As it was sent: with what its wait had left of the targets.
        self._flow.finished(with_time_left(lease.request, lease.queued_s), outcome)
        self._opened(now_s)

    def unknown_lease(self) -> None:
        """Says nothing of any queue."""
