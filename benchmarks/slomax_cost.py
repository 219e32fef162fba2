"""What admission, queueing and dispatch cost a request, and what SLOMax adds where nobody waits."""

from __future__ import annotations

import time
import tracemalloc

import numpy as np

from benchmarks.bench_decision import table_of
from benchmarks.router_fixture import busy_router, finish, questions
from benchmarks.slomax_rows import Row, plain
from data.fleet.types import Fleet, Model, Site, Tenant, WorkloadClass
from data.types import RefusalReason, Slo
from router.prefix import EventPrefixIndex
from router.slomax.context import FlowContext
from router.slomax.flow_control import SloMax
from router.slomax.settings import SloMaxSettings
from router.slomax.types import Arrival
from router.types import RouteRequest


def cost_rows(count: int) -> list[Row]:
    """Time of admission, queueing and dispatch of one request, and memory of 100,000 that wait."""
    flow, requests = _loaded_flow(64, count)
    offered = [Arrival(one, 0.0) for one in requests]
    started = time.process_time()
    for one in offered:
        flow.offer(one, 0.0)
    enqueue_us = (time.process_time() - started) / count * 1e6
    flow.context.table.waiting_prefill_s[:] = 0.0
    flow.context.table.inflight[:] = 0.0
    started = time.process_time()
    taken = 0
    while taken < count // 2 and flow.next(0.0) is not None:
        taken += 1
    dequeue_us = (time.process_time() - started) / max(taken, 1) * 1e6
    cost = enqueue_us + dequeue_us
    tracemalloc.start()
    flow, requests = _loaded_flow(64, 100_000)
    before = tracemalloc.get_traced_memory()[0]
    for request in requests:
        flow.offer(Arrival(request, 0.0), 0.0)
    used_mb = (tracemalloc.get_traced_memory()[0] - before) / 1e6
    tracemalloc.stop()
    return [
        plain("slomax/cost/offer", enqueue_us, "us", "-", None, True),
        plain("slomax/cost/next", dequeue_us, "us", "-", None, True),
        plain("slomax/cost/request", cost, "us", "-", "<= 30 us", cost <= 30.0),
        plain("slomax/cost/memory_100k", used_mb, "MB", "-", "<= 200 MB", used_mb <= 200.0),
    ]


def idle_rows(count: int) -> list[Row]:
    """What SLOMax adds to a decision over 64 idle engines where nobody waits: route, first token and end."""
    asked = questions(count, seed=3)
    routers = {flow: busy_router(64, held=0, flow=flow) for flow in ("none", "slomax")}
    spent: dict[str, list[float]] = {flow: [] for flow in routers}
    for one in asked:
        for flow, live in routers.items():
            started = time.thread_time()
            reply = live.route(one)
            finish(live, reply.placement.lease_id)
            spent[flow].append((time.thread_time() - started) * 1e6)
    with_it, without = (float(np.median(spent[flow][count // 5 :])) for flow in ("slomax", "none"))
    row = plain("slomax/cost/idle", with_it - without, "us", f"{without:.0f} us without", None, True)
    return [{**row, "ratio": with_it / without}]


def _loaded_flow(replicas: int, count: int) -> tuple[SloMax, list[RouteRequest]]:
    """A flow control before engines that are full, and requests of three classes and eight tenants."""
    table = table_of(replicas)
    table.waiting_prefill_s[:], table.inflight[:] = 1e6, 10.0
    table.inflight_uncached_tokens[:], table.prefill_since_s[:] = 1e6, 0.0
    classes = (
        WorkloadClass("interactive", Slo(ttft_s=1e5, tpot_s=0.05)),
        WorkloadClass("long_context", Slo(ttft_s=2e5, tpot_s=0.08)),
        WorkloadClass("batch", Slo(deadline_s=1e6)),
    )
    tenants = tuple(Tenant(f"t{i}") for i in range(8))
    model = table.specs[0].model
    name, _, version = model.partition("@")
    fleet = Fleet("f", (Site("B", "compute", "z"),), (), (), (Model(name, version, "m", 1),), (), classes, tenants)
    rows, rtt = np.arange(replicas), np.zeros(replicas)
    context = FlowContext(
        fleet,
        table,
        EventPrefixIndex(replicas),
        lambda _: rows,
        lambda _: RefusalReason.NO_ENDPOINT,
        lambda _: rtt,
    )
    settings = SloMaxSettings(queue_wait_s=1e9, max_ttl_s=1e9)
    requests = [
        RouteRequest(
            i,
            model,
            f"t{i % 8}",
            classes[i % 3].name,
            "A",
            500 + i % 1000,
            500,
            200.0,
            (),
            16,
            "",
            classes[i % 3].slo,
        )
        for i in range(count)
    ]
    return SloMax(context, settings), requests
