"""Dispatches whose end has not been told: who holds them, until when, and what was predicted.

``LeaseBook`` keeps the amounts in the endpoint table; this keeps what the service needs to take a report in.
Leases of one length form a queue in order of their expiry, so expiry costs nothing while nothing expires, and a
lease that ended leaves nothing behind.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from router.types import RouteRequest

Key = tuple[int, int]
"""Number of a request and its attempt."""
GONE = -1
"""Endpoint of a lease whose endpoint has left."""


@dataclass(slots=True, eq=False)
class OpenLease:
    """One dispatch.

    Attributes:
        wire_id: Its number towards callers, unique across restarts of the router.
        lease: Its number in the lease book.
        endpoint: Row of the table, or ``GONE``.
        owner: Client that may report on it.
        rtt_s: Network round trip between caller and endpoint.
        lease_s: Time it stays without a report.
        expires_s: When it ends by itself.
        first_token_s: Clock at the first token; NaN before.
        ttft_s: From the decision to the first token at the engine; NaN before.
        predicted: Medians of TTFT and TPOT, seconds; NaN where nothing was predicted.
        ttft_p90_s: Upper quantile of the TTFT; NaN likewise.
        queued_s: Time from the first arrival of the request to the decision; targets count from that arrival.
        reply: The answer that was given, for a caller that asks the same again.
    """

    wire_id: int
    lease: int
    request: RouteRequest
    endpoint: int
    endpoint_id: str
    gpu_type: str
    owner: str
    decided_s: float
    rtt_s: float
    hit_tokens: float
    lease_s: float
    expires_s: float
    first_token_s: float = math.nan
    ttft_s: float = math.nan
    predicted: tuple[float, float] = (math.nan, math.nan)
    ttft_p90_s: float = math.nan
    queued_s: float = 0.0
    reply: Any = None


class OpenLeases:
    """All open dispatches by number, by request and by expiry.

    Args:
        base: Added to the book's numbers; a new process must use another one, at least 2**40 away.
    """

    def __init__(self, base: int) -> None:
        self.base = base
        self._by_id: dict[int, OpenLease] = {}
        self._by_key: dict[Key, OpenLease] = {}
        self._queues: dict[float, OrderedDict[int, OpenLease]] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[OpenLease]:
        return iter(list(self._by_id.values()))

    def add(self, lease: OpenLease) -> None:
        """Take in a lease whose (request, attempt) is not open."""
        self._by_id[lease.wire_id] = lease
        self._by_key[lease.request.request_id, lease.request.attempt] = lease
        self._queue(lease.lease_s)[lease.wire_id] = lease

    def get(self, wire_id: int) -> OpenLease | None:
        """The open lease of that number."""
        return self._by_id.get(wire_id)

    def of(self, request_id: int, attempt: int) -> OpenLease | None:
        """The open lease of that attempt."""
        return self._by_key.get((request_id, attempt))

    def at(self, endpoint: int) -> list[OpenLease]:
        """Open leases at one row (looks at all)."""
        return [lease for lease in self._by_id.values() if lease.endpoint == endpoint]

    def renew(self, lease: OpenLease, now_s: float) -> None:
        """A report came: the lease runs from now on."""
        lease.expires_s = now_s + lease.lease_s
        self._queue(lease.lease_s).move_to_end(lease.wire_id)

    def remove(self, lease: OpenLease) -> None:
        """It has ended."""
        del self._by_id[lease.wire_id]
        del self._by_key[lease.request.request_id, lease.request.attempt]
        queue = self._queues[lease.lease_s]
        del queue[lease.wire_id]
        if not queue:
            del self._queues[lease.lease_s]

    def expired(self, now_s: float) -> list[OpenLease]:
        """Leases whose time is over; they stay until removed."""
        found: list[OpenLease] = []
        for queue in self._queues.values():
            for lease in queue.values():
                if lease.expires_s > now_s:
                    break
                found.append(lease)
        return found

    def _queue(self, length_s: float) -> OrderedDict[int, OpenLease]:
        queue = self._queues.get(length_s)
        if queue is None:
            queue = self._queues[length_s] = OrderedDict()
        return queue
