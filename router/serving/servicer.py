"""The calls of ``tokenfleet.router.v1.Router`` over a ``LiveRouter``."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NoReturn, TypeAlias

import grpc

from router.flow.flow_desk import FlowDesk
from router.flow.turn import Turn
from router.flow.unverified import UnverifiedSources
from router.pb.v1 import router_pb2 as pb
from router.pb.v1 import router_pb2_grpc as rpc
from router.serving.auth import Authenticator, Client
from router.serving.call_gate import CallGate, CallRefusedError, limited_caller, owner_of, still_wanted
from router.serving.capacity_source import capacity_period_s
from router.serving.explain import explain_route
from router.serving.in_parallel import in_parallel
from router.serving.lease_reports import ReportResult
from router.serving.live import LiveRouter
from router.serving.server_settings import ServerLimits
from router.serving.watch_events import watch_event
from router.serving.wire_request import InvalidRequestError

Context: TypeAlias = Any
"""``grpc.aio.ServicerContext``, which carries no types."""
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
                owner = owner_of(client, context)
                if self._turn is None:
                    reply = self.live.route(request, client.tenant, owner)
            if self._turn is not None:
                reply = await self._turn.reply(request, client.tenant, owner, context.time_remaining())
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
                owner = owner_of(client, context)
                self.ended["RouteBatch", "OK"] += 1
                return pb.RouteBatchReply(replies=[self._reply(one, client, owner) for one in request.requests])
        except CallRefusedError as error:
            await self._fail("RouteBatch", context, error)

    async def RouteStream(  # noqa: N802
        self, requests: AsyncIterator[pb.RouteRequest], context: Context
    ) -> AsyncIterator[pb.RouteReply]:
        """The same on one stream. With a flow control, replies come as their turn comes."""
        try:
            with self.streams.enter():
                client = self._caller("RouteStream", context)
                owner = owner_of(client, context)
                if self._turn is None:
                    async for request in requests:
                        yield self._reply(request, client, owner)
                else:
                    async for reply in in_parallel(
                        requests, self._in_turn(client, owner, context), self.limits.stream_window
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
                owner = owner_of(self._caller("Report", context), context)
                taken = 0
                async for event in events:
                    counts[self.live.reports.take(event, owner, self.live.clock())] += 1
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

    async def Capacity(  # noqa: N802
        self, request: pb.CapacityRequest, context: Context
    ) -> AsyncIterator[pb.CapacityReport]:
        """What the sites behind this router can do, now and each period; that it goes down is told at once."""
        try:
            with self.streams.enter():
                self._caller("Capacity", context)
                period_s = capacity_period_s(request)
                while True:  # also while it goes down: until then outcomes are taken
                    yield self.live.capacity.report()
                    await self._pause(period_s)
        except CallRefusedError as error:
            await self._fail("Capacity", context, error)

    async def _pause(self, period_s: float) -> None:
        """Wait until the next report is due."""
        draining, loop = self.live.draining, asyncio.get_running_loop()
        end_s = loop.time() + period_s
        while self.live.draining == draining and (left_s := end_s - loop.time()) > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self._changed.wait()

    async def _fail(
        self, method: str, context: Context, error: CallRefusedError | InvalidRequestError
    ) -> NoReturn:
        """End the call with a status."""
        code = error.code if isinstance(error, CallRefusedError) else grpc.StatusCode.INVALID_ARGUMENT
        self.ended[method, code.name] += 1
        await context.abort(code, str(error))
        raise error

    def _reply(self, request: pb.RouteRequest, client: Client, owner: str) -> pb.RouteReply:
        """One of several requests: a wrong one must not end the others."""
        try:
            return self.live.route(request, client.tenant, owner)
        except InvalidRequestError as error:
            return self.live.invalid(request.request_id, error)

    def _in_turn(
        self, client: Client, owner: str, context: Context
    ) -> Callable[[pb.RouteRequest], Awaitable[pb.RouteReply]]:
        async def answer(request: pb.RouteRequest) -> pb.RouteReply:
            if self._turn is None:
                return self._reply(request, client, owner)
            try:
                return await self._turn.reply(request, client.tenant, owner, context.time_remaining())
            except InvalidRequestError as error:
                return self.live.invalid(request.request_id, error)
            except CallRefusedError:
                return self.live.full(request.request_id)

        return answer

    def _caller(self, method: str, context: Context) -> Client:
        """The verified client of a call."""
        return limited_caller(self.authenticator, self.unverified, method, context, self.live.clock())

    def _wake_watchers(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
