"""Requests that wait because no engine of their model is up, while one is expected within their time to live."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from data.types import RefusalReason
from router.endpoints import EndpointTable
from router.flow.waiter import Waiter
from router.serving.live import LiveRouter
from router.slomax.refusals import NO_ENDPOINT_RETRY_S, STATUS
from router.slomax.types import Refused
from router.types import RouteRequest

MOST_HELD = 10_000
"""Requests that are held at most; beyond, they are refused like those that may not wait."""
HOLDABLE = (RefusalReason.NO_ENDPOINT, RefusalReason.ALL_UNHEALTHY)
"""Reasons that time alone may remove."""


class ColdStarts:
    """When engines that are loading will be ready, from the time they were first seen to load.

    Args:
        table: The endpoints.
    """

    def __init__(self, table: EndpointTable) -> None:
        self._table = table
        self._since: dict[int, tuple[str, float]] = {}

    def look(self, now_s: float) -> None:
        """Note which endpoints are loading now."""
        table = self._table
        loading = np.flatnonzero(~table.ready & ~table.draining).tolist()
        names = {row: table.specs[row].endpoint_id for row in loading if table.specs[row].endpoint_id}
        old = self._since
        self._since = {
            row: old[row] if row in old and old[row][0] == name else (name, now_s) for row, name in names.items()
        }

    def ready_in_s(self, model: str, now_s: float) -> float:
        """Seconds until the first engine of a model should be ready (1 at least); infinite if none is loading."""
        specs = self._table.specs
        left = (
            max(specs[row].load_s - (now_s - since_s), 1.0)
            for row, (_, since_s) in self._since.items()
            if specs[row].model == model
        )
        return min(left, default=math.inf)


class HoldingBay:
    """What is held, in order of entry.

    Args:
        live: The router.
    """

    def __init__(self, live: LiveRouter) -> None:
        self._live = live
        self._cold = ColdStarts(live.core.table)
        self._items: dict[int, tuple[Waiter, float]] = {}
        self._numbers = 0

    def __len__(self) -> int:
        return len(self._items)

    def look(self, now_s: float) -> None:
        """Note which engines are loading."""
        self._cold.look(now_s)

    def hold(self, waiter: Waiter, refused: Refused, now_s: float) -> int | Refused:
        """Hold a request that no engine can take, if its class or its caller gave it enough time for that.

        Gives its ticket, below 0, or the refusal with the time when an engine should be ready.
        """
        request = waiter.request
        self._cold.look(now_s)
        ready_s = self._cold.ready_in_s(request.model, now_s)
        if refused.reason is RefusalReason.ALL_UNHEALTHY:
            ready_s = 0.0  # a breaker may close at any time
        elif math.isfinite(ready_s):
            refused = replace(refused, retry_after_s=ready_s)
        classes = self._live.state.fleet.classes
        own_s = next(kind.queue_ttl_s for kind in classes if kind.name == request.workload_class)
        allowed = own_s is not None or waiter.asked.queue_ttl_s > 0
        ttl_s = min(math.inf if own_s is None else own_s, waiter.ttl_s)
        if not allowed or ttl_s < ready_s or len(self._items) >= MOST_HELD:
            return refused
        self._numbers -= 1
        self._items[self._numbers] = waiter, waiter.asked_s + ttl_s
        return self._numbers

    def remove(self, ticket: int) -> Waiter | None:
        """Take a request out; ``None`` if it is not held."""
        found = self._items.pop(ticket, None)
        return None if found is None else found[0]

    def all(self) -> list[tuple[int, Waiter]]:
        """All that are held, with their tickets."""
        return [(ticket, waiter) for ticket, (waiter, _) in self._items.items()]

    def released(
        self, now_s: float, servable: Callable[[RouteRequest], bool]
    ) -> list[tuple[Waiter, Refused | None]]:
        """Take out those that an engine could take now, and, with a refusal, those whose time is over."""
        known: dict[tuple[str, str, str], bool] = {}
        found: list[tuple[Waiter, Refused | None]] = []
        for ticket, (waiter, expires_s) in list(self._items.items()):
            request = waiter.request
            kind = request.model, request.tenant, request.origin
            if kind not in known:
                known[kind] = servable(request)
            if known[kind] or expires_s <= now_s:
                del self._items[ticket]
                found.append((waiter, None if known[kind] else self._still_none(request, now_s)))
        return found

    def _still_none(self, request: RouteRequest, now_s: float) -> Refused:
        reason = self._live.core.refusal_reason(request)
        ready_s = self._cold.ready_in_s(request.model, now_s)
        return Refused(reason, STATUS[reason], ready_s if math.isfinite(ready_s) else NO_ENDPOINT_RETRY_S)
