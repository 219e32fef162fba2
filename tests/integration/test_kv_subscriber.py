"""The subscriber against publishers that speak real ZMQ: events, replay, restarts and junk."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq
import zmq.asyncio

from data.errors import SettingError
from router.kv_events.apply import FeedSettings, RowEvents
from router.kv_events.feed import Feed
from router.kv_events.fleet_feeds import FleetFeeds
from router.kv_events.subscriber import EventSource, KvEventSubscriber, SubscriberSettings
from router.prefix.index import PrefixIndex
from router.prompts.block_hashes import hash_tokens
from router.prompts.prefix_scope import Scope

BLOCK = 4
TOPIC = "kv@engine@m"


class Engine:
    """Publishes as vLLM does, with a buffer that can be asked for again."""

    def __init__(self, folder: Path, name: str = "e") -> None:
        self.source = EventSource(f"ipc://{folder}/{name}.ipc", f"ipc://{folder}/{name}-replay.ipc", TOPIC)
        self._context = zmq.asyncio.Context()
        self._pub = self._context.socket(zmq.PUB)
        self._pub.setsockopt(zmq.SNDHWM, 0)
        self._pub.bind(self.source.endpoint)
        self._router = self._context.socket(zmq.ROUTER)
        self._router.setsockopt(zmq.SNDHWM, 0)
        self._router.bind(self.source.replay_endpoint)
        self.buffer: list[tuple[int, bytes]] = []
        self.sequence = 0
        self.asked: list[int] = []
        self.answers = True
        self._task = asyncio.get_running_loop().create_task(self._serve())

    async def publish(self, *events: Any, lose: bool = False, topic: str = TOPIC, made_at_s: float = 1.0) -> None:
        payload = msgspec.msgpack.encode([made_at_s + self.sequence, list(events), 0])
        self.buffer.append((self.sequence, payload))
        if not lose:
            await self._pub.send_multipart([topic.encode(), self.sequence.to_bytes(8, "big"), payload])
        self.sequence += 1

    async def junk(self, *frames: bytes) -> None:
        await self._pub.send_multipart([TOPIC.encode(), *frames])

    async def _serve(self) -> None:
        while True:
            who, _, start = await self._router.recv_multipart()
            self.asked.append(int.from_bytes(start, "big"))
            if not self.answers:
                continue
            for sequence, payload in self.buffer:
                if sequence >= self.asked[-1]:
                    frames = [who, b"", TOPIC.encode(), sequence.to_bytes(8, "big"), payload]
                    await self._router.send_multipart(frames)
            await self._router.send_multipart([who, b"", TOPIC.encode(), (2**64 - 1).to_bytes(8, "big"), b""])

    async def close(self) -> None:
        self._task.cancel()
        self._pub.close(0)
        self._router.close(0)
        self._context.term()


class Rig:
    def __init__(self, replay_deadline_s: float) -> None:
        self.index = PrefixIndex(4)
        self.subscriber = KvEventSubscriber(SubscriberSettings(replay_deadline_s=replay_deadline_s, look_s=0.05))
        self.feeds: dict[int, Feed] = {}

    def add(self, row: int, source: EventSource) -> Feed:
        events = RowEvents(self.index, row, FeedSettings("m@1", BLOCK))
        feed = self.feeds[row] = Feed(events)
        self.subscriber.add(feed, source)
        return feed


@asynccontextmanager
async def rig_and_engine(folder: Path, replay_deadline_s: float = 30.0) -> AsyncIterator[tuple[Rig, Engine, Feed]]:
    rig, engine = Rig(replay_deadline_s), Engine(folder)
    feed = rig.add(0, engine.source)
    try:
        # A publisher drops what it sends before the subscription has reached it.
        while feed.next_sequence is None:
            await engine.publish(stored(9000 + engine.sequence))
            await asyncio.sleep(0.01)
        await until(lambda: feed.next_sequence == engine.sequence)
        yield rig, engine, feed
    finally:
        await rig.subscriber.close()
        await engine.close()


async def until(true: Callable[[], bool], within_s: float = 10.0) -> None:
    async with asyncio.timeout(within_s):
        while not true():
            await asyncio.sleep(0.005)


def tokens_of(i: int) -> list[int]:
    return list(range(10 * i, 10 * i + BLOCK))


def stored(i: int) -> dict[str, Any]:
    return {"type": "BlockStored", "block_hashes": [i], "token_ids": tokens_of(i), "block_size": BLOCK}


def hit(rig: Rig, i: int, row: int = 0) -> int:
    return int(rig.index.matched_blocks(hash_tokens(tokens_of(i), Scope("m@1", block_tokens=BLOCK)))[row])


@pytest.mark.asyncio
async def test_events_reach_the_index_and_leave_it(tmp_path: Path) -> None:
    async with rig_and_engine(tmp_path) as (rig, engine, feed):
        for i in range(500):
            await engine.publish(stored(i))
        await until(lambda: feed.next_sequence == engine.sequence)
        assert all(hit(rig, i) == 1 for i in range(500))
        await engine.publish({"type": "BlockRemoved", "block_hashes": [7]})
        await engine.publish(stored(1), topic="another")
        await until(lambda: hit(rig, 7) == 0)
        await engine.publish({"type": "AllBlocksCleared"})
        await until(lambda: rig.index.resident(0) == 0)
        assert feed.counters.malformed == 0
        assert not rig.subscriber.warming()


@pytest.mark.asyncio
async def test_lost_messages_are_replayed(tmp_path: Path) -> None:
    async with rig_and_engine(tmp_path) as (rig, engine, feed):
        at = engine.sequence
        await engine.publish(stored(1))
        for i in range(2, 50):
            await engine.publish(stored(i), lose=True)
        for i in range(50, 60):
            await engine.publish(stored(i))
        await until(lambda: feed.next_sequence == engine.sequence)
        assert all(hit(rig, i) == 1 for i in range(1, 60))
        assert (feed.counters.gaps, feed.counters.lost) == (1, 0)
        assert engine.asked[-1] == at + 1


@pytest.mark.asyncio
async def test_a_replay_that_is_never_answered_clears_the_endpoint(tmp_path: Path) -> None:
    async with rig_and_engine(tmp_path, 0.3) as (rig, engine, feed):
        await engine.publish(stored(1))
        await until(lambda: feed.next_sequence == engine.sequence)
        engine.answers = False
        await engine.publish(stored(2), lose=True)
        await engine.publish(stored(3))
        await until(lambda: feed.next_sequence == engine.sequence)
        assert (hit(rig, 1), hit(rig, 3)) == (0, 1)
        assert feed.counters.lost == 1


@pytest.mark.asyncio
async def test_junk_on_the_socket_is_counted(tmp_path: Path) -> None:
    async with rig_and_engine(tmp_path) as (rig, engine, feed):
        for frames in ((b"x",), (b"1234567", b"x"), ()):
            await engine.junk(*frames)
        await until(lambda: feed.counters.malformed == 3)
        await engine.publish(stored(1))
        await until(lambda: hit(rig, 1) == 1)


@pytest.mark.asyncio
async def test_a_silent_and_a_removed_endpoint_harm_nobody(tmp_path: Path) -> None:
    async with rig_and_engine(tmp_path) as (rig, engine, _):
        rig.add(1, EventSource(f"ipc://{tmp_path}/nobody.ipc"))
        assert rig.subscriber.warming() == [1]
        assert len(rig.subscriber) == 2
        rig.subscriber.remove(1)
        rig.subscriber.remove(3)
        assert len(rig.subscriber) == 1
        await engine.publish(stored(1))
        await until(lambda: hit(rig, 1) == 1)


@pytest.mark.asyncio
async def test_the_loop_is_given_back_under_a_flood(tmp_path: Path) -> None:
    """Other work on the loop goes on while thousands of messages wait."""
    async with rig_and_engine(tmp_path) as (rig, engine, feed):
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        for i in range(3000):
            await engine.publish(stored(i))
        task = asyncio.get_running_loop().create_task(other())
        await until(lambda: feed.next_sequence == engine.sequence)
        task.cancel()
        assert turns > 3
        assert rig.index.resident(0) >= 3000


@pytest.mark.asyncio
async def test_a_fleet_connects_guesses_and_is_captured_f021_f025(tmp_path: Path) -> None:
    """F021, F025: a row that changes hands starts empty, whether it is told by events or guessed before."""
    index, engine = PrefixIndex(2), Engine(tmp_path)
    seen = list[int]()
    feeds = FleetFeeds(index, KvEventSubscriber(), lambda row, event: seen.append(row))
    settings = FeedSettings("m@1", BLOCK)
    index.set_capacity(0, 100)
    index.sent(0, [1, 2, 3])
    assert feeds.connect(0, "w1", "a", settings, engine.source) is None
    assert index.resident(0) == 0
    index.sent(0, [1, 2, 3])
    assert index.resident(0) == 0
    while not index.resident(0):
        await engine.publish(stored(engine.sequence))
        await asyncio.sleep(0.01)
    await until(lambda: not feeds.warming())
    (saved,) = feeds.capture()
    assert (saved.endpoint_id, saved.incarnation, len(saved.own)) == ("w1", "a", index.resident(0))
    assert set(seen) == {0}
    assert [name for name, counters in feeds.counters() if counters.stored_blocks] == ["w1"]
    assert feeds.connect(0, "w1", "a", settings, engine.source, saved) is None
    assert index.resident(0) == len(saved.own)
    assert feeds.connect(0, "w1", "b", settings, engine.source, saved) == "incarnation"
    assert index.resident(0) == 0
    feeds.guess(0, 2)
    assert feeds.capture() == []
    index.sent(0, [1, 2, 3])
    assert index.resident(0) == 2
    await feeds.close()
    await engine.close()


def test_settings_and_addresses_are_checked() -> None:
    for wrong in ({"slice_s": 0.0}, {"high_water_mark": 0}, {"look_s": 1e9}, {"max_message_bytes": 1}):
        with pytest.raises(SettingError, match=next(iter(wrong))):
            SubscriberSettings(**wrong)  # type: ignore[arg-type]
    with pytest.raises(SettingError, match="ZMQ address"):
        EventSource("http://engine")
    with pytest.raises(SettingError, match="replay_endpoint"):
        EventSource("tcp://engine:1", "udp://x")
