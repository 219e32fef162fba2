"""One queue: the requests of one model and class, tenants sharing it by weight, each tenant's in deadline order.

Shares are kept by virtual start times (the continuous form of weighted deficit round robin: the same long-run
shares in units of work, with no rounds and no quantum to tune):

(1)  a flow that becomes active starts at ``v = max(its own v, v of the queue)``
(2)  the active flow with the least ``v`` goes first
(3)  after a dispatch of ``work``:  ``v += work / weight``, and the queue's ``v`` is that of the flow served

A flow is one tenant from one origin with prompts of one kind (long or not) that the same endpoints may serve: when
its first cannot go, no other of it needs to be tried. Flows that differ in nothing but endpoints have one ``v``
together, so that nobody gets more by being able to go to more places; the earlier key goes first among them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from router.slomax.waiting import Waiting, WaitingHeap

ShareKey = tuple[str, str, bool]
"""Tenant, origin, long prefill."""
FlowKey = tuple[str, str, bool, int]
"""The same, and the number of the set of endpoints."""

MOST_FLOWS = 4096
"""Flows that are remembered; beyond, those in which nobody waits are forgotten, and start afresh."""

LEAST_PREFILL_S = 1e-9
"""Less is the rest of a rounding."""


@dataclass(slots=True, eq=False)
class Share:
    """What the flows of one tenant, origin and kind of prompt have together; ``active`` of them wait."""

    weight: float
    virtual: float = 0.0
    active: int = 0


@dataclass(slots=True, eq=False)
class Flow:
    """Requests that share a tenant, an origin, a kind of prompt and the endpoints that may serve them."""

    key: FlowKey
    share: Share
    heap: WaitingHeap = field(default_factory=WaitingHeap)


class FairQueue:
    """Counts are derived from what is in the queue: every way out passes :meth:`remove`."""

    def __init__(self, model: str, workload_class: str, rank: int) -> None:
        self.model = model
        self.workload_class = workload_class
        self.rank = rank
        """Place of its class by tightness, 0 = tightest."""
        self.requests = 0
        self.tokens = 0
        self.prefill_s = 0.0
        """Predicted prefill seconds of everything here, by the best endpoint of each."""
        self.credit = 0.0
        """Work that the class may do before any other, earned by its floor while it waited."""
        self._virtual = 0.0
        self.prefill_by_reach: dict[int, float] = {}
        """The same by the set of endpoints that may serve them."""
        self._shares: dict[ShareKey, Share] = {}
        self._parts = 0
        """Active flows beyond the first of each share: with none, ``v`` alone tells the order."""
        self._flows: dict[FlowKey, Flow] = {}
        self._active: dict[FlowKey, Flow] = {}

    def add(self, item: Waiting, weight: float, key: float) -> None:
        """Put an item in; ``key`` orders it among its flow's, least first."""
        flow_key = flow_of(item)
        flow = self._flows.get(flow_key)
        if flow is None:
            if len(self._flows) >= MOST_FLOWS:
                self._flows = dict(self._active)
                self._shares = {each.key[:3]: each.share for each in self._active.values()}
            share = self._shares.setdefault(flow_key[:3], Share(weight))
            flow = self._flows[flow_key] = Flow(flow_key, share)
        share = flow.share
        if flow_key not in self._active:
            if not share.active:
                share.virtual = max(share.virtual, self._virtual)  # (1)
            share.active += 1
            self._parts += share.active > 1
            self._active[flow_key] = flow
        share.weight = weight
        flow.heap.push(key, item)
        self.requests += 1
        self.tokens += item.request.input_tokens
        self.prefill_s += item.prefill_s
        self.prefill_by_reach[item.reach] = self.prefill_by_reach.get(item.reach, 0.0) + item.prefill_s

    def remove(self, item: Waiting, served: bool) -> None:
        """An item of this queue leaves it: dispatched (then it counts for its tenant's share) or not."""
        flow = self._flows[flow_of(item)]
        item.gone = True
        flow.heap.discard()
        if served:
            self._virtual = max(self._virtual, flow.share.virtual)
            flow.share.virtual += item.work / flow.share.weight  # (3)
        if not len(flow.heap):
            del self._active[flow.key]
            self._parts -= flow.share.active > 1
            flow.share.active -= 1
        self.requests -= 1
        self.tokens -= item.request.input_tokens
        self.prefill_s -= item.prefill_s
        left_s = self.prefill_by_reach.get(item.reach, 0.0) - item.prefill_s
        if left_s > LEAST_PREFILL_S:
            self.prefill_by_reach[item.reach] = left_s
        else:
            self.prefill_by_reach.pop(item.reach, None)
        if not self.requests:
            self.credit = self.prefill_s = 0.0
            self.prefill_by_reach.clear()

    def heads(self) -> Iterator[tuple[Flow, Waiting]]:
        """The first item of each active flow, flows in the order (2); the least is found without sorting."""
        flows = self._active.values()
        if not flows:
            return
        order: Callable[[Flow], Any] = _order if self._parts else _virtual
        least = min(flows, key=order)
        item = least.heap.first()
        if item is not None:
            yield least, item
        if len(flows) == 1:
            return
        for flow in sorted(flows, key=order):
            if flow is not least:
                item = flow.heap.first()
                if item is not None:
                    yield flow, item

    def oldest_s(self) -> float:
        """Arrival of the request that has been here longest, by the flows' first ones; infinite if empty."""
        return min((item.arrived_s for _, item in self.heads()), default=float("inf"))


_virtual = attrgetter("share.virtual")


def _order(flow: Flow) -> tuple[float, float]:
    return flow.share.virtual, flow.heap.first_key()


def flow_of(item: Waiting) -> FlowKey:
    """The flow that an item belongs to."""
    return item.request.tenant, item.request.origin, item.long, item.reach
