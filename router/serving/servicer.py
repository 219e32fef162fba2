"""The calls of ``tokenfleet.router.v1.Router`` over a ``LiveRouter``."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NoReturn, TypeAlias, TypeVar

import grpc

from router.flow.flow_desk import FlowDesk
from router.flow.turn import Turn
from router.flow.unverified import UnverifiedSources, source_of
from router.pb.v1 import router_pb2 as pb
from router.pb.v1 import router_pb2_grpc as rpc
from router.serving.auth import Authenticator, Client
from router.serving.call_gate import CallGate, CallRefusedError, caller, still_wanted
from router.serving.explain import explain_route
from router.serving.lease_reports import ReportResult
from router.serving.live import LiveRouter
from router.serving.server_settings import ServerLimits
from router.serving.watch_events import watch_event
from router.serving.wire_request import InvalidRequestError

Context: TypeAlias = Any
"""``grpc.aio.ServicerContext``, which carries no types."""
AnswerT = TypeVar("AnswerT")
YIELD_EVERY = 64
"""Reports taken in a row before others get the event loop."""


class RouterServicer(rpc.RouterServicer):
    """Handlers; they check who calls, hand over to the router, and turn faults into statuses.

    Args:
        live: The router.
        authenticator: Knows the callers.
        limits: Bounds.
        desk: Flow control; ``None`` = every request is decided on at once.
    """

    def __init__(
        self,
        live: LiveRouter,
        authenticator: Authenticator,
        limits: ServerLimits,
        desk: FlowDesk | None = None,
    ) -> None:
        self.live = live
        self.authenticator = authenticator
        self.limits = limits
        self.calls = CallGate(limits.concurrent_calls, "calls")
        self.streams = CallGate(limits.concurrent_streams, "streams")
        self.ended: Counter[tuple[str, str]] = Counter()
        """Calls that have ended, by method and gRPC status; those that the client cancelled are not told."""
        self.waiting = CallGate(limits.waiting_calls, "waiting calls")
        """Calls that wait for their turn; they do not count among ``calls``."""
        self.unverified = UnverifiedSources(limits.unverified_per_s)
        self._turn = None if desk is None else Turn(desk, self.waiting)
        self._changed = asyncio.Event()
        live.serving.on_change.append(self._wake_watchers)

    async def Route(self, request: pb.RouteRequest, context: Context) -> pb.RouteReply:  # noqa: N802
        """Where should this request go?"""
        try:
            with self.calls.enter():
                client = self._caller("Route", context)
                still_wanted(context)
                if self._turn is None:
                    reply = self.live.route(request, client.tenant, client.name)
            if self._turn is not None:
                reply = await self._turn.reply(request, client.tenant, client.name, context.time_remaining())
            self.ended["Route", "OK"] += 1
            return reply
        except (CallRefusedError, InvalidRequestError) as error:
            await self._fail("Route", context, error)

    async def RouteBatch(self, request: pb.RouteBatchRequest, context: Context) -> pb.RouteBatchReply:  # noqa: N802
        """Several requests in one call, decided in order."""
        try:
            with self.calls.enter():
                client = self._caller("RouteBatch", context)
                most = self.limits.batch_requests
                if len(request.requests) > most:
                    message = (
                        f"requests: {len(request.requests)} are above the limit of {most}; send several batches"
                    )
                    raise CallRefusedError(grpc.StatusCode.RESOURCE_EXHAUSTED, message)
                still_wanted(context)
                self.ended["RouteBatch", "OK"] += 1
                return pb.RouteBatchReply(replies=[self._reply(each, client) for each in request.requests])
        except CallRefusedError as error:
            await self._fail("RouteBatch", context, error)

    async def RouteStream(  # noqa: N802
        self, requests: AsyncIterator[pb.RouteRequest], context: Context
    ) -> AsyncIterator[pb.RouteReply]:
        """The same on one stream. With a flow control, replies come as their turn comes."""
        try:
            with self.streams.enter():
                client = self._caller("RouteStream", context)
                if self._turn is None:
                    async for request in requests:
                        yield self._reply(request, client)
                else:
                    async for reply in _in_parallel(
                        requests, self._in_turn(client, context), self.limits.stream_window
                    ):
                        yield reply
                self.ended["RouteStream", "OK"] += 1
        except CallRefusedError as error:
            await self._fail("RouteStream", context, error)

    async def Report(self, events: AsyncIterator[pb.ReportEvent], context: Context) -> pb.ReportSummary:  # noqa: N802
        """What became of routed requests."""
        counts = dict.fromkeys(ReportResult, 0)
        try:
            with self.streams.enter():
                client = self._caller("Report", context)
                taken = 0
                async for event in events:
                    counts[self.live.reports.take(event, client.name, self.live.clock())] += 1
                    taken += 1
                    if taken % YIELD_EVERY == 0:
                        await asyncio.sleep(0)
        except CallRefusedError as error:
            await self._fail("Report", context, error)
        self.ended["Report", "OK"] += 1
        return pb.ReportSummary(
            accepted=counts[ReportResult.ACCEPTED],
            unknown_lease=counts[ReportResult.UNKNOWN_LEASE],
            invalid=counts[ReportResult.INVALID],
        )

    async def Explain(self, request: pb.ExplainRequest, context: Context) -> pb.ExplainReply:  # noqa: N802
        """Why would this request go where it would go?"""
        try:
            with self.calls.enter():
                client = self._caller("Explain", context)
                still_wanted(context)
                explained = explain_route(self.live, request.request, client.tenant)
                self.ended["Explain", "OK"] += 1
                return explained
        except (CallRefusedError, InvalidRequestError) as error:
            await self._fail("Explain", context, error)

    async def Watch(  # noqa: N802
        self,
        request: pb.WatchRequest,  # noqa: ARG002
        context: Context,
    ) -> AsyncIterator[pb.WatchEvent]:
        """What serves now, then each change; a slow reader gets the newest state, not every step."""
        try:
            with self.streams.enter():
                self._caller("Watch", context)
                serving = self.live.serving
                seen = serving.revision
                yield watch_event(self.live, "snapshot")
                while not self.live.draining:
                    if serving.revision == seen:
                        await self._changed.wait()
                        continue
                    seen = serving.revision
                    yield watch_event(self.live, serving.cause)
                self.ended["Watch", "OK"] += 1
        except CallRefusedError as error:
            await self._fail("Watch", context, error)

    async def _fail(
        self, method: str, context: Context, error: CallRefusedError | InvalidRequestError
    ) -> NoReturn:
        """End the call with a status."""
        code = error.code if isinstance(error, CallRefusedError) else grpc.StatusCode.INVALID_ARGUMENT
        self.ended[method, code.name] += 1
        await context.abort(code, str(error))
        raise error

    def _reply(self, request: pb.RouteRequest, client: Client) -> pb.RouteReply:
        """One of several requests: a wrong one must not end the others."""
        try:
            return self.live.route(request, client.tenant, client.name)
        except InvalidRequestError as error:
            return self.live.invalid(request.request_id, error)

    def _in_turn(self, client: Client, context: Context) -> Callable[[pb.RouteRequest], Awaitable[pb.RouteReply]]:
        async def answer(request: pb.RouteRequest) -> pb.RouteReply:
            if self._turn is None:
                return self._reply(request, client)
            try:
                return await self._turn.reply(request, client.tenant, client.name, context.time_remaining())
            except InvalidRequestError as error:
                return self.live.invalid(request.request_id, error)
            except CallRefusedError:
                return self.live.full(request.request_id)

        return answer

    def _caller(self, method: str, context: Context) -> Client:
        """The verified client of a call; callers whose identity does not hold are limited by where they come from.

        Nothing is charged to a tenant for them.
        """
        try:
            return caller(self.authenticator, method, context)
        except CallRefusedError as error:
            if error.code is grpc.StatusCode.UNAUTHENTICATED:
                wait_s = self.unverified.take(source_of(context.peer()), self.live.clock())
                if wait_s > 0:
                    message = f"too many calls without valid credentials; try again in {wait_s:.0f} s"
                    raise CallRefusedError(grpc.StatusCode.RESOURCE_EXHAUSTED, message) from error
            raise

    def _wake_watchers(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


async def _in_parallel(
    requests: AsyncIterator[pb.RouteRequest],
    answer: Callable[[pb.RouteRequest], Awaitable[AnswerT]],
    window: int,
) -> AsyncIterator[AnswerT]:
    """Answers as they come, with at most ``window`` requests under way; a full window stops the reading."""
    done: asyncio.Queue[AnswerT | BaseException | None] = asyncio.Queue()
    room = asyncio.Semaphore(window)

    async def one(request: pb.RouteRequest) -> None:
        try:
            done.put_nowait(await answer(request))
        except Exception as error:
            done.put_nowait(error)

    async def read() -> None:
        try:
            async with asyncio.TaskGroup() as group:
                async for request in requests:
                    await room.acquire()
                    group.create_task(one(request))
        finally:
            done.put_nowait(None)

    reader = asyncio.create_task(read())
    try:
        while (result := await done.get()) is not None:
            room.release()
            if isinstance(result, BaseException):
                raise result
            yield result
        await reader
    finally:
        reader.cancel()
