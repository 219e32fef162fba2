"""Local accounting of work in flight: one lease a dispatch, charged at decision time, released exactly once."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from data.errors import LeaseError
from data.types import Status
from models.signals import PREFILL_LOAD_HALF_LIFE_S
from router.endpoints import EndpointTable
from router.types import RouteRequest

ORPHAN = -1
"""Endpoint of a lease whose endpoint was dropped: closing it touches no counter."""
RETENTION_S = 60.0
"""Dispatches are remembered this long for reports that are still under way; older reports are refused."""


@dataclass(slots=True)
class Lease:
    """One dispatch that has not ended. Token counts are whole numbers so that sums return to exactly zero."""

    lease_id: int
    request_id: int
    endpoint: int
    opened_s: float
    uncached_tokens: float
    total_tokens: float
    prefill_s: float
    decoding: bool = False
    closed: bool = False


class LeaseBook:
    """Owner of the table's local columns: nobody else writes them.

    A health check, a report or a registry refresh never lowers a local count; only the end of a request, the
    expiry of a leaked lease or the departure of its endpoint does.

    Args:
        table: The table whose local columns this book keeps.
    """

    def __init__(self, table: EndpointTable) -> None:
        self._table = table
        self._open: dict[int, Lease] = {}
        self._dispatches: deque[Lease] = deque()
        self._prefilling = [0] * len(table)
        self._next_id = 0
        self._last_s = float("-inf")
        self.horizon_s = float("-inf")
        """Dispatches up to this time are forgotten: a report sampled earlier cannot be reconciled any more."""

    def __len__(self) -> int:
        return len(self._open)

    def resized(self) -> None:
        """The table has grown."""
        self._prefilling += [0] * (len(self._table) - len(self._prefilling))

    def open(self, request: RouteRequest, endpoint: int, hit_tokens: float, now_s: float) -> int:
        """Charge a dispatch to ``endpoint`` and give back its lease.

        Args:
            request: What was dispatched.
            endpoint: Row number.
            hit_tokens: Predicted prefix-hit tokens; rounded, within [0, input tokens].
            now_s: The clock. A step back is taken as "no time has passed".
        """
        now_s = self._last_s = max(now_s, self._last_s)
        hit = min(max(round(hit_tokens), 0), request.input_tokens)
        uncached = request.input_tokens - hit
        output = round(min(request.expected_output_tokens, request.output_budget))
        times = self._table.specs[endpoint].times
        prefill_s = times.p1 * uncached + times.p2 * uncached * (hit + uncached / 2)
        lease = Lease(
            self._next_id,
            request.request_id,
            endpoint,
            now_s,
            uncached,
            request.input_tokens + output,
            prefill_s,
        )
        self._next_id += 1
        self._open[lease.lease_id] = lease
        self._dispatches.append(lease)
        while self._dispatches[0].opened_s < now_s - RETENTION_S:
            self.horizon_s = self._dispatches.popleft().opened_s
        table = self._table
        table.inflight[endpoint] += 1
        if not self._prefilling[endpoint]:
            table.prefill_since_s[endpoint] = now_s
        self._prefilling[endpoint] += 1
        table.waiting_prefill_s[endpoint] += prefill_s
        table.inflight_uncached_tokens[endpoint] += uncached
        table.inflight_tokens[endpoint] += lease.total_tokens
        idle_s = now_s - table.recent_prefill_at_s[endpoint]
        table.recent_prefill_s[endpoint] *= math.exp2(-max(idle_s, 0.0) / PREFILL_LOAD_HALF_LIFE_S)
        table.recent_prefill_s[endpoint] += prefill_s
        table.recent_prefill_at_s[endpoint] = now_s
        table.sent_since_report[endpoint] += 1
        table.sent_uncached_since_report[endpoint] += uncached
        return lease.lease_id

    def first_token(self, lease: int, now_s: float) -> None:
        """The prompt is done: its uncached work leaves the queue. A repeated notice changes nothing.

        Raises:
            LeaseError: If the lease is not open.
        """
        held = self._get(lease)
        if held.decoding:
            return
        held.decoding = True
        if held.endpoint == ORPHAN:
            return
        self._prefill_done(held)
        self._table.decoding[held.endpoint] += 1
        self._table.prefill_since_s[held.endpoint] = now_s

    def close(self, lease: int, now_s: float, status: Status = Status.COMPLETED) -> None:  # noqa: ARG002
        """Release everything the lease holds, whatever the status; only a completion counts as completed.

        Raises:
            LeaseError: If the lease is not open (closed before, expired, or never opened).
        """
        held = self._get(lease)
        del self._open[lease]
        held.closed = True
        if held.endpoint == ORPHAN:
            return
        table, row = self._table, held.endpoint
        table.inflight[row] -= 1
        table.inflight_tokens[row] -= held.total_tokens
        if held.decoding:
            table.decoding[row] -= 1
        else:
            self._prefill_done(held)
        if self._after_report(held):
            table.sent_since_report[row] -= 1
        if status is Status.COMPLETED:
            table.completed[row] += 1

    def expire(self, before_s: float) -> list[int]:
        """Release leases opened before ``before_s`` (leaked: nobody told how they ended); gives their ids."""
        leaked = [lease.lease_id for lease in self._open.values() if lease.opened_s < before_s]
        for lease in leaked:
            self.close(lease, before_s, Status.FAILED)
        return leaked

    def drop_endpoint(self, endpoint: int) -> None:
        """The endpoint left or came back as a new incarnation: forget its reports and local counts together.

        Its open leases become orphans: they may still be closed, once, without touching any counter.
        """
        for lease in self._open.values():
            if lease.endpoint == endpoint:
                lease.endpoint = ORPHAN
        table = self._table
        self._prefilling[endpoint] = 0
        table.incarnation[endpoint] += 1
        for missing in (
            table.reported_at_s,
            table.running,
            table.waiting,
            table.kv_use,
            table.prefill_since_s,
        ):
            missing[endpoint] = float("nan")
        for count in (
            table.inflight,
            table.inflight_uncached_tokens,
            table.waiting_prefill_s,
            table.inflight_tokens,
            table.recent_prefill_s,
            table.decoding,
            table.sent_since_report,
            table.sent_uncached_since_report,
            table.completed,
        ):
            count[endpoint] = 0.0

    def opened_after(self, sampled_at_s: float) -> Iterator[Lease]:
        """Open leases dispatched strictly after ``sampled_at_s``, newest first."""
        for lease in reversed(self._dispatches):
            if lease.opened_s <= sampled_at_s:
                return
            if not lease.closed and lease.endpoint != ORPHAN:
                yield lease

    def forget_dispatches(self, until_s: float) -> None:
        """Drop the memory of dispatches up to ``until_s``: every endpoint has reported on them."""
        while self._dispatches and self._dispatches[0].opened_s <= until_s:
            self.horizon_s = self._dispatches.popleft().opened_s

    def _get(self, lease: int) -> Lease:
        held = self._open.get(lease)
        if held is None:
            raise LeaseError(f"lease {lease} is not open: never opened, or closed or expired before")
        return held

    def _prefill_done(self, lease: Lease) -> None:
        table, row = self._table, lease.endpoint
        table.inflight_uncached_tokens[row] -= lease.uncached_tokens
        self._prefilling[row] -= 1
        if self._prefilling[row]:
            table.waiting_prefill_s[row] -= lease.prefill_s
        else:
            # Seconds are no whole numbers: nothing waiting is exactly nothing, without the rounding left over.
            table.waiting_prefill_s[row] = 0.0
        if self._after_report(lease):
            table.sent_uncached_since_report[row] -= lease.uncached_tokens

    def _after_report(self, lease: Lease) -> bool:
        # An endpoint that never reported has NaN here, and "not (x <= NaN)" is true: still counted.
        return not lease.opened_s <= self._table.reported_at_s[lease.endpoint]
