"""A small fleet with a flow control in front of it, driven by hand: time is a number, engines are leases."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from data.catalog.types import ServiceTimes
from data.fleet.types import Fleet, Model, Site, Tenant, WorkloadClass
from data.types import IntArray, Outcome, RefusalReason, Slo, Status
from router.endpoints import EndpointSpec, EndpointTable
from router.leases import LeaseBook
from router.prefix import EventPrefixIndex
from router.slomax.context import FlowContext
from router.slomax.registry import flow_factory
from router.slomax.types import Admitted, Arrival, Dropped, FlowControl, Queued, Ready, Refused
from router.types import RouteRequest

TIMES = ServiceTimes(p0=0.005, p1=1e-4, p2=0.0, d0=0.01, d1=1e-5, d2=1e-9)
CLASSES = (
    WorkloadClass("interactive", Slo(ttft_s=1.0, tpot_s=0.05)),
    WorkloadClass("long_context", Slo(ttft_s=5.0, tpot_s=0.08)),
    WorkloadClass("batch", Slo(deadline_s=600.0)),
)


class Hand:
    """Plays the caller of one flow control: charges what it lets through, and reports what is told.

    Attributes:
        open: Endpoints that pass the hard filters now.
        only: Endpoints of single requests, in place of those.
        sent: (time, request id, endpoint) of every dispatch.
        dropped: (request id, reason) of every waiting request that was dropped.
    """

    def __init__(self, flow: str, settings: dict[str, Any], fleet: Fleet, replicas: int, **spec: Any) -> None:
        values: dict[str, Any] = {
            "site": "B", "model": "m@1", "config": "c", "gpu_type": "X", "gpus": 1, "times": TIMES,
            "kv_capacity_tokens": 1_000_000, "batch_token_budget": 8192, "max_seqs": 64,
            "context_limit_tokens": 200_000,
        } | spec  # fmt: skip
        self.table = EndpointTable([EndpointSpec(endpoint_id=str(i), **values) for i in range(replicas)])
        self.book = LeaseBook(self.table)
        self.index = EventPrefixIndex(replicas)
        self.open = np.arange(replicas)
        self.only: dict[int, IntArray] = {}
        self.now_s = 0.0
        self.fleet = fleet
        self.sent: list[tuple[float, int, int]] = []
        self.dropped: list[tuple[int, RefusalReason]] = []
        self._leases: dict[int, tuple[RouteRequest, int, int]] = {}
        context = FlowContext(
            fleet, self.table, self.index, self._candidates, lambda _: RefusalReason.NO_ENDPOINT,
            lambda _: np.zeros(len(self.table)), seed=1,
        )  # fmt: skip
        self.flow: FlowControl = flow_factory(flow, settings)(context)

    def request(
        self, request_id: int, kind: str = "interactive", tokens: int = 1000, **changes: Any
    ) -> RouteRequest:
        slo = next(one.slo for one in self.fleet.classes if one.name == kind)
        request = RouteRequest(
            request_id, "m@1", "t", kind, "A", tokens, 400, 100.0, (), 16, "", slo
        )  # fmt: skip
        return replace(request, **changes)

    def offer(
        self, request: RouteRequest, now_s: float, ttl_s: float | None = None
    ) -> Admitted | Queued | Refused:
        """Offer a request, and carry out what follows."""
        self.now_s = now_s
        verdict = self.flow.offer(Arrival(request, now_s, ttl_s), now_s)
        if isinstance(verdict, Admitted):
            self._send(request, verdict.rows)
        self.pump(now_s)
        return verdict

    def pump(self, now_s: float) -> None:
        """Ask ``next`` until it has nothing, carrying out each answer."""
        self.now_s = now_s
        while (found := self.flow.next(now_s)) is not None:
            if isinstance(found, Ready):
                self._send(found.request, found.rows)
            else:
                assert isinstance(found, Dropped)
                self.dropped.append((found.request.request_id, found.refused.reason))

    def first_token(self, request_id: int, now_s: float) -> None:
        request, row, lease = self._leases[request_id]
        self.book.first_token(lease, now_s)
        self.flow.first_token(request, row, now_s)
        self.pump(now_s)

    def finish(self, request_id: int, now_s: float, status: Status = Status.COMPLETED, output: int = 100) -> None:
        request, row, lease = self._leases.pop(request_id)
        self.book.close(lease, now_s, status)
        self.flow.finished(
            request,
            Outcome(
                request_id, request.attempt, status, request.workload_class, request.tenant, row, 0.0, now_s,
                0.1, 1.0, request.input_tokens, 0, output,
            ),
        )  # fmt: skip
        self.pump(now_s)

    @property
    def running(self) -> list[int]:
        """Request ids in flight."""
        return list(self._leases)

    def waiting(self) -> int:
        """Requests that the flow control says are waiting."""
        return sum(queue.requests for queue in self.flow.status(self.now_s).queues)

    def _send(self, request: RouteRequest, rows: IntArray) -> None:
        assert len(rows)
        row = int(rows[np.argmin(self.table.inflight[rows])])
        lease = self.book.open(request, row, 0.0, self.now_s)
        self._leases[request.request_id] = request, row, lease
        self.flow.dispatched(request, row, self.now_s)
        self.sent.append((self.now_s, request.request_id, row))

    def _candidates(self, request: RouteRequest) -> IntArray:
        return self.only.get(request.request_id, self.open)


def build(
    flow: str = "slomax",
    settings: dict[str, Any] | None = None,
    replicas: int = 2,
    classes: tuple[WorkloadClass, ...] = CLASSES,
    tenants: tuple[Tenant, ...] = (Tenant("t"),),
    **spec: Any,
) -> Hand:
    fleet = Fleet(
        "hand", (Site("B", "compute", "z"),), (), (), (Model("m", "1", "m", 200_000),), (), classes, tenants
    )
    return Hand(flow, settings or {}, fleet, replicas, **spec)


@pytest.fixture
def hand() -> Callable[..., Hand]:
    """Makes a small fleet behind a flow control; see ``build``."""
    return build
