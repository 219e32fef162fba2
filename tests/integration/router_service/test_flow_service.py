"""The flow control in the service, over a real channel: waiting, order, budgets, cancellation, reload, drain."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from typing import Any

import grpc
import pytest

from data.fleet.types import ClassMatch, Fleet, Tenant, WorkloadClass
from data.plan import PlanDocument, PlannedReplicas, PlanStatus, PoolSplit
from data.types import Slo
from router.flow.flow_desk import FlowDesk
from router.flow.flow_metrics import flow_samples
from router.pb.v1 import router_pb2 as pb
from router.serving.auth import Authenticator, Client, token_digest
from router.serving.fleet_state import FleetSettings
from router.serving.live_build import next_fleet_state
from router.slomax.registry import FLOWS, flow_factory

CLASSES = (
    WorkloadClass("interactive", Slo(ttft_s=2.0, tpot_s=0.05), match=ClassMatch(max_input_tokens=2000)),
    WorkloadClass("batch", Slo(deadline_s=3600.0), queue_ttl_s=600.0, match=ClassMatch(task_types=("batch",))),
)


@pytest.fixture(name="flow_fleet")
def _flow_fleet(fleet: Fleet) -> Fleet:
    tenants = (
        Tenant("shop", may_hint_class=True),
        Tenant("bank", tier="guaranteed", may_hint_class=True),
        Tenant("small", tokens_per_s_budget=100.0, concurrent_budget=3, may_hint_class=True),
        Tenant("one", concurrent_budget=1),
    )
    return replace(fleet, classes=CLASSES, tenants=tenants)


@pytest.fixture(name="make_flow")
def _make_flow(make_world: Any, flow_fleet: Fleet, endpoint: Any) -> Any:
    def make(replicas: int = 1, flow: str = "slomax", fleet: Fleet | None = None, **settings: Any) -> Any:
        engines = [endpoint(number) for number in range(replicas)]
        return make_world(engines, fleet=fleet or flow_fleet, flow=flow_factory(flow, settings))

    return make


def close_engines(world: Any) -> None:
    """Every engine is full: nobody is let through."""
    table = world.live.core.table
    table.inflight[:] = table.max_seqs


def open_engines(world: Any) -> None:
    world.live.core.table.inflight[:] = 0


def waiting(world: Any) -> int:
    return sum(queue.requests for queue in world.live.desk.status().queues)


def budget(world: Any, tenant: str) -> Any:
    return next(one for one in world.live.desk.status().budgets if one.tenant == tenant)


async def until(what: Any) -> None:
    for _ in range(500):
        if what():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it never came")


async def soon(call: Any) -> Any:
    """The answer, which must not take any real waiting."""
    return await asyncio.wait_for(call, 5.0)


async def events(*told: pb.ReportEvent) -> AsyncIterator[pb.ReportEvent]:
    for event in told:
        yield event


@pytest.mark.asyncio
async def test_an_idle_fleet_is_answered_at_once_by_every_flow_control(
    make_flow: Any, serve: Any, asked: Any
) -> None:
    for name in FLOWS:
        world = make_flow(2, flow=name)
        table = world.live.core.table
        table.running[:] = table.waiting[:] = table.kv_use[:] = 0.0  # one rival takes unknown load for full
        async with serve(world.live) as served:
            reply = await served.stub.Route(asked(), timeout=5)
            assert reply.placement.endpoint_id, name
            assert reply.queued_s == 0.0
            batch = await served.stub.RouteBatch(pb.RouteBatchRequest(requests=[asked()]), timeout=5)
            assert batch.replies[0].placement.endpoint_id, name


@pytest.mark.asyncio
async def test_a_request_waits_for_its_turn_and_the_tighter_class_goes_first(
    make_flow: Any, serve: Any, asked: Any
) -> None:
    world = make_flow()
    async with serve(world.live) as served:
        close_engines(world)
        order: list[str] = []

        async def ask(name: str, kind: str) -> pb.RouteReply:
            reply: pb.RouteReply = await served.stub.Route(asked(request_id=name, workload_class=kind), timeout=20)
            order.append(name)
            return reply

        batch = asyncio.ensure_future(ask("b", "batch"))
        await until(lambda: waiting(world) == 1)
        chat = asyncio.ensure_future(ask("c", "interactive"))
        await until(lambda: waiting(world) == 2)
        world.clock.now_s += 1.5
        table = world.live.core.table
        table.inflight[0] = table.max_seqs[0] - 1
        first = await chat
        assert order == ["c"]
        assert first.workload_class == "interactive"
        assert first.queued_s == pytest.approx(1.5)
        assert not batch.done()
        open_engines(world)
        assert (await soon(batch)).placement.lease_id
        lease = world.live.leases.get(first.placement.lease_id)
        assert lease.queued_s == pytest.approx(1.5)


@pytest.mark.asyncio
async def test_the_time_to_live_is_the_least_of_class_and_caller_f043(
    make_flow: Any, serve: Any, asked: Any
) -> None:
    """F043: r1 leaves at its own 2 s; r2 cannot lengthen its deadline; r3 is dispatched."""
    world = make_flow()
    async with serve(world.live) as served:
        close_engines(world)
        short = asyncio.ensure_future(served.stub.Route(asked(request_id="r1", queue_ttl_s=2.0), timeout=30))
        bound = asyncio.ensure_future(served.stub.Route(asked(request_id="r2", queue_ttl_s=60.0), timeout=10))
        long = asyncio.ensure_future(
            served.stub.Route(asked(request_id="r3", workload_class="batch"), timeout=500)
        )
        await until(lambda: waiting(world) == 3)
        world.clock.now_s += 2.1
        reply = await soon(short)
        assert (reply.refusal.reason, reply.refusal.http_status) == ("expired", 429)
        assert reply.refusal.retry_after_s >= 1.0
        assert reply.queued_s == pytest.approx(2.1)
        world.clock.now_s += 8.0
        assert (await soon(bound)).refusal.reason == "expired"
        world.clock.now_s += 110.0
        assert not long.done()
        open_engines(world)
        assert (await soon(long)).placement.lease_id


@pytest.mark.asyncio
async def test_a_cancelled_call_leaves_the_queue_at_once_f062(make_flow: Any, serve: Any, asked: Any) -> None:
    """F062: many calls, no capacity, all cancelled in random order: the gauge is 0 and the next one is taken."""
    world = make_flow()
    async with serve(world.live) as served:
        close_engines(world)
        calls = [served.stub.Route(asked(tenant="shop"), timeout=60) for _ in range(300)]
        tasks = [asyncio.ensure_future(_wait(call)) for call in calls]
        await until(lambda: waiting(world) == 300)
        random.Random(3).shuffle(calls)
        for call in calls[:100]:
            call.cancel()
        await until(lambda: waiting(world) == 200)
        for call in calls[100:]:
            call.cancel()
        await until(lambda: waiting(world) == 0)
        await asyncio.gather(*tasks)
        assert len(world.live.desk) == 0
        assert served.server.servicer.waiting.running == 0
        assert budget(world, "shop").in_flight == 0
        open_engines(world)
        assert (await served.stub.Route(asked(), timeout=5)).placement.lease_id


async def _wait(call: Any) -> None:
    with pytest.raises((grpc.aio.AioRpcError, asyncio.CancelledError)):
        await call


@pytest.mark.asyncio
async def test_a_turn_that_comes_as_the_caller_goes_is_given_back(make_flow: Any, asked: Any) -> None:
    """The lease of a reply that nobody receives ends at once, and blames no engine."""
    world = make_flow()
    desk: FlowDesk = world.live.desk
    close_engines(world)
    got: list[Any] = []
    ticket = desk.ask(asked(tenant="small", output_budget=10), "", "", None, got.append)
    assert isinstance(ticket, int)
    open_engines(world)
    desk.pump()
    assert not desk.leave(ticket)
    before = budget(world, "small").tokens_left
    desk.unsent(got[0])
    assert len(world.live.leases) == 0
    assert world.counts() == 0
    assert budget(world, "small").tokens_left == pytest.approx(before + 1010)
    assert world.live.safe()


@pytest.mark.asyncio
@pytest.mark.parametrize("flow", ["slomax", "strict_priority"])
async def test_every_exit_frees_a_tenants_place_f061(make_flow: Any, serve: Any, asked: Any, flow: str) -> None:
    """F061: one place; a broken stream, a time-out, a wrong request and a lost client each give it back."""
    world = make_flow(flow=flow)
    async with serve(world.live) as served:

        async def placed() -> int:
            reply = await served.stub.Route(asked(tenant="one", queue_ttl_s=1.0), timeout=5)
            assert reply.HasField("placement"), reply.refusal.reason
            assert budget(world, "one").in_flight == 1
            return int(reply.placement.lease_id)

        lease = await placed()
        refused = await served.stub.Route(asked(tenant="one"), timeout=5)
        assert (refused.refusal.reason, refused.refusal.http_status) == ("budget_exhausted", 429)
        await served.stub.Report(events(pb.ReportEvent(lease_id=lease, cancelled=pb.Cancelled(output_tokens=3))))
        assert budget(world, "one").in_flight == 0
        lease = await placed()
        await served.stub.Report(events(pb.ReportEvent(lease_id=lease, error=pb.Error(timed_out=True))))
        assert budget(world, "one").in_flight == 0
        with pytest.raises(grpc.aio.AioRpcError):
            await served.stub.Route(asked(tenant="one", token_ids=b"123"), timeout=5)
        assert budget(world, "one").in_flight == 0
        await placed()  # and nobody ever tells of its end
        for _ in range(5):
            world.clock.now_s += 1000.0
            await asyncio.sleep(0.03)
        assert budget(world, "one").in_flight == 0
        await placed()


@pytest.mark.asyncio
@pytest.mark.parametrize("flow", ["slomax", "strict_priority"])
async def test_budgets_reserve_the_worst_case_and_settle_what_was_used_f056(
    make_flow: Any, serve: Any, asked: Any, flow: str
) -> None:
    """F056: parallel requests cannot overshoot; what was not used comes back and lets the next one in."""
    world = make_flow(flow=flow)
    async with serve(world.live) as served:
        asks = [asked(tenant="small", input_tokens=1000, output_budget=400) for _ in range(5)]
        replies = await asyncio.gather(*(served.stub.Route(one, timeout=5) for one in asks))
        leases = [reply.placement.lease_id for reply in replies if reply.HasField("placement")]
        assert len(leases) == 2  # of 3,000 tokens, 1,400 each
        assert {one.refusal.reason for one in replies if one.HasField("refusal")} == {"budget_exhausted"}
        assert budget(world, "small").tokens_left == pytest.approx(200)
        told = [
            pb.ReportEvent(lease_id=one, finished=pb.Finished(output_tokens=1, finish_reason="stop"))
            for one in leases
        ]
        await served.stub.Report(events(*told))
        assert budget(world, "small").tokens_left == pytest.approx(3000 - 2 * 1001)
        assert budget(world, "small").in_flight == 0
        explained = await served.stub.Explain(pb.ExplainRequest(request=asks[0]))
        assert explained.budget.tokens_left == pytest.approx(998)
        assert (explained.budget.concurrent, explained.budget.in_flight) == (3, 0)
        assert not explained.budget.HasField("requests_per_s")
        assert explained.class_rule == "length"


@pytest.mark.asyncio
async def test_forged_callers_touch_no_tenant_f149(make_flow: Any, serve: Any, asked: Any) -> None:
    """F149: a thousand calls in a tenant's name without its token change none of its counters."""
    world = make_flow()
    clients = (Client("proxy", token_digest("good"), tenant="one"),)
    async with serve(world.live, authenticator=Authenticator(clients)) as served:
        before = budget(world, "one")

        async def forged() -> grpc.StatusCode:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await served.stub.Route(
                    asked(tenant="one"), metadata=(("authorization", "Bearer bad"),), timeout=9
                )
            return caught.value.code()

        codes = [await forged() for _ in range(12)] + list(await asyncio.gather(*(forged() for _ in range(988))))
        assert codes.count(grpc.StatusCode.UNAUTHENTICATED) == 10
        assert codes.count(grpc.StatusCode.RESOURCE_EXHAUSTED) == 990
        assert budget(world, "one") == before
        good = (("authorization", "Bearer good"),)
        assert (await served.stub.Route(asked(), metadata=good, timeout=5)).placement.lease_id


@pytest.mark.asyncio
async def test_hints_count_only_where_the_tenant_may_give_them(make_flow: Any, serve: Any, asked: Any) -> None:
    world = make_flow()
    async with serve(world.live) as served:
        hinted = await served.stub.Route(asked(tenant="shop", workload_class="batch"), timeout=5)
        ignored = await served.stub.Route(asked(tenant="one", workload_class="batch"), timeout=5)
        assert (hinted.workload_class, ignored.workload_class) == ("batch", "interactive")
        explained = await served.stub.Explain(
            pb.ExplainRequest(request=asked(tenant="shop", workload_class="batch")), timeout=5
        )
        assert explained.class_rule == "hint"
        assert explained.queue.requests == 0


@pytest.mark.asyncio
async def test_a_batch_and_explain_never_wait(make_flow: Any, serve: Any, asked: Any) -> None:
    world = make_flow()
    async with serve(world.live) as served:
        close_engines(world)
        batch = await served.stub.RouteBatch(pb.RouteBatchRequest(requests=[asked(), asked()]), timeout=5)
        assert [one.refusal.reason for one in batch.replies] == ["overloaded"] * 2
        assert all(one.refusal.retry_after_s >= 1.0 for one in batch.replies)
        assert waiting(world) == 0
        waits = asyncio.ensure_future(served.stub.Route(asked(workload_class="batch"), timeout=60))
        await until(lambda: waiting(world) == 1)
        explained = await served.stub.Explain(pb.ExplainRequest(request=asked(workload_class="batch")), timeout=5)
        assert (explained.queue.requests, explained.queue.tokens) == (1, 1000)
        assert explained.decision.HasField("placement")
        waits.cancel()


def plan(**rates: float) -> PlanDocument:
    splits = tuple(PoolSplit("B", "m@1", "H100", kind, 1, rate, {}) for kind, rate in rates.items())
    return PlanDocument(
        "p1", None, "2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z", "test", {},
        PlanStatus.OPTIMAL, 1.0, 1.0, 1.0, "lp", (PlannedReplicas("B", "c", "m@1", "H100", 1, 1),), splits=splits,
    )  # fmt: skip


@pytest.mark.asyncio
async def test_a_looser_class_borrows_what_is_idle_and_never_the_reverse(
    make_flow: Any, serve: Any, asked: Any
) -> None:
    """A tighter class beyond its quota of the plan waits behind a looser one within its own."""
    world = make_flow(floor_share=0.0)
    world.live.apply_plan(plan(interactive=1.0, batch=1000.0))
    table = world.live.core.table
    async with serve(world.live) as served:
        over = await served.stub.Route(asked(workload_class="interactive"), timeout=5)
        assert over.HasField("placement")  # idle: a class may go beyond its quota
        close_engines(world)
        order: list[str] = []

        async def ask(kind: str) -> None:
            await served.stub.Route(asked(workload_class=kind), timeout=60)
            order.append(kind)

        chat = asyncio.ensure_future(ask("interactive"))
        await until(lambda: waiting(world) == 1)
        batch = asyncio.ensure_future(ask("batch"))
        await until(lambda: waiting(world) == 2)
        table.inflight[0] = table.max_seqs[0] - 1
        await batch
        assert order == ["batch"]
        open_engines(world)
        await chat


@pytest.mark.asyncio
async def test_who_waits_survives_reloads_of_plan_model_and_fleet(
    make_flow: Any, serve: Any, asked: Any, flow_fleet: Fleet, endpoint: Any
) -> None:
    world = make_flow()
    live = world.live
    async with serve(live) as served:
        close_engines(world)
        asks = {
            name: asked(request_id=name, tenant=name, workload_class="batch") for name in ("shop", "bank", "small")
        }
        calls = {name: asyncio.ensure_future(served.stub.Route(one, timeout=500)) for name, one in asks.items()}
        await until(lambda: waiting(world) == 3)
        spent = budget(world, "small").tokens_left
        world.clock.now_s += 7.0
        live.apply_plan(plan(batch=10.0))
        live.model_changed()
        # The next file: another engine, no tenant "bank", half the budget for "small", one class more.
        tenants = tuple(one for one in flow_fleet.tenants if one.name != "bank")
        tenants = tuple(replace(one, tokens_per_s_budget=50.0) if one.name == "small" else one for one in tenants)
        more = WorkloadClass("bulk", Slo())
        changed = replace(flow_fleet, tenants=tenants, classes=(*CLASSES, more))
        state = next_fleet_state(live, changed, "f2", FleetSettings())
        live.apply_fleet(state, [endpoint(0), replace(endpoint(1), ready=False)])
        refused = await soon(calls["bank"])
        assert (refused.refusal.reason, refused.refusal.http_status) == ("unknown_tenant", 403)
        assert waiting(world) == 2
        left = budget(world, "small")
        assert (left.tokens_per_s, left.in_flight) == (50.0, 1)
        assert left.tokens_left == min(spent + 700.0, 1500.0)  # refilled for 7 s, within the new burst
        open_engines(world)
        for name in ("shop", "small"):
            reply = await soon(calls[name])
            assert reply.placement.endpoint_id == "B/c/0"
            assert reply.queued_s == pytest.approx(7.0)


@pytest.mark.asyncio
async def test_a_drain_refuses_who_waits_and_ends_what_runs(make_flow: Any, serve: Any, asked: Any) -> None:
    world = make_flow()
    async with serve(world.live, limits={"drain_s": 5.0}) as served:
        runs = await served.stub.Route(asked(), timeout=5)
        close_engines(world)
        waits = asyncio.ensure_future(served.stub.Route(asked(workload_class="batch"), timeout=60))
        await until(lambda: waiting(world) == 1)
        drained = asyncio.ensure_future(served.server.drain())
        reply = await soon(waits)
        assert (reply.refusal.reason, reply.refusal.http_status) == ("shutting_down", 503)
        assert reply.refusal.retry_after_s >= 1.0
        done = pb.ReportEvent(lease_id=runs.placement.lease_id, finished=pb.Finished(output_tokens=5))
        await served.stub.Report(events(done))
        assert await drained == 0


@pytest.mark.asyncio
async def test_a_cold_model_holds_who_can_wait_for_it_f107(
    make_flow: Any, serve: Any, asked: Any, endpoint: Any
) -> None:
    """F107: load 40 s: with 60 s it is served, with 10 s it gets 503 and a hint of 40 s, never 4xx."""
    world = make_flow()
    live = world.live
    cold = replace(endpoint(0), ready=False)
    cold = replace(cold, spec=replace(cold.spec, load_s=40.0, endpoint_id="cold"))
    live.apply_endpoints([cold])
    async with serve(live) as served:
        await asyncio.sleep(0.05)
        patient = asyncio.ensure_future(served.stub.Route(asked(queue_ttl_s=60.0), timeout=500))
        await until(lambda: live.desk.held == 1)
        hasty = await served.stub.Route(asked(queue_ttl_s=10.0), timeout=500)
        assert (hasty.refusal.reason, hasty.refusal.http_status) == ("no_endpoint", 503)
        assert 39.0 <= hasty.refusal.retry_after_s <= 40.0
        silent = await served.stub.Route(asked(tenant="one"), timeout=500)
        assert silent.refusal.http_status == 503  # neither its class nor its caller lets it wait
        world.clock.now_s += 41.0
        live.core.table.ready[live.rows.row("cold")] = True
        reply = await soon(patient)
        assert reply.placement.endpoint_id == "cold"
        assert reply.queued_s == pytest.approx(41.0)


@pytest.mark.asyncio
async def test_without_any_engine_who_is_held_leaves_at_its_time(make_flow: Any, serve: Any, asked: Any) -> None:
    world = make_flow()
    world.live.core.table.healthy[:] = False
    async with serve(world.live) as served:
        held = asyncio.ensure_future(served.stub.Route(asked(queue_ttl_s=5.0), timeout=500))
        gone = served.stub.Route(asked(queue_ttl_s=50.0), timeout=500)
        left = asyncio.ensure_future(_wait(gone))
        await until(lambda: world.live.desk.held == 2)
        gone.cancel()
        await until(lambda: world.live.desk.held == 1)
        await left
        world.live.core.table.healthy[:] = False
        world.clock.now_s += 5.1
        reply = await soon(held)
        assert reply.refusal.http_status == 503
        assert world.live.desk.held == 0
        # A batch is answered at once.
        batch = await served.stub.RouteBatch(pb.RouteBatchRequest(requests=[asked(queue_ttl_s=5.0)]), timeout=5)
        assert batch.replies[0].refusal.http_status == 503


@pytest.mark.asyncio
async def test_a_retry_keeps_its_first_arrival_f049(make_flow: Any, serve: Any, asked: Any) -> None:
    """F049: a request whose attempt failed comes back with its first arrival and goes before later ones."""
    world = make_flow()
    async with serve(world.live) as served:
        first = await served.stub.Route(asked(request_id="r", workload_class="batch"), timeout=5)
        world.clock.now_s += 3.0
        failed = pb.ReportEvent(lease_id=first.placement.lease_id, error=pb.Error(http_status=503))
        await served.stub.Report(events(failed))
        close_engines(world)
        later = asyncio.ensure_future(served.stub.Route(asked(request_id="x", workload_class="batch"), timeout=60))
        await until(lambda: waiting(world) == 1)
        again = asyncio.ensure_future(
            served.stub.Route(asked(request_id="r", attempt=1, workload_class="batch"), timeout=60)
        )
        await until(lambda: waiting(world) == 2)
        table = world.live.core.table
        table.inflight[0] = table.max_seqs[0] - 1
        reply = await soon(again)
        assert not later.done()
        assert reply.queued_s == 0.0
        assert world.live.leases.get(reply.placement.lease_id).queued_s == pytest.approx(3.0)
        later.cancel()


@pytest.mark.asyncio
async def test_a_policy_that_fails_ends_one_call_and_no_other(
    make_flow: Any, serve: Any, asked: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_flow()
    async with serve(world.live) as served:
        close_engines(world)
        calls = [
            asyncio.ensure_future(served.stub.Route(asked(request_id=str(i), tenant="shop"), timeout=60))
            for i in range(2)
        ]
        await until(lambda: waiting(world) == 2)
        choose = type(world.live.core.policy).choose
        failures = iter([RuntimeError("broken")])

        def once(self: Any, *given: Any) -> int:
            for error in failures:
                raise error
            return int(choose(self, *given))

        monkeypatch.setattr(type(world.live.core.policy), "choose", once)
        open_engines(world)
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert sum(isinstance(one, grpc.aio.AioRpcError) for one in results) == 1
        assert sum(isinstance(one, pb.RouteReply) for one in results) == 1
        assert budget(world, "shop").in_flight == 1


@pytest.mark.asyncio
async def test_a_retry_avoids_the_endpoint_that_failed_even_after_a_wait(
    make_flow: Any, serve: Any, asked: Any
) -> None:
    world = make_flow(2)
    async with serve(world.live) as served:
        close_engines(world)
        call = asyncio.ensure_future(served.stub.Route(asked(avoid_endpoints=["B/c/0"]), timeout=60))
        await until(lambda: waiting(world) == 1)
        world.live.core.table.inflight[0] = 0
        await asyncio.sleep(0.1)
        assert not call.done()  # the other one is only busy
        open_engines(world)
        assert (await soon(call)).placement.endpoint_id == "B/c/1"


@pytest.mark.asyncio
async def test_nothing_that_runs_is_evicted_and_no_return_overtakes_a_tighter_class_f046(
    make_flow: Any, serve: Any, asked: Any
) -> None:
    """F046: what frees up goes to the one that waits for it; what fits nowhere is refused and touches nothing."""
    world = make_flow()
    table = world.live.core.table
    async with serve(world.live) as served:
        runs = await served.stub.Route(asked(request_id="a", workload_class="batch"), timeout=60)
        close_engines(world)
        urgent = asyncio.ensure_future(served.stub.Route(asked(request_id="x", tenant="bank"), timeout=60))
        await until(lambda: waiting(world) == 1)
        huge = await served.stub.Route(asked(tenant="bank", input_tokens=8000, output_budget=500), timeout=60)
        assert (huge.refusal.reason, huge.refusal.http_status) == ("context_too_long", 400)
        assert world.live.leases.get(runs.placement.lease_id) is not None  # it still runs
        failed = pb.ReportEvent(lease_id=runs.placement.lease_id, error=pb.Error(http_status=503))
        table.inflight[0] = table.max_seqs[0] + 1
        await served.stub.Report(events(failed))
        back = asyncio.ensure_future(
            served.stub.Route(asked(request_id="a", attempt=1, workload_class="batch"), timeout=60)
        )
        await until(lambda: waiting(world) == 2)
        table.inflight[0] = table.max_seqs[0] - 1
        assert (await soon(urgent)).placement.lease_id
        assert not back.done()
        open_engines(world)
        assert (await soon(back)).placement.lease_id


def test_the_gauges_are_the_queues_contents_and_go_back_to_zero_f062(make_flow: Any, asked: Any) -> None:
    """F062: queue gauges and budgets after waiting, cancelling and sending; tenants without a budget have none."""
    world = make_flow()
    desk: FlowDesk = world.live.desk

    def page() -> dict[tuple[str, ...], float]:
        world.clock.now_s += 1.0
        world.live.tick()
        samples = flow_samples(desk, world.live.state.fleet, lambda name: name)
        return {(one.name, *one.labels): one.value for one in samples}

    close_engines(world)
    tickets = [desk.ask(asked(tenant="small", output_budget=100), "", "", None, lambda _: None) for _ in range(2)]
    seen = page()
    assert seen["queue_requests", "m@1", "interactive"] == 2
    assert seen["queue_tokens", "m@1", "interactive"] == 2000
    assert seen["queue_oldest_seconds", "m@1", "interactive"] == 1.0
    assert seen["tenant_requests_in_flight", "small"] == 2
    assert seen["tenant_reserved_tokens", "small"] == 2200
    assert seen["tenant_budget_left", "small", "tokens"] == 900
    assert not any("shop" in key for key in seen)
    for ticket in tickets:
        assert isinstance(ticket, int)
        assert desk.leave(ticket)
    seen = page()
    assert seen["queue_requests", "m@1", "interactive"] == seen["queue_tokens", "m@1", "interactive"] == 0
    assert seen["tenant_requests_in_flight", "small"] == seen["held_requests",] == 0
    assert seen["tenant_budget_left", "small", "tokens"] == 3000


# The one left out counts its own dispatches only, so that a full engine does not close it.
@pytest.mark.parametrize("flow", sorted(set(FLOWS) - {"reserved_classes_smg"}))
def test_every_flow_control_keeps_who_waits_through_another_fleet_file(
    make_flow: Any, asked: Any, flow_fleet: Fleet, endpoint: Any, flow: str
) -> None:
    world = make_flow(1, flow=flow)
    live, table = world.live, world.live.core.table
    close_engines(world)
    table.running[:], table.waiting[:], table.kv_use[:] = 64.0, 64.0, 0.5
    table.inflight_uncached_tokens[:], table.waiting_prefill_s[:], table.prefill_since_s[:] = (
        1e9,
        1e6,
        world.clock(),
    )
    got: dict[str, Any] = {}
    for name in ("shop", "bank"):
        ticket = live.desk.ask(asked(tenant=name, request_id=name), "", "", None, partial(got.__setitem__, name))
        assert isinstance(ticket, int)
    live.desk.pump()
    assert (waiting(world), got) == (2, {})
    changed = replace(flow_fleet, tenants=tuple(one for one in flow_fleet.tenants if one.name != "bank"))
    live.apply_fleet(next_fleet_state(live, changed, "f2", FleetSettings()), [endpoint(0)])
    assert got.pop("bank").refusal.reason == "unknown_tenant"
    assert (waiting(world), got) == (1, {})
    open_engines(world)
    table.running[:] = table.waiting[:] = table.kv_use[:] = 0.0
    table.inflight_uncached_tokens[:] = table.waiting_prefill_s[:] = 0.0
    live.desk.pump()
    assert got["shop"].placement.endpoint_id == "B/c/0"
    assert len(live.desk) == 0


@pytest.mark.parametrize("flow", sorted(FLOWS))
def test_every_flow_control_keeps_budgets_through_another_fleet_file(
    make_flow: Any, asked: Any, flow_fleet: Fleet, endpoint: Any, flow: str
) -> None:
    """F059: a limit of the fleet file holds whatever decides about the order, and a new one at once."""
    world = make_flow(1, flow=flow)
    live, table = world.live, world.live.core.table
    table.running[:] = table.waiting[:] = table.kv_use[:] = 0.0
    ask = partial(asked, tenant="small", input_tokens=500, output_budget=500)
    for name in ("a", "b"):
        assert live.route(ask(request_id=name)).HasField("placement")
    held = budget(world, "small")
    assert (held.tokens_left, held.in_flight, held.concurrent) == (1000.0, 2, 3)
    fewer = [replace(one, concurrent_budget=2) if one.name == "small" else one for one in flow_fleet.tenants]
    changed = replace(flow_fleet, tenants=tuple(fewer))
    live.apply_fleet(next_fleet_state(live, changed, "f2", FleetSettings()), [endpoint(0)])
    assert live.route(ask(request_id="c")).refusal.reason == "budget_exhausted"
    held = budget(world, "small")
    assert (held.tokens_left, held.in_flight, held.concurrent) == (1000.0, 2, 2)


@pytest.mark.asyncio
async def test_a_stream_goes_on_when_no_more_of_it_may_wait(make_flow: Any, serve: Any, asked: Any) -> None:
    world = make_flow()
    async with serve(world.live, limits={"waiting_calls": 2}) as served:
        close_engines(world)
        call = served.stub.RouteStream()
        for name in range(5):
            await call.write(asked(request_id=str(name), workload_class="batch"))
        full = [await soon(call.read()) for _ in range(3)]
        assert [(one.refusal.reason, one.refusal.http_status) for one in full] == [("queue_full", 429)] * 3
        assert waiting(world) == 2
        open_engines(world)
        answered = [await soon(call.read()) for _ in range(2)]
        assert all(one.placement.lease_id for one in answered)
        call.cancel()


@pytest.mark.asyncio
async def test_callers_that_report_too_late_are_told_of(make_flow: Any, asked: Any) -> None:
    """A caller that holds all leases waits for its other requests before it reports: the log says so."""
    world = make_flow()
    desk = world.live.desk
    lease = world.live.route(asked(request_id="first")).placement.lease_id
    close_engines(world)
    got: list[Any] = []
    assert isinstance(desk.ask(asked(request_id="second", workload_class="batch"), "", "", None, got.append), int)
    for _ in range(29):
        world.clock.now_s += 1.0
        world.live.tick()
    assert desk.silence.told == 0
    assert world.tell(lease, first_token=pb.FirstToken()) == "accepted"
    close_engines(world)
    for seconds, told in ((29.0, 0), (2.0, 1), (100.0, 1), (201.0, 2)):
        world.clock.now_s += seconds
        world.live.tick()
        assert desk.silence.told == told
    open_engines(world)
    world.live.desk.pump()
    assert got[0].HasField("placement")
