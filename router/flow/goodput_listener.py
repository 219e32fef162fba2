"""Keeps the books of Goodput of a running router, from what its callers report.

Whether a failed attempt is tried again is known only when the retry comes. So a failure waits: it is booked as
``repeated`` when its request comes again, and as ``failed`` when it has not come within ``RETRY_S``.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from data.types import Outcome, RefusalReason, Slo, Status
from router.goodput import GoodputBook, Key
from router.serving.attempt_end import AttemptEnd
from router.serving.lease_reports import attempt_outcome
from router.serving.open_leases import OpenLease

RETRY_S = 120.0
"""A retry that comes later than this counts as a new request."""
MOST_OPEN = 10_000
"""Failures that may wait for their retry; beyond, the oldest are booked as failed."""


NO_TIER = "standard"
"""Tier of requests whose tenant the fleet file does not name."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed attempt that may be tried again."""

    key: Key
    outcome: Outcome
    slo: Slo


class GoodputListener:
    """A ``LiveListener`` that writes into a ``GoodputBook``.

    Args:
        tier_of: Tier of a tenant.

    Attributes:
        book: The books.
    """

    def __init__(self, tier_of: Callable[[str], str]) -> None:
        self.book = GoodputBook()
        self._tier_of = tier_of
        self._failures: OrderedDict[int, Failure] = OrderedDict()

    def placed(self, lease: OpenLease, site: str, degraded: tuple[str, ...], seconds: float) -> None:  # noqa: ARG002
        """A new request, or the retry of one that has failed."""
        request = lease.request
        self._settle(lease.decided_s)
        failure = self._failures.pop(request.request_id, None)
        if failure is None:
            self.book.offered(self._key(lease))
        else:
            self._book(failure, again=True)

    def refused(self, reason: RefusalReason) -> None:
        """Nothing was computed."""

    def first_token(self, lease: OpenLease, now_s: float) -> None:
        """Nothing has ended."""

    def ended(self, lease: OpenLease, end: AttemptEnd, now_s: float) -> None:
        """An attempt ended."""
        self._settle(now_s)
        ended = Failure(self._key(lease), attempt_outcome(lease, end, now_s), lease.request.slo)
        if end.status is not Status.FAILED:
            self._book(ended, again=False)
            return
        request_id = lease.request.request_id
        before = self._failures.pop(request_id, None)
        if before is not None:
            self._book(before, again=False)
        self._failures[request_id] = ended
        if len(self._failures) > MOST_OPEN:
            self._book(self._failures.popitem(last=False)[1], again=False)

    def unknown_lease(self) -> None:
        """Belongs to nothing."""

    def _settle(self, now_s: float) -> None:
        """Book the failures whose retry has not come in time."""
        while self._failures:
            request_id, failure = next(iter(self._failures.items()))
            if failure.outcome.finished_s > now_s - RETRY_S:
                return
            del self._failures[request_id]
            self._book(failure, again=False)

    def _book(self, ended: Failure, again: bool) -> None:
        self.book.ended(ended.key, ended.outcome, ended.slo, again)

    def _key(self, lease: OpenLease) -> Key:
        request = lease.request
        return request.workload_class, request.tenant, self._tier_of(request.tenant)
