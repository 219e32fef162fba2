"""Two levels over gRPC: the entry chooses the site, its router the instance; outcomes find their way."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from router.entry.entry_router import FALLBACK_FLAG, STALE_FLAG
from router.entry.settings import EntrySettings
from router.pb.v1 import router_pb2 as pb
from router.serving.auth import Authenticator, Client, token_digest

pytestmark = pytest.mark.asyncio


@pytest.fixture(name="with_")
def _with(kit: Any) -> SimpleNamespace:
    return SimpleNamespace(**kit)


async def test_a_request_goes_to_the_nearest_site_and_its_outcome_to_the_lease(world: Any, with_: Any) -> None:
    reply = await world.ask(request_id="r1", session_id="s", attempt=0, api_kind="chat")
    b = world.sites["B"]
    assert (reply.placement.site, reply.request_id, reply.queued_s) == ("B", "r1", 0.0)
    assert not reply.degraded
    (lease,) = b.live.leases
    assert lease.request.session_id == "s"
    assert lease.request.origin == "A"
    assert lease.wire_id == reply.placement.lease_id
    first = pb.ReportEvent(lease_id=reply.placement.lease_id, first_token=pb.FirstToken(ttft_s=0.2))
    summary = await world.tell(first, with_.finished(reply))
    assert (summary.accepted, summary.unknown_lease, summary.invalid, summary.held) == (2, 0, 0, 0)
    assert not len(b.live.leases)
    assert not len(world.entry.leases)
    assert [row["output_tokens"] for row in b.record.outcomes] == [10]


async def test_the_same_question_again_gets_the_same_answer_and_is_charged_once(world: Any) -> None:
    first = await world.ask(request_id="r1")
    again = await world.ask(request_id="r1")
    assert first.placement.lease_id == again.placement.lease_id
    assert sum(len(site.live.leases) for site in world.sites.values()) == 1


async def test_a_killed_site_is_left_for_permitted_ones_alone(world: Any) -> None:
    await world.sites["B"].server.stop(0.0)
    replies = [await world.ask() for _ in range(4)]
    assert {reply.placement.site for reply in replies} == {"C"}
    refused = await world.ask("bank")
    assert refused.refusal.reason == "no_permitted_site"
    assert refused.refusal.http_status == 503
    assert refused.refusal.retry_after_s >= 1.0
    assert world.sites["C"].record.tenants() == {"shop"}


async def test_a_request_that_waits_at_a_site_behind_a_partition_goes_elsewhere(world: Any) -> None:
    b = world.sites["B"]
    b.proxy.cut()
    began = time.monotonic()
    reply, refused = await asyncio.gather(world.ask(), world.ask("bank"))
    assert reply.placement.site == "C"
    assert FALLBACK_FLAG in reply.degraded
    assert refused.refusal.http_status == 503
    assert refused.refusal.reason == "no_permitted_site"
    assert "B did not answer" in refused.refusal.message
    assert time.monotonic() - began < 4.0, "long before the callers' deadline of 5 s"
    assert world.entry.links["B"].lost == 1
    assert world.sites["C"].record.tenants() == {"shop"}


async def test_a_caller_in_a_hurry_does_not_wait_for_a_silent_site(with_: Any) -> None:
    """Its deadline comes before the site counts as gone: it waits half its time."""
    patient = EntrySettings(period_s=0.05, stale_s=1.0, gone_s=30.0)
    async with (
        with_.running_site("B") as b,
        with_.running_site("C") as c,
        with_.running_entry({"B": b, "C": c}, settings=patient) as world,
    ):
        b.proxy.cut()
        reply = await world.ask(timeout=3.0)
        assert reply.placement.site == "C"
        assert world.entry.links["B"].lost == 0


async def test_a_site_comes_back_carefully_after_a_partition_f114(world: Any, with_: Any) -> None:
    b = world.sites["B"]
    assert (await world.ask()).placement.site == "B"
    b.proxy.cut()
    await with_.until(lambda: not world.entry.links["B"].reachable())
    assert (await world.ask()).placement.site == "C"
    b.proxy.heal()
    await with_.until(world.entry.links["B"].reachable)
    assert (await world.ask("bank")).placement.site == "B", "the only site where it may go"
    spread = [(await world.ask(request_id=f"back{n}")).placement.site for n in range(12)]
    assert "C" in spread, "on trial, B gets a few requests at a time"

    async def home() -> bool:
        reply = await world.ask()
        lease = reply.placement.lease_id
        await world.tell(pb.ReportEvent(lease_id=lease, first_token=pb.FirstToken()), with_.finished(reply))
        return bool(reply.placement.site == "B")

    async with asyncio.timeout(10):
        while not all([await home() for _ in range(5)]):
            await asyncio.sleep(0.05)


async def test_every_request_is_answered_and_residency_holds_whatever_breaks_f113(world: Any, with_: Any) -> None:
    """F113: kills, partitions and returns while two hundred requests are under way, retries included.

    Nothing of a tenant that must stay in the EU reaches the other site, by that site's own record.
    """
    b, link, over = world.sites["B"], world.entry.links["B"], asyncio.Event()
    placed: Counter[tuple[str, str]] = Counter()
    refused: Counter[str] = Counter()

    async def caller(number: int) -> None:
        tenant, attempt = "bank" if number % 2 else "shop", 0
        while not over.is_set():
            reply = await world.ask(tenant, request_id=f"r{number}", attempt=attempt, timeout=8.0)
            attempt += 1
            if reply.HasField("placement"):
                placed[tenant, reply.placement.site] += 1
                await world.tell(with_.finished(reply))
            else:
                assert reply.refusal.http_status in (429, 503)
                assert reply.refusal.retry_after_s >= 1.0
                refused[tenant] += 1
            await asyncio.sleep(0.1)

    async def trouble() -> None:
        for lost in (1, 2):
            before = placed["bank", "B"]
            await with_.until(lambda: placed["bank", "B"] > before)  # noqa: B023
            b.proxy.cut()
            await with_.until(lambda: link.lost >= lost and refused["bank"] > 0)  # noqa: B023
            b.proxy.heal()
            await with_.until(link.reachable)
        before = refused["bank"]
        await b.server.stop(0.0)
        await with_.until(lambda: refused["bank"] > before)
        over.set()

    async with asyncio.timeout(60):
        await asyncio.gather(trouble(), *(caller(number) for number in range(20)))
    assert placed["shop", "C"] > 0
    assert placed["bank", "B"] > 0
    assert placed["bank", "C"] == 0
    assert refused["shop"] == 0
    assert world.sites["C"].record.tenants() == {"shop"}
    assert world.entry.breaches.total() == 0


async def test_a_site_router_that_knows_no_residency_is_never_believed_f113(with_: Any) -> None:
    """It serves another site's engines to everybody: the placement is taken back, the caller gets a refusal."""
    lawless = with_.fleet(tenants=())
    wrong = [with_.endpoint(0, "C")]
    async with (
        with_.running_site("B", fleet=lawless, endpoints=[*wrong, with_.endpoint(1, "B")]) as b,
        with_.running_entry({"B": b}) as world,
    ):
        b.live.core.table.ready[1] = False
        refused = await world.ask("bank")
        assert refused.refusal.http_status == 503
        assert world.entry.breaches == {"B": 1}
        await with_.until(lambda: not len(b.live.leases))
        assert [row["reason"] for row in b.record.outcomes] == ["client_cancel"]


async def test_outcomes_wait_for_a_site_that_cannot_be_reached(world: Any, with_: Any) -> None:
    reply = await world.ask("bank")
    b = world.sites["B"]
    b.proxy.cut()
    await with_.until(lambda: not world.entry.links["B"].reachable())
    summary = await world.tell(with_.finished(reply))
    assert (summary.accepted, summary.held) == (0, 1)
    assert len(b.live.leases) == 1
    b.proxy.heal()
    await with_.until(lambda: not len(b.live.leases))
    assert [row["output_tokens"] for row in b.record.outcomes] == [10]


async def test_outcomes_of_leases_from_before_a_restart_of_the_entry_arrive(with_: Any) -> None:
    async with with_.running_site("B") as b, with_.running_site("C") as c:
        async with with_.running_entry({"B": b, "C": c}) as before:
            replies = [await before.ask(), await before.ask(origin="C")]
        assert [reply.placement.site for reply in replies] == ["B", "C"]
        async with with_.running_entry({"B": b, "C": c}) as after:
            summary = await after.tell(*(with_.finished(reply) for reply in replies))
            assert summary.accepted == 2
    assert not len(b.live.leases)
    assert not len(c.live.leases)


async def test_another_client_of_the_entry_cannot_end_a_lease(with_: Any) -> None:
    clients = Authenticator([Client(name, token_sha256=token_digest(name)) for name in ("one", "two")])
    async with with_.running_site("B") as b, with_.running_entry({"B": b}, auth=clients) as world:
        one, two = ((("authorization", f"Bearer {name}"),) for name in ("one", "two"))
        reply = await world.stub.Route(with_.question(), timeout=5, metadata=one)
        event = with_.finished(reply)
        told = await world.stub.Report(iter([event]), timeout=5, metadata=two)
        assert (told.accepted, told.unknown_lease) == (0, 1)
        told = await world.stub.Report(iter([event]), timeout=5, metadata=one)
        assert (told.accepted, told.unknown_lease) == (1, 0)


async def test_batches_and_streams_are_handed_on_too(world: Any, with_: Any) -> None:
    asked = [with_.question(request_id=f"r{n}", origin="C" if n % 2 else "A") for n in range(6)]
    batch = await world.stub.RouteBatch(pb.RouteBatchRequest(requests=asked), timeout=5)
    assert [reply.request_id for reply in batch.replies] == [f"r{n}" for n in range(6)]
    assert [reply.placement.site for reply in batch.replies] == ["B", "C"] * 3
    bad = with_.question(request_id="bad", input_tokens=0)
    streamed = [reply async for reply in world.stub.RouteStream(iter([*asked, bad]), timeout=5)]
    by_id = {reply.request_id: reply for reply in streamed}
    assert by_id["bad"].refusal.reason == "invalid_request"
    assert {name: by_id[name].placement.lease_id for name in by_id if name != "bad"} == {
        reply.request_id: reply.placement.lease_id for reply in batch.replies
    }, "the same questions, so the same leases"


async def test_a_batch_falls_back_as_a_whole(world: Any, with_: Any) -> None:
    world.sites["B"].proxy.cut()
    asked = [with_.question(request_id=f"r{n}", tenant="bank" if n == 1 else "shop") for n in range(3)]
    batch = await world.stub.RouteBatch(pb.RouteBatchRequest(requests=asked), timeout=5)
    assert [reply.placement.site for reply in batch.replies] == ["C", "", "C"]
    assert batch.replies[1].refusal.reason == "no_permitted_site"


async def test_explain_tells_every_option_and_the_sites_own_reasons(world: Any, with_: Any) -> None:
    asked = pb.ExplainRequest(request=with_.question(tenant="bank"))
    told = await world.stub.Explain(asked, timeout=5)
    assert told.site_choice.rule == "fleetmind"
    assert [(one.site, one.chosen) for one in told.site_choice.options] == [("B", True)]
    assert told.site_choice.options[0].ready == 2
    assert {one.endpoint_id for one in told.candidates} == {"B/c/0", "B/c/1"}
    assert [(one.endpoint_id, one.reason) for one in told.rejected] == [("C", "not_permitted")]
    assert all(not len(site.live.leases) for site in world.sites.values())
    world.sites["B"].proxy.cut()
    await with_.until(lambda: world.entry.states["B"].age_s(world.entry.clock()) > 0.5)
    told = await world.stub.Explain(asked, timeout=5)
    assert told.decision.refusal.reason == "no_permitted_site"
    assert not world.sites["C"].record.asked, "nor is it asked for an explanation"
    assert ("B", "not_heard_of") in [(one.endpoint_id, one.reason) for one in told.rejected]


async def test_watchers_of_the_entry_see_sites_go(world: Any) -> None:
    events = world.stub.Watch(pb.WatchRequest(), timeout=10)
    first = await events.read()
    assert {(one.site, one.ready, one.metrics) for one in first.endpoints} == {
        ("B", True, "fresh"),
        ("C", True, "fresh"),
    }
    await world.sites["B"].server.stop(0.0)
    while True:
        event = await events.read()
        if {one.site for one in event.endpoints if not one.healthy} == {"B"}:
            break
    events.cancel()


async def test_more_placements_than_are_remembered_still_end_at_their_sites(with_: Any) -> None:
    settings = EntrySettings(period_s=0.05, stale_s=0.25, gone_s=0.5, leases=2)
    async with with_.running_site("B") as b, with_.running_entry({"B": b}, settings=settings) as world:
        replies = [await world.ask() for _ in range(5)]
        assert len(world.entry.leases) == 2
        assert (await world.tell(*map(with_.finished, replies))).accepted == 5
        assert not len(b.live.leases)


async def test_a_router_that_goes_down_is_left_and_still_told_of_outcomes(world: Any, with_: Any) -> None:
    reply = await world.ask("bank")
    b = world.sites["B"]
    down = asyncio.create_task(b.server.drain())
    await with_.until(lambda: world.entry.states["B"].draining)
    assert (await world.ask()).placement.site == "C"
    assert (await world.ask("bank")).refusal.http_status == 503
    assert (await world.tell(with_.finished(reply))).accepted == 1
    assert await asyncio.wait_for(down, 5) == 0


async def test_a_clock_that_is_wrong_by_days_changes_nothing(with_: Any) -> None:
    skewed = lambda: time.monotonic() + 900_000.0  # noqa: E731
    async with (
        with_.running_site("B", clock=skewed) as b,
        with_.running_site("C", clock=lambda: time.monotonic() - 900_000.0) as c,
        with_.running_entry({"B": b, "C": c}) as world,
    ):
        reply = await world.ask()
        assert reply.placement.site == "B"
        assert STALE_FLAG not in reply.degraded
        for state in world.entry.states.values():
            ages = [world.entry.clock() - pool.at_s for pool in state.pools.values()]
            assert all(0.0 <= age < 5.0 for age in ages), ages


async def test_an_older_router_of_a_site_serves_with_what_it_tells(with_: Any) -> None:
    """Version skew: no capacity reports; ready replicas come from its ``Watch``, and the load is guessed."""

    def older(live: Any) -> Any:
        server = with_.RouterServer(live, Authenticator(), with_.LOCAL, with_.LIMITS)
        calls = server.servicer
        calls.Capacity = type(calls).__mro__[1].Capacity.__get__(calls)
        return server

    async with with_.running_site("B", server=older) as b, with_.running_entry({"B": b}) as world:
        state = world.entry.states["B"]
        assert state.older
        assert state.pools["m@1"].ready == 2
        reply = await world.ask("bank")
        assert reply.placement.site == "B"
        assert STALE_FLAG in reply.degraded
        assert (await world.tell(with_.finished(reply))).accepted == 1
        b.proxy.cut()
        await with_.until(lambda: not world.entry.links["B"].reachable())
        assert (await world.ask("bank")).refusal.http_status == 503


async def test_a_callers_cancel_reaches_the_site_and_deadlines_are_passed_on(with_: Any) -> None:
    left: list[float] = []
    gone = asyncio.Event()

    async def route(request: pb.RouteRequest, context: Any) -> pb.RouteReply:
        left.append(context.time_remaining())
        try:
            return await asyncio.Future()
        except asyncio.CancelledError:
            gone.set()
            raise

    def hanging(live: Any) -> Any:
        server = with_.RouterServer(live, Authenticator(), with_.LOCAL, with_.LIMITS)
        server.servicer.Route = route
        return server

    async with with_.running_site("B", server=hanging) as b, with_.running_entry({"B": b}) as world:
        call = world.stub.Route(with_.question(tenant="bank"), timeout=3)
        await with_.until(lambda: bool(left))
        assert 0 < left[0] < 3.0
        call.cancel()
        await asyncio.wait_for(gone.wait(), 5)
        with pytest.raises(asyncio.CancelledError):
            await call
        reply = await world.ask("bank", timeout=0.5)
        assert reply.refusal.reason == "expired", "an answer before the caller's deadline, not a broken call"
