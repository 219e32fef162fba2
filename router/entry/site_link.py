"""The way from an entry router to the router of one site: its reports in, questions and outcomes out.

Every call has a deadline. A site that falls silent is lost as soon as its reports have been missing for
``gone_s``: calls that wait there end at once, so that they can go elsewhere, and the connection is made anew,
because one that a partition has swallowed would stay so for minutes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any

import grpc
import grpc.aio

from router.channel_options import client_options
from router.client.settings import Identity
from router.entry.settings import EntrySettings
from router.entry.site_reports import HeldReports
from router.entry.site_state import Freshness, SiteState, Times
from router.pb.v1 import router_pb2 as pb
from router.pb.v1.router_pb2_grpc import RouterStub
from router.serving.call_gate import ON_BEHALF_OF

LOG = logging.getLogger("tokenfleet.entry")
FIRST_PAUSE_S, MOST_PAUSE_S = 0.1, 2.0
CONNECT_MS = 1000
OLDER_EVERY = 4
"""An older router is asked what is up in every this many report periods."""
MISSED = 3
"""Report periods without a report after which a caller in a hurry does not wait for a site."""
OLDER_TIMES = 100
"""... and after as many times whether it is still older."""
OPTIONS: list[tuple[str, int]] = [
    # Without these a connection attempt into a partition takes 20 s, and the pause after it up to two minutes.
    ("grpc.min_reconnect_backoff_ms", CONNECT_MS),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", CONNECT_MS),
    # A new channel must not find the old one's connection.
    ("grpc.use_local_subchannel_pool", 1),
]


class SiteCallError(Exception):
    """A site's router did not answer a call.

    Args:
        code: gRPC status; ``UNAVAILABLE`` where the site was lost while the call waited.
        message: What is known of why.
    """

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message)
        self.code = code

    @property
    def own_fault(self) -> bool:
        """Whether the call was wrong, so that no other site would take it."""
        return self.code in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.OUT_OF_RANGE)


class SiteLink:
    """One site's router.

    Args:
        site: Name of the site.
        address: ``host:port`` of its router.
        settings: What is waited for.
        identity: Whom the entry shows itself as.
        clock: Seconds that only go forward.
        times: Service times of each model there, for what an older router does not tell.
        changed: Told of each report, and when the site is lost.
    """

    def __init__(
        self,
        site: str,
        address: str,
        settings: EntrySettings,
        identity: Identity,
        clock: Callable[[], float],
        times: Times,
        changed: Callable[[SiteLink], None],
    ) -> None:
        self.site = site
        self.address = address
        self.settings = settings
        self.state = SiteState(site, trouble="not heard of yet")
        self.times = times
        self.held = HeldReports(settings, clock)
        """Outcomes that wait until the site can be reached."""
        self.lost = 0
        """How often the site has been lost."""
        self._identity = identity
        self._clock = clock
        self._changed = changed
        self._calls: set[Any] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._delivering = False
        self._rng = random.Random(site)
        self._channel, self.stub = self._open()

    async def follow(self) -> None:
        """Take reports in until cancelled, over every loss."""
        pause_s = FIRST_PAUSE_S
        while True:
            heard_s = self.state.heard_s
            try:
                await (self._watch_older() if self.state.older else self._take_reports())
                self._trouble("its router ended the stream of reports")
            except TimeoutError:
                self._lose("no report in time")
            except grpc.aio.AioRpcError as error:
                self._failed(error)
            except asyncio.CancelledError:
                # A stream ends so too when its channel is closed; only our own end is meant for us.
                if _cancelled():
                    raise
            if self.state.heard_s > heard_s:
                pause_s = FIRST_PAUSE_S
            await asyncio.sleep(pause_s * (0.5 + 0.5 * self._rng.random()))
            pause_s = min(2.0 * pause_s, MOST_PAUSE_S)

    async def ask(self, method: str, message: Any, timeout_s: float, owner: str) -> Any:
        """One call of a method with one answer.

        Raises:
            SiteCallError: No answer.
        """
        return await self._call(getattr(self.stub, method), message, timeout_s, owner)

    async def report(self, events: Iterable[pb.ReportEvent], owner: str) -> pb.ReportSummary:
        """Deliver outcomes.

        Raises:
            SiteCallError: They may not have arrived.
        """
        answer: pb.ReportSummary = await self._call(self.stub.Report, iter(events), self.settings.report_s, owner)
        return answer

    def reachable(self) -> bool:
        """Whether the site's router has been heard of lately and nothing is known to be wrong since."""
        freshness = self.state.freshness(self._clock(), self.settings)
        return freshness in (Freshness.FRESH, Freshness.STALE) and not self.state.trouble

    def keep(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run something that must not end with whoever began it; the event loop keeps no reference of its own."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self) -> None:
        """Deliver what is under way or held, within the time limit of a delivery, and end everything."""
        if self.held and self.reachable():
            self.keep(self.held.deliver(self.report))
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=self.settings.report_s)
        await self._channel.close()

    async def _call(self, method: Callable[..., Any], message: Any, timeout_s: float, owner: str) -> Any:
        lost = self.lost
        call = method(message, timeout=timeout_s, metadata=self._metadata(owner))
        self._calls.add(call)
        try:
            return await (self._warily(call, timeout_s) if timeout_s < self.settings.gone_s else call)
        except grpc.aio.AioRpcError as error:
            raise SiteCallError(error.code(), error.details() or "") from error
        except asyncio.CancelledError:
            if lost == self.lost or _cancelled():
                raise
            raise SiteCallError(grpc.StatusCode.UNAVAILABLE, "the site was lost") from None
        finally:
            self._calls.discard(call)
            call.cancel()

    async def _warily(self, call: Any, timeout_s: float) -> Any:
        """Wait for a call that ends before a loss of the site would be noticed.

        At half time a site that has missed some reports is given up: the other half is for another one.
        """
        waiting = asyncio.ensure_future(_answer(call))
        answered, _ = await asyncio.wait({waiting}, timeout=timeout_s / 2)
        if not answered and self.state.age_s(self._clock()) > MISSED * self.settings.period_s:
            raise SiteCallError(grpc.StatusCode.UNAVAILABLE, "reports are missing")
        return await waiting

    def _metadata(self, owner: str) -> tuple[tuple[str, str], ...]:
        return (*self._identity.metadata(), (ON_BEHALF_OF, owner)) if owner else self._identity.metadata()

    async def _take_reports(self) -> None:
        request = pb.CapacityRequest(period_s=self.settings.period_s)
        stream = self.stub.Capacity(request, metadata=self._identity.metadata())
        try:
            while (report := await _within(stream.read(), self.settings.gone_s)) is not grpc.aio.EOF:
                if self.state.take(report, self._clock()):
                    self._heard()
        finally:
            stream.cancel()

    async def _watch_older(self) -> None:
        """Live with a router that can't tell its capacity: ask what is up, again and again, until that fails."""
        limit_s = self.settings.gone_s
        # Asked more seldom than reports come, but never so seldom that it would count as gone in between.
        pause_s = min(OLDER_EVERY * self.settings.period_s, limit_s / 2)
        for _ in range(OLDER_TIMES):
            stream = self.stub.Watch(pb.WatchRequest(), metadata=self._identity.metadata())
            try:
                event = await _within(stream.read(), limit_s)
            finally:
                stream.cancel()
            if event is grpc.aio.EOF:
                break
            self.state.take_watched(event, self._clock(), self.settings.stale_s, self.times)
            self._heard()
            await asyncio.sleep(pause_s)
        # It may have been replaced by a newer one.
        self.state.older = False

    def _failed(self, error: grpc.aio.AioRpcError) -> None:
        if error.code() is grpc.StatusCode.UNIMPLEMENTED and not self.state.older:
            self.state.older = True
            LOG.warning("site %s: its router is older and tells no capacity; its load is guessed", self.site)
            return
        self.state.older = False
        self._trouble(f"{error.code().name.lower()}: {error.details()}")

    def _heard(self) -> None:
        if self.held and not self._delivering:
            self._delivering = True
            self.keep(self._deliver_held())
        self._changed(self)

    async def _deliver_held(self) -> None:
        try:
            await self.held.deliver(self.report)
        finally:
            self._delivering = False

    def _trouble(self, why: str) -> None:
        if self.state.trouble != why:
            LOG.warning("site %s at %s: %s", self.site, self.address, why)
        self.state.trouble = why
        self._changed(self)

    def _lose(self, why: str) -> None:
        self.lost += 1
        for call in list(self._calls):
            call.cancel()
        old = self._channel
        self._channel, self.stub = self._open()
        self.keep(_closed(old))
        self._trouble(why)

    def _open(self) -> tuple[grpc.aio.Channel, RouterStub]:
        options = [*client_options(), *OPTIONS]
        credentials = self._identity.credentials()
        if credentials is None:
            channel = grpc.aio.insecure_channel(self.address, options)
        else:
            channel = grpc.aio.secure_channel(self.address, credentials, options)
        return channel, RouterStub(channel)


async def _answer(call: Awaitable[Any]) -> Any:
    return await call


async def _within(answer: Awaitable[Any], limit_s: float) -> Any:
    async with asyncio.timeout(limit_s):
        return await answer


async def _closed(channel: grpc.aio.Channel) -> None:
    with contextlib.suppress(Exception):
        await channel.close()


def _cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
