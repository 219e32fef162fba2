"""The client over a real gRPC channel, against a router that follows a script."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import grpc
import numpy as np
import pytest

from data.errors import SettingError
from router.channel_options import server_options
from router.client import AsyncRouterClient, ClientSettings, Placement, Query, Refusal, RefusedError, RouterClient
from router.client.attempt import ReportBuffer
from router.client.query import from_wire, to_wire
from router.client.retries import pause_after
from router.client.settings import Identity
from router.pb.v1 import router_pb2 as pb
from router.pb.v1.router_pb2_grpc import RouterServicer, add_RouterServicer_to_server

FAST = ClientSettings(deadline_s=5.0, report_deadline_s=3.0, first_backoff_s=0.001, most_backoff_s=0.002)
QUERY = Query("m@1", token_ids=(1, 2, 3), output_budget=10)


class Script(RouterServicer):
    """Fails as told, then places everything; keeps what it was told."""

    def __init__(self) -> None:
        self.route_errors: list[grpc.StatusCode] = []
        self.report_errors: list[grpc.StatusCode] = []
        self.refuse = False
        self.refuse_times = 0
        self.hint_s = 1.5
        self.asked: list[pb.RouteRequest] = []
        self.events: list[pb.ReportEvent] = []
        self.headers: list[tuple[Any, ...]] = []
        self.limits: list[float | None] = []

    def Route(  # noqa: N802
        self, request: pb.RouteRequest, context: grpc.ServicerContext
    ) -> pb.RouteReply:
        self.asked.append(request)
        self.headers.append(tuple(context.invocation_metadata()))
        self.limits.append(context.time_remaining())
        if self.route_errors:
            context.abort(self.route_errors.pop(0), "as told")
        if self.refuse or self.refuse_times:
            self.refuse_times = max(self.refuse_times - 1, 0)
            refusal = pb.Refusal(reason="queue_full", http_status=429, retry_after_s=self.hint_s)
            return pb.RouteReply(refusal=refusal)
        placement = pb.Placement(
            endpoint_id="e", lease_id=len(self.asked), ttft=pb.Quantiles(p50_s=0.1, p90_s=0.2)
        )
        return pb.RouteReply(placement=placement, workload_class="interactive")

    def Report(  # noqa: N802
        self, request_iterator: Iterator[pb.ReportEvent], context: grpc.ServicerContext
    ) -> pb.ReportSummary:
        if self.report_errors:
            context.abort(self.report_errors.pop(0), "as told")
        events = list(request_iterator)
        self.events += events
        return pb.ReportSummary(accepted=len(events))

    def kinds(self) -> list[str | None]:
        return [event.WhichOneof("event") for event in self.events]


@pytest.fixture
def script() -> Iterator[tuple[Script, str]]:
    servicer = Script()
    server = grpc.server(ThreadPoolExecutor(4), options=server_options())
    add_RouterServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield servicer, f"127.0.0.1:{port}"
    server.stop(None).wait()


def test_a_router_out_of_reach_is_asked_again_and_a_full_one_is_not(script: tuple[Script, str]) -> None:
    servicer, target = script
    servicer.route_errors = [grpc.StatusCode.UNAVAILABLE] * 2
    with RouterClient(target, FAST, generator=random.Random(1)) as client:
        assert isinstance(client.ask(QUERY), Placement)
        assert len(servicer.asked) == 3
        servicer.route_errors = [grpc.StatusCode.RESOURCE_EXHAUSTED]
        with pytest.raises(grpc.RpcError):
            client.ask(QUERY)
    assert len(servicer.asked) == 4
    assert all(limit is not None and limit <= FAST.deadline_s + 0.1 for limit in servicer.limits)


def test_leaving_the_context_always_tells_how_it_ended_exactly_once(script: tuple[Script, str]) -> None:
    servicer, target = script
    with RouterClient(target, FAST) as client:
        with client.route(QUERY) as attempt:
            attempt.first_token()
            attempt.first_token()
            attempt.finish(7, cached_tokens=2)
            attempt.finish(9)
        with client.route(QUERY):
            pass
        with pytest.raises(RuntimeError), client.route(QUERY):
            raise RuntimeError("engine died")
        with pytest.raises(TimeoutError), client.route(QUERY) as attempt:
            raise TimeoutError
    assert servicer.kinds() == ["first_token", "finished", "cancelled", "error", "cancelled"]
    assert servicer.events[1].finished == pb.Finished(output_tokens=7, cached_tokens=2)
    assert servicer.events[4].cancelled.timed_out
    assert [event.lease_id for event in servicer.events] == [1, 1, 2, 3, 4]


def test_reports_survive_a_router_that_is_away_for_a_moment(script: tuple[Script, str]) -> None:
    servicer, target = script

    async def run() -> int:
        async with AsyncRouterClient(target, FAST) as client:
            servicer.report_errors = [grpc.StatusCode.UNAVAILABLE] * 2
            for _ in range(20):
                async with client.route(QUERY) as attempt:
                    attempt.finish(1)
        return client.reports.dropped

    assert asyncio.run(run()) == 0
    assert sorted(event.lease_id for event in servicer.events) == list(range(1, 21))


def test_a_cancelled_task_is_told_as_a_cancel(script: tuple[Script, str]) -> None:
    servicer, target = script

    async def run() -> None:
        async with AsyncRouterClient(target, FAST) as client:
            placed = asyncio.Event()

            async def use() -> None:
                async with client.route(QUERY):
                    placed.set()
                    await asyncio.Event().wait()

            task = asyncio.create_task(use())
            await placed.wait()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())
    assert servicer.kinds() == ["cancelled"]


def test_a_refusal_holds_its_reason_and_opens_nothing(script: tuple[Script, str]) -> None:
    servicer, target = script
    servicer.refuse = True
    with RouterClient(target, FAST) as client:
        with pytest.raises(RefusedError) as caught, client.route(QUERY):
            raise AssertionError("not reached")
        assert caught.value.refusal == Refusal("queue_full", 429, 1.5, "")
    assert servicer.events == []


@pytest.mark.parametrize("patient", [False, True])
def test_a_patient_client_comes_again_after_the_hint_f053(script: tuple[Script, str], patient: bool) -> None:
    """F053: not before the hint, within the deadline; one without patience gets the refusal."""
    servicer, target = script
    servicer.hint_s = 0.02

    async def ask() -> Placement | Refusal:
        async with AsyncRouterClient(target, FAST) as client:
            return await client.ask(QUERY, patient=patient)

    def ask_blocking() -> Placement | Refusal:
        with RouterClient(target, FAST) as client:
            return client.ask(QUERY, patient=patient)

    for asked in (lambda: asyncio.run(ask()), ask_blocking):
        servicer.refuse_times, servicer.asked = 2, []
        started = time.monotonic()
        answer = asked()
        assert isinstance(answer, Placement) is patient
        assert len(servicer.asked) == (3 if patient else 1)
        assert not patient or time.monotonic() - started >= 0.04


def test_a_hint_beyond_the_deadline_ends_the_question_at_once_f053(script: tuple[Script, str]) -> None:
    """F053: 5 s are left and the limit resets in 7: the refusal comes now; with 30 s it is worth the wait."""
    servicer, target = script
    servicer.refuse, servicer.hint_s = True, 7.0
    started = time.monotonic()
    with RouterClient(target, FAST) as client:
        refused = client.ask(QUERY, deadline_s=5.0, patient=True)
    assert isinstance(refused, Refusal)
    assert time.monotonic() - started < 2.0
    assert len(servicer.asked) == 1
    draws = [pause_after(refused, 30.0, random.Random(seed)) for seed in range(50)]
    assert all(pause is not None and 7.0 <= pause <= 7.7 for pause in draws)
    assert len(set(draws)) > 40
    assert pause_after(replace(refused, retry_after_s=None), 30.0, random.Random(1)) is None


def test_the_token_goes_along_and_is_never_shown(script: tuple[Script, str]) -> None:
    servicer, target = script
    identity = Identity(token="secret-token")
    with RouterClient(target, FAST, identity) as client:
        client.ask(QUERY)
    assert ("authorization", "Bearer secret-token") in servicer.headers[0]
    assert "secret-token" not in repr(identity)


def test_prompts_are_packed_as_little_endian_numbers() -> None:
    wire = to_wire(Query("m@1", token_ids=np.array([1, 70_000], dtype=np.int64), block_hashes=(2**64 - 1,)))
    assert wire.token_ids == b"\x01\0\0\0\x70\x11\x01\0"
    assert wire.block_hashes == b"\xff" * 8
    assert wire.input_tokens == 2
    with pytest.raises(ValueError, match="token_ids"):
        to_wire(Query("m@1", token_ids=(2**32,)))


def test_what_was_not_predicted_is_none() -> None:
    placement = from_wire(pb.RouteReply(placement=pb.Placement(endpoint_id="e")))
    assert isinstance(placement, Placement)
    assert placement.ttft_p50_s is None
    assert placement.tpot_p90_s is None


def test_waiting_reports_are_bounded_and_the_oldest_go_first() -> None:
    buffer = ReportBuffer(2)
    for lease in range(4):
        buffer.add(pb.ReportEvent(lease_id=lease))
    taken = buffer.take()
    assert [event.lease_id for event in taken] == [2, 3]
    buffer.add(pb.ReportEvent(lease_id=9))
    buffer.put_back(taken)
    assert [event.lease_id for event in buffer.take()] == [3, 9]
    assert buffer.dropped == 3


def test_settings_out_of_range_are_refused() -> None:
    with pytest.raises(SettingError, match="deadline_s"):
        ClientSettings(deadline_s=0)
