"""Receive KV events over ZMQ on the event loop: bounded queues, short slices, replay of what was missed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import zmq
import zmq.asyncio

from data.errors import SettingError
from router.kv_events.feed import Feed

SCHEMES = ("tcp://", "ipc://", "inproc://")
Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class SubscriberSettings:
    """Bounds of the subscriber.

    Attributes:
        high_water_mark: Messages queued for each endpoint, 1 to 1,000,000; what comes above is dropped by ZMQ and
            seen as a gap.
        max_message_bytes: Longer messages end the connection, 1 KiB or more.
        slice_s: The loop is given back after this long, 0.0001 to 0.1 s.
        replay_deadline_s: A replay that takes longer is given up, 0.01 to 600 s.
        look_s: Sockets are looked at this often even without a wake-up, 0.01 to 60 s.

    Raises:
        SettingError: If a value is out of range.
    """

    high_water_mark: int = 10_000
    max_message_bytes: int = 64 << 20
    slice_s: float = 0.0015
    replay_deadline_s: float = 5.0
    look_s: float = 1.0

    def __post_init__(self) -> None:
        ranges = {
            "high_water_mark": (1, 1_000_000),
            "max_message_bytes": (1024, 1 << 40),
            "slice_s": (0.0001, 0.1),
            "replay_deadline_s": (0.01, 600),
            "look_s": (0.01, 60),
        }
        for name, (least, most) in ranges.items():
            value = getattr(self, name)
            if not least <= value <= most:
                raise SettingError("out of range", field=name, value=value, expected=f"{least} to {most}")


@dataclass(frozen=True, slots=True)
class EventSource:
    """Where an endpoint publishes.

    Attributes:
        endpoint: ZMQ address of the publisher.
        replay_endpoint: ZMQ address that sends messages again; empty = none, gaps then cost the entries.
        topic: Messages of other topics are not received; empty = all.

    Raises:
        SettingError: If an address has no known scheme.
    """

    endpoint: str
    replay_endpoint: str = ""
    topic: str = ""

    def __post_init__(self) -> None:
        for name in ("endpoint", "replay_endpoint"):
            address = getattr(self, name)
            if not address.startswith(SCHEMES) and (address or name == "endpoint"):
                raise SettingError("not a ZMQ address", field=name, value=address, expected="tcp://… or ipc://…")


@dataclass(slots=True)
class _Link:
    feed: Feed
    source: EventSource
    socket: zmq.Socket[bytes]
    descriptor: int
    replay: asyncio.Task[None] | None = None
    again: asyncio.Handle | None = None
    closed: bool = False


class KvEventSubscriber:
    """Receives the events of many endpoints; each is known by its row. Lives on one event loop.

    Args:
        settings: Bounds.
        clock: Unix time, compared with the time stamps of the engines.
    """

    def __init__(self, settings: SubscriberSettings | None = None, clock: Clock = time.time) -> None:
        self._settings = settings or SubscriberSettings()
        self._clock = clock
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._links: dict[int, _Link] = {}
        self._looking: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._links)

    def add(self, feed: Feed, source: EventSource) -> None:
        """Subscribe to an endpoint, in place of what its row was subscribed to before. Call it on the loop."""
        row = feed.events.row
        self.remove(row)
        settings, socket = self._settings, self._context.socket(zmq.SUB)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.RCVHWM, settings.high_water_mark)
        socket.setsockopt(zmq.MAXMSGSIZE, settings.max_message_bytes)
        socket.setsockopt(zmq.TCP_KEEPALIVE, 1)
        socket.setsockopt(zmq.SUBSCRIBE, source.topic.encode())
        socket.connect(source.endpoint)
        link = self._links[row] = _Link(feed, source, socket, int(socket.getsockopt(zmq.FD)))
        loop = asyncio.get_running_loop()
        loop.add_reader(link.descriptor, self._drain, link)
        link.again = loop.call_soon(self._drain, link)
        if feed.replay_from is not None:
            link.replay = loop.create_task(self._replay(link))
        if self._looking is None:
            self._looking = loop.call_later(settings.look_s, self._look)

    def remove(self, row: int) -> None:
        """Stop receiving for a row, if it was added. Its entries stay: clear them in the index."""
        link = self._links.pop(row, None)
        if link is None:
            return
        link.closed = True
        asyncio.get_running_loop().remove_reader(link.descriptor)
        for task in (link.again, link.replay):
            if task is not None:
                task.cancel()
        link.socket.close()

    def warming(self) -> list[int]:
        """Rows whose history has not been seen through yet."""
        return [row for row, link in list(self._links.items()) if link.feed.warming]

    async def close(self) -> None:
        """Stop receiving altogether."""
        replays = [link.replay for link in self._links.values() if link.replay is not None]
        for row in list(self._links):
            self.remove(row)
        if self._looking is not None:
            self._looking.cancel()
        for replay in replays:
            with suppress(asyncio.CancelledError):
                await replay
        self._context.term()

    def _look(self) -> None:
        """A wake-up of a ZMQ socket is an edge, not a level: make up for one that was missed."""
        for link in list(self._links.values()):
            self._drain(link)
        self._looking = asyncio.get_running_loop().call_later(self._settings.look_s, self._look)

    def _drain(self, link: _Link) -> None:
        """Take messages until there are none or the slice is over."""
        if link.closed:
            return
        until_s = time.perf_counter() + self._settings.slice_s
        while time.perf_counter() < until_s:
            try:
                frames = link.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            except zmq.ZMQError:
                link.feed.counters.malformed += 1
                return
            message = _parsed(frames)
            if message is None:
                link.feed.counters.malformed += 1
                continue
            link.feed.receive(*message, self._clock())
            if link.feed.replay_from is not None and link.replay is None:
                link.replay = asyncio.get_running_loop().create_task(self._replay(link))
        if link.again is not None:
            link.again.cancel()
        link.again = asyncio.get_running_loop().call_soon(self._drain, link)

    async def _replay(self, link: _Link) -> None:
        """Ask for what was missed until all is in order or the deadline has passed."""
        feed = link.feed
        while feed.replay_from is not None:
            if link.source.replay_endpoint:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._settings.replay_deadline_s):
                        await self._ask(link, feed.replay_from)
            feed.replay_ended(self._clock())
        link.replay = None

    async def _ask(self, link: _Link, start: int) -> None:
        context = zmq.asyncio.Context(shadow=self._context)
        socket = context.socket(zmq.DEALER)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.MAXMSGSIZE, self._settings.max_message_bytes)
        try:
            socket.connect(link.source.replay_endpoint)
            await socket.send_multipart([b"", start.to_bytes(8, "big")])
            since_s = time.perf_counter()
            while True:
                message = _parsed(await socket.recv_multipart())
                if message is None or not message[1]:
                    return
                link.feed.replayed(*message, self._clock())
                if time.perf_counter() - since_s > self._settings.slice_s:
                    await asyncio.sleep(0)
                    since_s = time.perf_counter()
        finally:
            socket.close()


def _parsed(frames: list[bytes]) -> tuple[int, bytes] | None:
    """Sequence number and payload: the last two frames; what is before (topic, delimiter) does not matter."""
    if len(frames) < 2 or len(frames[-2]) != 8:
        return None
    return int.from_bytes(frames[-2], "big"), frames[-1]
