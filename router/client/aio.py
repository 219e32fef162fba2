"""The client for asyncio programs."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import TypeVar

import grpc
import grpc.aio

from router.channel_options import client_options
from router.client.attempt import Attempt, RefusedError, ReportBuffer
from router.client.query import Placement, Query, Refusal, from_wire, to_wire
from router.client.retries import backoffs, may_retry, pause_after
from router.client.settings import ClientSettings, Identity
from router.pb.v1 import router_pb2 as pb
from router.pb.v1.router_pb2_grpc import RouterStub

ReplyT = TypeVar("ReplyT")


class AsyncRouterClient:
    """Asks one router. Use it as ``async with``: leaving delivers what is still to be reported.

    Args:
        target: ``host:port`` of the router.
        settings: Time limits and bounds.
        identity: Credentials.
        generator: Jitter of retries.
    """

    def __init__(
        self,
        target: str,
        settings: ClientSettings | None = None,
        identity: Identity | None = None,
        generator: random.Random | None = None,
    ) -> None:
        self.settings = settings or ClientSettings()
        identity = identity or Identity()
        options = client_options(self.settings.message_bytes)
        credentials = identity.credentials()
        self._channel = (
            grpc.aio.insecure_channel(target, options)
            if credentials is None
            else grpc.aio.secure_channel(target, credentials, options)
        )
        self._stub = RouterStub(self._channel)
        self._metadata = identity.metadata()
        self._random = generator or random.Random()
        self.reports = ReportBuffer(self.settings.most_waiting_reports)
        self._delivery: asyncio.Task[None] | None = None

    async def __aenter__(self) -> AsyncRouterClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Deliver waiting reports within their deadline, then close the connection."""
        if self._delivery is not None:
            await self._delivery
        self.reports.dropped += len(self.reports.take())
        await self._channel.close()

    async def ask(
        self, query: Query, deadline_s: float | None = None, *, patient: bool = False
    ) -> Placement | Refusal:
        """Where should this go? A placement holds a lease: end it with reports, or use ``route``.

        Args:
            query: The request.
            deadline_s: Time limit of all of this; ``None`` = that of the settings.
            patient: After a refusal that says when to come again, wait so long and ask again, if the deadline
                leaves time for it; else the refusal is given at once.

        Raises:
            grpc.aio.AioRpcError: The router could not be reached in time, or the call itself is wrong.
        """
        message = to_wire(query)
        end_s = time.monotonic() + (self.settings.deadline_s if deadline_s is None else deadline_s)
        while True:
            reply = await self._retried(
                lambda timeout: self._stub.Route(message, timeout=timeout, metadata=self._metadata),
                max(end_s - time.monotonic(), 0.001),
            )
            answer = from_wire(reply)
            pause_s = pause_after(answer, end_s - time.monotonic(), self._random) if patient else None
            if pause_s is None:
                return answer
            await asyncio.sleep(pause_s)

    @asynccontextmanager
    async def route(
        self, query: Query, deadline_s: float | None = None, *, patient: bool = False
    ) -> AsyncIterator[Attempt]:
        """Ask as :meth:`ask`, hand out the attempt, and report how it ended, whatever happens inside.

        Raises:
            RefusedError: There is no place.
            grpc.aio.AioRpcError: As ``ask``.
        """
        answer = await self.ask(query, deadline_s, patient=patient)
        if isinstance(answer, Refusal):
            raise RefusedError(answer)
        attempt = Attempt(answer, self.send)
        try:
            yield attempt
        except BaseException as error:
            attempt.end_by(error)
            raise
        attempt.end_by(None)

    async def explain(self, query: Query, deadline_s: float | None = None) -> pb.ExplainReply:
        """Why would this request go where it would go? Nothing is charged."""
        message = pb.ExplainRequest(request=to_wire(query))
        return await self._retried(
            lambda timeout: self._stub.Explain(message, timeout=timeout, metadata=self._metadata), deadline_s
        )

    async def watch(self) -> AsyncIterator[pb.WatchEvent]:
        """What serves now, then each change, until the caller stops or the connection ends."""
        async for event in self._stub.Watch(pb.WatchRequest(), metadata=self._metadata):
            yield event

    def send(self, event: pb.ReportEvent) -> None:
        """Deliver an event soon: alone when idle, together with others under load."""
        self.reports.add(event)
        if self._delivery is None or self._delivery.done():
            self._delivery = asyncio.get_running_loop().create_task(self._deliver())

    async def _deliver(self) -> None:
        limit_s = self.settings.report_deadline_s
        give_up_s = time.monotonic() + limit_s
        pauses = backoffs(self.settings, self._random)
        while self.reports:
            events = self.reports.take()
            try:
                await self._stub.Report(iter(events), timeout=limit_s, metadata=self._metadata)
                give_up_s = time.monotonic() + limit_s
            except grpc.aio.AioRpcError as error:
                if not may_retry(error.code()):
                    self.reports.dropped += len(events)
                    continue
                self.reports.put_back(events)
                pause_s = next(pauses)
                if time.monotonic() + pause_s >= give_up_s:
                    return
                await asyncio.sleep(pause_s)

    async def _retried(self, call: Callable[[float], Awaitable[ReplyT]], deadline_s: float | None) -> ReplyT:
        end_s = time.monotonic() + (self.settings.deadline_s if deadline_s is None else deadline_s)
        for pause_s in backoffs(self.settings, self._random):
            try:
                return await call(max(end_s - time.monotonic(), 0.001))
            except grpc.aio.AioRpcError as error:
                if not may_retry(error.code()) or time.monotonic() + pause_s >= end_s:
                    raise
            await asyncio.sleep(pause_s)
        raise AssertionError("pauses never end")
