"""The calls of ``tokenfleet.router.v1.Router`` over an ``EntryRouter``: the same as a site's router answers."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any, NoReturn, TypeAlias

import grpc

from data.types import RefusalReason
from router.entry.entry_router import EntryRouter
from router.entry.explain_entry import explain_entry
from router.entry.report_relay import ReportRelay
from router.entry.watch_sites import watch_sites
from router.flow.unverified import UnverifiedSources
from router.pb.v1 import router_pb2 as pb
from router.pb.v1 import router_pb2_grpc as rpc
from router.serving.auth import Authenticator, Client
from router.serving.call_gate import CallGate, CallRefusedError, limited_caller, owner_of, still_wanted
from router.serving.in_parallel import in_parallel
from router.serving.server_settings import ServerLimits
from router.serving.wire_request import InvalidRequestError

Context: TypeAlias = Any
"""``grpc.aio.ServicerContext``, which carries no types."""


class EntryServicer(rpc.RouterServicer):
    """Handlers; they check who calls, hand over to the entry, and turn faults into statuses.

    Args:
        entry: The entry router.
        authenticator: Knows the callers.
        limits: Bounds. Calls that wait for a site count among ``waiting_calls``.
    """

    def __init__(self, entry: EntryRouter, authenticator: Authenticator, limits: ServerLimits) -> None:
        self.entry = entry
        self.authenticator = authenticator
        self.limits = limits
        self.calls = CallGate(limits.waiting_calls, "calls")
        self.streams = CallGate(limits.concurrent_streams, "streams")
        self.ended: Counter[tuple[str, str]] = Counter()
        """Calls that have ended, by method and gRPC status; those that the client cancelled are not told."""
        self.unverified = UnverifiedSources(limits.unverified_per_s)
        self._changed = asyncio.Event()
        entry.serving.on_change.append(self._wake_watchers)

    async def Route(self, request: pb.RouteRequest, context: Context) -> pb.RouteReply:  # noqa: N802
        """Where should this request go?"""
        try:
            with self.calls.enter():
                client = self._caller("Route", context)
                still_wanted(context)
                owner, left_s = owner_of(client, context), context.time_remaining()
                reply = await self.entry.route(request, client.tenant, owner, left_s)
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
                    message = f"requests: {len(request.requests)} are above the limit of {most}; send several"
                    raise CallRefusedError(grpc.StatusCode.RESOURCE_EXHAUSTED, message)
                still_wanted(context)
                owner, left_s = owner_of(client, context), context.time_remaining()
                replies = await self.entry.batch(request.requests, client.tenant, owner, left_s)
            self.ended["RouteBatch", "OK"] += 1
            return pb.RouteBatchReply(replies=replies)
        except CallRefusedError as error:
            await self._fail("RouteBatch", context, error)

    async def RouteStream(  # noqa: N802
        self, requests: AsyncIterator[pb.RouteRequest], context: Context
    ) -> AsyncIterator[pb.RouteReply]:
        """The same on one stream; replies come as the sites give them."""
        try:
            with self.streams.enter():
                client = self._caller("RouteStream", context)
                owner = owner_of(client, context)

                async def answer(request: pb.RouteRequest) -> pb.RouteReply:
                    return await self._one_of_many(request, client, owner, context.time_remaining())

                async for reply in in_parallel(requests, answer, self.limits.stream_window):
                    yield reply
                self.ended["RouteStream", "OK"] += 1
        except CallRefusedError as error:
            await self._fail("RouteStream", context, error)

    async def Report(self, events: AsyncIterator[pb.ReportEvent], context: Context) -> pb.ReportSummary:  # noqa: N802
        """What became of routed requests, handed on to the sites that hold the leases."""
        try:
            with self.streams.enter():
                owner = owner_of(self._caller("Report", context), context)
                summary = await ReportRelay(self.entry, owner).relay(events)
            self.ended["Report", "OK"] += 1
            return summary
        except CallRefusedError as error:
            await self._fail("Report", context, error)

    async def Explain(self, request: pb.ExplainRequest, context: Context) -> pb.ExplainReply:  # noqa: N802
        """Why would this request go where it would go: the choice of the site, and its router's reasons."""
        try:
            with self.calls.enter():
                client = self._caller("Explain", context)
                still_wanted(context)
                owner, left_s = owner_of(client, context), context.time_remaining()
                explained = await explain_entry(self.entry, request.request, client.tenant, owner, left_s)
            self.ended["Explain", "OK"] += 1
            return explained
        except (CallRefusedError, InvalidRequestError) as error:
            await self._fail("Explain", context, error)

    async def Watch(  # noqa: N802
        self,
        request: pb.WatchRequest,  # noqa: ARG002
        context: Context,
    ) -> AsyncIterator[pb.WatchEvent]:
        """What is known of every site, then each change; a slow reader gets the newest state, not every step."""
        try:
            with self.streams.enter():
                self._caller("Watch", context)
                serving, told = self.entry.serving, watch_sites(self.entry, "snapshot")
                yield told
                seen = serving.revision
                while not self.entry.draining:
                    if serving.revision == seen:
                        await self._changed.wait()
                        continue
                    seen = serving.revision
                    event = watch_sites(self.entry, serving.cause)
                    if serving.cause != "endpoints" or event.endpoints != told.endpoints:
                        told = event
                        yield told
                self.ended["Watch", "OK"] += 1
        except CallRefusedError as error:
            await self._fail("Watch", context, error)

    async def _one_of_many(
        self, request: pb.RouteRequest, client: Client, owner: str, left_s: float | None
    ) -> pb.RouteReply:
        """One request of a stream: a wrong one must not end the others."""
        try:
            with self.calls.enter():
                return await self.entry.route(request, client.tenant, owner, left_s)
        except InvalidRequestError as error:
            return self.entry.refuse(request.request_id, RefusalReason.INVALID_REQUEST, str(error))
        except CallRefusedError:
            return self.entry.refuse(request.request_id, RefusalReason.QUEUE_FULL)

    async def _fail(
        self, method: str, context: Context, error: CallRefusedError | InvalidRequestError
    ) -> NoReturn:
        code = error.code if isinstance(error, CallRefusedError) else grpc.StatusCode.INVALID_ARGUMENT
        self.ended[method, code.name] += 1
        await context.abort(code, str(error))
        raise error

    def _caller(self, method: str, context: Context) -> Client:
        """The verified client of a call."""
        return limited_caller(self.authenticator, self.unverified, method, context, self.entry.clock())

    def _wake_watchers(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
