"""When requests that failed came for the first time, so that a retry keeps its place in time."""

from __future__ import annotations

from collections import OrderedDict

MOST = 10_000
"""Requests that are remembered; the oldest are forgotten first."""
KEPT_S = 600.0
"""A retry that comes later than this is a new request."""


class FirstArrivals:
    """First arrivals by request number, bounded in number and age.

    Only an attempt that was sent to an engine and failed is remembered: whoever was refused was told to come
    again, and starts afresh.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[int, tuple[float, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def failed(self, request_id: int, arrived_s: float, now_s: float) -> None:
        """An attempt of a request that arrived at ``arrived_s`` has failed."""
        self._known[request_id] = arrived_s, now_s
        self._known.move_to_end(request_id)
        if len(self._known) > MOST:
            self._known.popitem(last=False)

    def of(self, request_id: int, attempt: int, now_s: float) -> float:
        """First arrival of a request that comes now; ``now_s`` if it is new."""
        if not attempt:
            return now_s
        arrived_s, failed_s = self._known.pop(request_id, (now_s, now_s))
        return arrived_s if now_s - failed_s <= KEPT_S else now_s
