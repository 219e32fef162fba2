"""Every call over a real channel: answers, limits, health, reflection, drain."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import grpc
import pytest
from google.protobuf import json_format
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from router.channel_options import client_options
from router.pb.v1 import router_pb2 as pb
from router.serving.wire_request import WireLimits
from router.slomax.registry import flow_factory

pytestmark = pytest.mark.asyncio
SERVICE = "tokenfleet.router.v1.Router"
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


async def events(*items: pb.ReportEvent) -> AsyncIterator[pb.ReportEvent]:
    for item in items:
        yield item


async def status_of(call: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code(), caught.value.details() or ""


async def health(channel: Any, service: str = SERVICE) -> int:
    stub = health_pb2_grpc.HealthStub(channel)
    return int((await stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=2)).status)


async def test_route_report_and_explain(world: Any, serve: Any, asked: Any) -> None:
    async with serve(world.live) as served:
        reply = await served.stub.Route(asked(request_id="r1"))
        lease = reply.placement.lease_id
        summary = await served.stub.Report(
            events(
                pb.ReportEvent(lease_id=lease, first_token=pb.FirstToken(ttft_s=0.1)),
                pb.ReportEvent(lease_id=lease, finished=pb.Finished(output_tokens=2**32 - 1)),
                pb.ReportEvent(lease_id=lease, finished=pb.Finished(output_tokens=20)),
                pb.ReportEvent(lease_id=lease, finished=pb.Finished(output_tokens=20)),
                pb.ReportEvent(lease_id=5, cancelled=pb.Cancelled()),
            )
        )
        assert (summary.accepted, summary.unknown_lease, summary.invalid) == (2, 2, 1)
        explained = await served.stub.Explain(pb.ExplainRequest(request=asked()))
        assert sum(each.chosen for each in explained.candidates) == 1
    assert world.counts() == 0


async def test_a_batch_is_decided_in_order_and_a_wrong_request_spoils_no_other(
    world: Any, serve: Any, asked: Any
) -> None:
    async with serve(world.live, limits={"batch_requests": 5}) as served:
        requests = [asked(request_id=f"r{i}") for i in range(4)]
        requests.insert(2, asked(request_id="bad", block_hashes=b"123"))
        reply = await served.stub.RouteBatch(pb.RouteBatchRequest(requests=requests))
        assert [each.request_id for each in reply.replies] == ["r0", "r1", "bad", "r2", "r3"]
        assert reply.replies[2].refusal.reason == "invalid_request"
        assert reply.replies[2].refusal.http_status == 400
        assert len({each.placement.endpoint_id for each in reply.replies if each.HasField("placement")}) == 4
        code, text = await status_of(served.stub.RouteBatch(pb.RouteBatchRequest(requests=[*requests, asked()])))
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "limit of 5" in text


async def test_a_stream_answers_every_request_and_survives_a_wrong_one(world: Any, serve: Any, asked: Any) -> None:
    async with serve(world.live) as served:
        call = served.stub.RouteStream()
        names = [f"r{i}" for i in range(20)]
        for name in names:
            await call.write(asked(request_id=name, input_tokens=0 if name == "r7" else 100))
        await call.done_writing()
        replies = {reply.request_id: reply async for reply in call}
    assert set(replies) == set(names)
    assert replies.pop("r7").refusal.reason == "invalid_request"
    assert all(reply.HasField("placement") for reply in replies.values())


async def test_a_wrong_unary_request_is_a_status_that_names_the_field(world: Any, serve: Any, asked: Any) -> None:
    async with serve(world.live) as served:
        code, text = await status_of(served.stub.Route(asked(block_hashes=b"123")))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert "block_hashes" in text


async def test_a_prompt_of_a_million_tokens_needs_only_its_hashes_f120(
    make_world: Any, serve: Any, asked: Any
) -> None:
    world = make_world()
    limits = WireLimits()
    async with serve(world.live) as served:
        long = asked(input_tokens=1_000_000, block_hashes=b"12345678" * 62_500)
        assert (await served.stub.Route(long)).refusal.reason == "context_too_long"
        whole = asked(input_tokens=0, token_ids=b"\x00\x00\x00\x01" * 1_000_000)
        assert (await served.stub.Route(whole)).refusal.reason == "context_too_long"
        more = asked(input_tokens=0, token_ids=b"\x00\x00\x00\x01" * (limits.token_ids + 1))
        started = time.monotonic()
        code, text = await status_of(served.stub.Route(more))
        assert time.monotonic() - started < 1.0
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert f"limit of {limits.token_ids}" in text
        assert "use block_hashes" in text
        assert await health(served.channel) == SERVING


async def test_a_message_over_the_transport_limit_is_refused_with_the_limit_f124(
    world: Any, serve: Any, asked: Any
) -> None:
    async with serve(world.live) as served:
        code, text = await status_of(served.stub.Route(asked(token_ids=bytes(9_000_000)), timeout=5))
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "8388608" in text
        assert (await served.stub.Route(asked())).HasField("placement")


async def test_beyond_the_limit_calls_end_at_once_and_health_answers_f119(
    make_world: Any, serve: Any, asked: Any
) -> None:
    """F119: 200 calls that would wait, room for eight: the others end at once."""
    world = make_world(flow=flow_factory("slomax", {}))
    world.live.core.table.inflight[:] = world.live.core.table.max_seqs
    async with serve(world.live, limits={"waiting_calls": 8}) as served:

        async def ended() -> object:
            try:
                return (await served.stub.Route(asked(), timeout=2.0)).refusal.reason
            except grpc.aio.AioRpcError as error:
                return error.code()

        calls = [asyncio.ensure_future(ended()) for _ in range(200)]
        ends = await asyncio.gather(*calls[100:])
        assert ends.count(grpc.StatusCode.RESOURCE_EXHAUSTED) >= 92
        assert await health(served.channel) == SERVING
        ends += await asyncio.gather(*calls[:100])
        assert ends.count(grpc.StatusCode.RESOURCE_EXHAUSTED) == 192
        while served.server.servicer.waiting.running:
            await asyncio.sleep(0.01)
        world.live.core.table.inflight[:] = 0
        # Nobody waited for the eight any more: they were not carried out.
        assert len(world.live.desk) == 0
        assert (await served.stub.Route(asked())).HasField("placement")
        assert world.live.core.table.inflight.sum() == 1


async def test_a_flow_control_lets_replies_overtake_within_the_window(
    make_world: Any, serve: Any, asked: Any, endpoint: Any
) -> None:
    """Four of six requests are read; one for a model with a free engine is answered before those that wait."""
    free = endpoint(1)
    free = replace(free, spec=replace(free.spec, model="m@2", endpoint_id="free"))
    world = make_world([endpoint(0), free], flow=flow_factory("slomax", {}))
    table = world.live.core.table
    table.inflight[0] = table.max_seqs[0]
    async with serve(world.live, limits={"stream_window": 4}) as served:
        call = served.stub.RouteStream()
        for name in range(6):
            await call.write(asked(request_id=f"r{name}", model="m@2" if name == 2 else "m@1"))
        await call.done_writing()
        assert (await call.read()).request_id == "r2"
        while len(world.live.desk) < 4:
            await asyncio.sleep(0.01)
        assert sum(queue.requests for queue in world.live.desk.status().queues) == 4  # the sixth is not read
        table.inflight[0] = 0
        assert {(await call.read()).request_id for _ in range(5)} == {"r0", "r1", "r3", "r4", "r5"}


async def test_health_tells_whether_a_decision_is_safe(make_world: Any, serve: Any, endpoint: Any) -> None:
    world = make_world([])
    async with serve(world.live) as served:
        assert await health(served.channel) == NOT_SERVING
        assert await health(served.channel, "") == NOT_SERVING
        assert await health(served.channel, "liveness") == SERVING
        world.live.apply_endpoints([endpoint(0)])
        watch = health_pb2_grpc.HealthStub(served.channel).Watch(health_pb2.HealthCheckRequest(service=SERVICE))
        async for seen in watch:
            if seen.status == SERVING:
                break
        watch.cancel()
        assert await health(served.channel) == SERVING


async def test_reflection_lists_the_service(world: Any, serve: Any) -> None:
    async with serve(world.live) as served:
        stub = reflection_pb2_grpc.ServerReflectionStub(served.channel)
        call = stub.ServerReflectionInfo(
            iter([reflection_pb2.ServerReflectionRequest(list_services="")])  # type: ignore[arg-type]
        )
        found = await call.read()
        call.cancel()
    names = {each.name for each in found.list_services_response.service}
    assert {SERVICE, "grpc.health.v1.Health"} <= names


async def test_watch_gives_a_snapshot_and_then_each_change(world: Any, serve: Any, endpoint: Any) -> None:
    async with serve(world.live) as served:
        call = served.stub.Watch(pb.WatchRequest())
        first = await call.read()
        assert (first.cause, len(first.endpoints), first.fleet_digest) == ("snapshot", 4, "f1")
        assert first.endpoints[0].metrics == "never_seen"
        world.live.apply_endpoints([endpoint(i) for i in range(5)])
        second = await call.read()
        assert second.cause == "endpoints"
        assert second.revision > first.revision
        assert len(second.endpoints) == 5
        # A change that nobody announced, such as a failed health check.
        world.live.core.table.healthy[0] = False
        third = await call.read()
        assert [each.healthy for each in third.endpoints] == [False, True, True, True, True]
        call.cancel()


async def test_a_drain_flips_health_refuses_newcomers_and_waits_for_reports(
    world: Any, serve: Any, asked: Any
) -> None:
    async with serve(world.live, limits={"drain_s": 5.0}) as served:
        open_lease = (await served.stub.Route(asked())).placement.lease_id
        stream = served.stub.RouteStream()
        await stream.write(asked(request_id="before"))
        before = (await stream.read()).placement.lease_id
        drain = asyncio.ensure_future(served.server.drain())
        while await health(served.channel) == SERVING:
            await asyncio.sleep(0.01)
        assert (await served.stub.Route(asked())).refusal.reason == "shutting_down"
        await stream.write(asked(request_id="after"))
        assert (await stream.read()).refusal.reason == "shutting_down"
        await stream.done_writing()
        assert not drain.done()
        summary = await served.stub.Report(
            events(
                pb.ReportEvent(lease_id=open_lease, finished=pb.Finished(output_tokens=3)),
                pb.ReportEvent(lease_id=before, cancelled=pb.Cancelled()),
            )
        )
        assert summary.accepted == 2
        assert await asyncio.wait_for(drain, 5.0) == 0
    assert [row["reason"] for row in world.sink.outcomes] == [None, "client_cancel"]


async def test_a_drain_ends_on_time_and_writes_down_what_was_open(world: Any, serve: Any, asked: Any) -> None:
    async with serve(world.live, limits={"drain_s": 0.05}) as served:
        await served.stub.Route(asked())
        assert await asyncio.wait_for(served.server.drain(), 5.0) == 1
    assert [row["reason"] for row in world.sink.outcomes] == ["router_stopped"]


async def test_leases_expire_without_any_call(world: Any, serve: Any, asked: Any) -> None:
    async with serve(world.live) as served:
        await served.stub.Route(asked())
        world.clock.now_s += 1000
        while len(world.live.leases):
            await asyncio.sleep(0.01)
    assert world.counts() == 0


async def test_pings_of_the_shipped_client_are_welcome_f118(world: Any, serve: Any, asked: Any) -> None:
    fast = [(name, value) for name, value in client_options() if not name.startswith("grpc.keepalive_time")]
    fast.append(("grpc.keepalive_time_ms", 10_000))
    async with serve(world.live, options=fast) as served:
        assert (await served.stub.Route(asked())).HasField("placement")
    server = dict(served.server.channel_options)
    assert server["grpc.http2.min_ping_interval_without_data_ms"] < dict(fast)["grpc.keepalive_time_ms"]
    assert (
        dict(client_options())["grpc.keepalive_time_ms"] > server["grpc.http2.min_ping_interval_without_data_ms"]
    )
    assert server["grpc.keepalive_permit_without_calls"] == 1


@pytest.mark.parametrize("name", ['quote"s', "line\nbreak", "Zürich 東京", "\\back", "{}", "' or 1=1"])
async def test_answers_about_odd_names_parse_as_json_f127(world: Any, serve: Any, asked: Any, name: str) -> None:
    async with serve(world.live) as served:
        for fields in ({"tenant": name}, {"model": name}, {"request_id": name, "tenant": "nowhere"}):
            reply = await served.stub.Route(asked(**fields))
            parsed = json.loads(json_format.MessageToJson(reply))
            assert parsed["refusal"]["reason"] in ("unknown_tenant", "unknown_model", "no_permitted_site")
