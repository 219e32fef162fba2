"""What the rivals share: queues by name, time to live, cancellation, and a gate by what is in flight."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from data.fleet.types import Fleet
from data.types import IntArray, Outcome, RefusalReason
from router.slomax.classify import tightness_s
from router.slomax.context import FlowContext
from router.slomax.refusals import Refusals
from router.slomax.types import (
    Arrival,
    Dropped,
    FlowStatus,
    Queued,
    QueueStatus,
    Ready,
    Verdict,
)
from router.slomax.waiting import Waiting, WaitingHeap
from router.types import RouteRequest

LOOK_AGAIN_S = 0.25
"""While anybody waits the gate is looked at this often at least."""
MAX_TTL_S = 3600.0


class RivalBase:
    """A flow control with named queues; a rival says which queue, in which order, and what the gate lets through.

    Args:
        context: The router's view of the fleet.
        queue_requests: Most requests in one queue; one more is refused.
    """

    name = "base"

    def __init__(self, context: FlowContext, queue_requests: int) -> None:
        self.context = context
        self._bound = queue_requests
        self._know(context.fleet)
        self._heaps: dict[Any, WaitingHeap] = {}
        self._items: dict[int, tuple[Waiting, Any]] = {}
        self._expiries = WaitingHeap()
        self._refusals = Refusals(np.random.default_rng([context.seed, 0x511]))
        self._tickets = 0

    def _know(self, fleet: Fleet) -> None:
        kinds = sorted(fleet.classes, key=lambda kind: (tightness_s(kind.slo), kind.name))
        self.classes = {kind.name: kind for kind in kinds}
        self.ranks = {kind.name: rank for rank, kind in enumerate(kinds)}

    def queue_of(self, item: Waiting) -> Any:
        """Name of the queue that a request joins; sortable."""
        raise NotImplementedError

    def order(self, now_s: float) -> Iterable[Any]:
        """Names of queues in which somebody waits, in the order in which they are tried."""
        raise NotImplementedError

    def open_rows(self, item: Waiting, rows: IntArray, now_s: float) -> IntArray:
        """Those of ``rows`` that the request may be sent to now."""
        raise NotImplementedError

    def leaves(self, name: Any, item: Waiting, now_s: float) -> None:
        """A request goes to an engine."""

    def waiting_in(self) -> list[Any]:
        """Names of all queues in which somebody waits."""
        return [name for name, heap in self._heaps.items() if len(heap)]

    def first_in(self, name: Any) -> Waiting:
        """First request of such a queue."""
        item = self._heaps[name].first()
        assert item is not None
        return item

    def offer(self, arrival: Arrival, now_s: float) -> Verdict:
        """Queue, or refuse a full queue; the caller's ``next`` lets it out at once if it may go."""
        request = arrival.request
        if request.workload_class not in self.classes:
            return self._refusals.refuse(RefusalReason.UNKNOWN_CLASS)
        rows = self.context.candidates(request)
        if not len(rows):
            return self._refusals.refuse(self.context.reason(request))
        item = self._waiting(arrival, rows)
        if item.expires_s <= now_s:
            return self._refusals.refuse(RefusalReason.EXPIRED)
        heap = self._heaps.get(self.queue_of(item))
        if heap is not None and len(heap) >= self._bound:
            return self._refusals.refuse(RefusalReason.QUEUE_FULL)
        self._add(item)
        return Queued(item.ticket, 0.0)

    def cancel(self, ticket: int, now_s: float) -> bool:  # noqa: ARG002
        """Take a waiting request out at once."""
        found = self._items.get(ticket)
        if found is None:
            return False
        self._remove(found[0])
        return True

    def next(self, now_s: float) -> Ready | Dropped | None:
        """The next request to send or drop."""
        expired = self._expiries.first()
        if expired is not None and expired.expires_s <= now_s:
            self._remove(expired)
            refused = self._refusals.refuse(RefusalReason.EXPIRED)
            return Dropped(expired.ticket, expired.request, refused, now_s - expired.arrived_s)
        if not self._items:
            return None
        for name in self.order(now_s):
            item = self.first_in(name)
            rows = self.context.candidates(item.request)
            go = self.open_rows(item, rows, now_s) if len(rows) else rows
            if len(go):
                self._remove(item)
                self.leaves(name, item, now_s)
                return Ready(item.ticket, item.request, go, now_s - item.arrived_s)
        return None

    def wakeup_s(self, now_s: float) -> float:
        """The next expiry, or soon while anybody waits."""
        first = self._expiries.first()
        if first is None:
            return math.inf
        return min(now_s + LOOK_AGAIN_S, max(first.expires_s, now_s))

    def dispatched(self, request: RouteRequest, endpoint: int, now_s: float) -> None:
        """Nothing to do: the gate reads the endpoint table."""

    def first_token(self, request: RouteRequest, endpoint: int, now_s: float) -> None:
        """Nothing to do."""

    def finished(self, request: RouteRequest, outcome: Outcome) -> None:
        """Nothing to do."""

    def abandoned(self, request: RouteRequest, now_s: float) -> None:
        """Nothing was charged."""

    def endpoint_reset(self, endpoint: int) -> None:
        """Nothing to do: the gate reads the endpoint table."""

    def set_quotas(self, quotas: Mapping[tuple[str, str], float], now_s: float) -> None:
        """Rivals know no quotas."""

    def set_fleet(
        self,
        fleet: Fleet,
        now_s: float,  # noqa: ARG002
        again: Callable[[RouteRequest], RouteRequest | None],
    ) -> list[int]:
        """Put who waits into the queues of the new classes."""
        waiting = [item for item, _ in self._items.values()]
        self.context = replace(self.context, fleet=fleet)
        self._know(fleet)
        self._heaps, self._items, self._expiries = {}, {}, WaitingHeap()
        gone = []
        for item in waiting:
            request = again(item.request)
            if request is None:
                gone.append(item.ticket)
            else:
                self._add(replace(item, request=request))
        return gone

    def status(self, now_s: float) -> FlowStatus:
        """What waits; budgets stand in front of a rival, see ``router.slomax.budgeted``."""
        found: dict[tuple[str, str], list[Waiting]] = {}
        for item, _ in self._items.values():
            found.setdefault((item.request.model, item.request.workload_class), []).append(item)
        queues = tuple(
            QueueStatus(
                model,
                kind,
                len(items),
                sum(item.request.input_tokens for item in items),
                now_s - min(item.arrived_s for item in items),
                0.0,
            )
            for (model, kind), items in sorted(found.items())
        )
        return FlowStatus(queues, ())

    def _waiting(self, arrival: Arrival, rows: IntArray) -> Waiting:
        request = arrival.request
        self._tickets += 1
        uncached = max(float(request.input_tokens - self.context.hit_tokens(request)[rows].max()), 1.0)
        bounds = (MAX_TTL_S, self.classes[request.workload_class].queue_ttl_s, arrival.ttl_s)
        ttl_s = min(bound for bound in bounds if bound is not None)
        return Waiting(
            ticket=self._tickets,
            request=request,
            arrived_s=arrival.arrived_s,
            due_s=math.inf,
            expires_s=arrival.arrived_s + ttl_s,
            work=uncached,
            prefill_s=0.0,
            long=False,
        )

    def _add(self, item: Waiting) -> None:
        name = self.queue_of(item)
        self._heaps.setdefault(name, WaitingHeap()).push(item.arrived_s, item)
        self._expiries.push(item.expires_s, item)
        self._items[item.ticket] = item, name

    def _remove(self, item: Waiting) -> None:
        _, name = self._items.pop(item.ticket)
        item.gone = True
        self._heaps[name].discard()
        self._expiries.discard()


def below_prefill(context: FlowContext, rows: IntArray, share: float) -> IntArray:
    """Rows whose uncached tokens in prefill are below ``share`` of the engine's batch-token budget."""
    table = context.table
    return rows[table.inflight_uncached_tokens[rows] < share * table.batch_token_budget[rows]]


def below_slots(context: FlowContext, rows: IntArray, slots: int) -> IntArray:
    """Rows with fewer than ``slots`` requests in flight."""
    return rows[context.table.inflight[rows] < slots]
