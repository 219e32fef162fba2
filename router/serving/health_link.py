"""Tells the health of endpoints what becomes of requests."""

from __future__ import annotations

import math
from statistics import NormalDist

from data.types import RefusalReason, Status
from router.feeds.breaker import Ending
from router.feeds.health import HealthBook
from router.serving.attempt_end import (
    BUSY,
    CLIENT_ERROR,
    CLIENT_TIMEOUT,
    EXPIRED,
    LEFT,
    NEVER_SENT,
    STOPPED,
    TIMEOUT,
    AttemptEnd,
)
from router.serving.first_token_tellers import FirstTokenTellers
from router.serving.open_leases import GONE, OpenLease

_Z90, _Z99 = NormalDist().inv_cdf(0.9), NormalDist().inv_cdf(0.99)
_BY_REASON = {
    BUSY: Ending.THROTTLED,
    CLIENT_ERROR: Ending.CLIENT_ERROR,
    TIMEOUT: Ending.TIMEOUT,
    CLIENT_TIMEOUT: Ending.TIMEOUT,
    EXPIRED: Ending.UNTOLD,
    LEFT: Ending.UNTOLD,
    STOPPED: Ending.UNTOLD,
    NEVER_SENT: Ending.CLIENT_ERROR,  # the endpoint never heard of it
}


class HealthLink:
    """A listener that feeds a ``HealthBook``.

    Of a client that has never told of a first token the router hears nothing before the end of an answer, so no
    endpoint is silent for its sake until a whole answer should have come.

    Args:
        health: The book.
        tellers: Callers that tell of first tokens; kept here, for others to read.
    """

    def __init__(self, health: HealthBook, tellers: FirstTokenTellers | None = None) -> None:
        self._health = health
        self._tellers = tellers if tellers is not None else FirstTokenTellers()

    def placed(self, lease: OpenLease, site: str, degraded: tuple[str, ...], seconds: float) -> None:  # noqa: ARG002
        """A request is under way to its endpoint."""
        expected_s = p99_s(lease) + lease.rtt_s
        if lease.owner not in self._tellers:
            answer_s = expected_s + lease.predicted[1] * lease.request.output_budget
            expected_s = math.inf if math.isnan(answer_s) else answer_s
        self._health.dispatched(lease.wire_id, lease.endpoint, lease.decided_s, expected_s)

    def refused(self, reason: RefusalReason) -> None:
        """Says nothing of any endpoint."""

    def first_token(self, lease: OpenLease, now_s: float) -> None:
        """The endpoint lives."""
        self._tellers.told(lease.owner)
        self._health.first_token(lease.wire_id, now_s)

    def ended(self, lease: OpenLease, end: AttemptEnd, now_s: float) -> None:
        """How the attempt ended; what the endpoint can't be blamed for is no failure of it."""
        if lease.endpoint != GONE:
            self._health.finished(lease.wire_id, ending_of(end), now_s)

    def unknown_lease(self) -> None:
        """Says nothing of any endpoint."""


def ending_of(end: AttemptEnd) -> Ending:
    """What the end of an attempt means for its endpoint."""
    if end.status is Status.COMPLETED:
        return Ending.COMPLETED
    if end.reason in _BY_REASON:
        return _BY_REASON[end.reason]
    if end.status is Status.FAILED and end.reason in BLAMED:
        return Ending.SERVER_ERROR
    return Ending.CANCELLED


BLAMED = ("error_before_first_token", "error_mid_stream", "no_output")
"""Reasons that are the endpoint's own failure."""


def p99_s(lease: OpenLease) -> float:
    """Predicted 99th percentile of the TTFT, through the two predicted quantiles; NaN without them."""
    median, upper = lease.predicted[0], lease.ttft_p90_s
    if math.isnan(median) or math.isnan(upper) or median <= 0:
        return math.nan
    return float(median * (max(upper, median) / median) ** (_Z99 / _Z90))
