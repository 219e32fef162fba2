"""What is known of an engine's cache: by its events, by guess, from a snapshot; and when it is forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.fakes.engine import FakeEngine
from benchmarks.fakes.kv_publisher import KvPublisher
from data.fleet.types import Endpoint
from router.feeds.engine_feeds import EngineFeeds
from router.feeds.index_snapshots import IndexSnapshots
from router.feeds.scrape import ScrapeSettings
from router.prompts.prefix_scope import ScopeKeys
from router.prompts.prompt_hashes import ScopedHashes
from router.serving.fleet_state import FleetSettings
from router.serving.live_build import next_fleet_state

pytestmark = pytest.mark.asyncio

KEYS = ScopeKeys(b"0123456789abcdef")
TOKENS = list(range(100, 100 + 16 * 20))
SCRAPE = ScrapeSettings(period_s=0.02)


async def until(true: Callable[[], bool], seconds: float = 20.0) -> None:
    async with asyncio.timeout(seconds):
        while not true():
            await asyncio.sleep(0.01)


def endpoint_of(engine: FakeEngine, publisher: KvPublisher | None = None) -> Endpoint:
    found = Endpoint("B/c/0", "B", "c", engine.address)
    return found if publisher is None else replace(found, kv_events=publisher.events, kv_replay=publisher.replay)


@asynccontextmanager
async def following(world: Any, *endpoints: Endpoint, **given: Any) -> AsyncIterator[EngineFeeds]:
    feeds = EngineFeeds(world.live, SCRAPE, 0, **given)
    try:
        feeds.apply(endpoints)
        yield feeds
    finally:
        await feeds.close()


async def tell(world: Any, publisher: KvPublisher, salt: str = "") -> None:
    """Publish a prompt until the router has heard of it: a subscription takes a moment."""
    async with asyncio.timeout(20):
        while not world.live.index.resident(0):
            await publisher.stored(range(1, 21), TOKENS, 16, salt)
            await asyncio.sleep(0.02)


def question(asked: Any, **given: Any) -> Any:
    return asked(input_tokens=0, token_ids=np.array(TOKENS, dtype=np.uint32).tobytes(), **given)


async def test_a_guess_is_bounded_by_what_the_engine_reports_f034(make_world: Any, endpoint: Any) -> None:
    """F034: the fleet file says 2,500 blocks, the engine 10: only its 10 newest are believed to be there."""
    world = make_world([endpoint(0)])
    async with FakeEngine() as engine:
        engine.load.kv_blocks = 10
        async with following(world, endpoint_of(engine)):
            await until(lambda: not np.isnan(world.live.states.kv_tokens[0]))
            for block in range(1, 201):
                world.live.index.sent(0, (block,))
            assert world.live.index.resident(0) == 10
            assert world.live.index.matched_blocks((190,)).tolist()[0] == 0
            assert world.live.index.matched_blocks((191,)).tolist()[0] == 1


async def test_an_engine_that_stops_to_publish_is_guessed_again_and_the_reverse_f021(
    make_world: Any, endpoint: Any, tmp_path: Path
) -> None:
    """F021, F025: blocks, numbers and mode go together when events come or go."""
    world = make_world([endpoint(0)])
    async with (
        FakeEngine() as engine,
        KvPublisher(tmp_path, "e") as publisher,
        following(world, endpoint_of(engine)) as feeds,
    ):
        world.live.index.sent(0, (1, 2, 3))
        assert world.live.index.resident(0) == 3
        feeds.apply([endpoint_of(engine, publisher)])
        assert world.live.index.resident(0) == 0
        world.live.index.sent(0, (1, 2, 3))
        assert world.live.index.resident(0) == 0  # only events count now
        await tell(world, publisher)
        feeds.apply([endpoint_of(engine)])
        assert world.live.index.resident(0) == 0
        world.live.index.sent(0, (1, 2, 3))
        assert world.live.index.resident(0) == 3


async def test_a_restarted_router_takes_over_what_it_knew_of_the_same_engine_f027(
    make_world: Any, endpoint: Any, asked: Any, tmp_path: Path
) -> None:
    """F027: the next process has the hit at once, and a later one what the engine told while nobody listened."""
    snapshots = IndexSnapshots(tmp_path / "index", "scheme")
    async with FakeEngine() as engine, KvPublisher(tmp_path, "e") as publisher:
        engines = endpoint_of(engine, publisher)
        first = make_world([endpoint(0, kv_events=True)], hasher=ScopedHashes(KEYS))
        salt = first.live.route(question(asked)).placement.cache_salt
        async with following(first, engines) as feeds:
            await tell(first, publisher, salt)
            await until(lambda: bool(feeds.events.capture()))
            assert await snapshots.write(feeds.events) == 1
        second = make_world([endpoint(0, kv_events=True)], hasher=ScopedHashes(KEYS))
        async with following(second, engines, saved=snapshots.read()):
            await until(lambda: second.live.index.resident(0) == 20)
            reply = second.live.route(question(asked))
            assert reply.placement.predicted_hit_tokens == len(TOKENS) - 1
        await publisher.cleared()
        third = make_world([endpoint(0, kv_events=True)])
        async with following(third, engines, saved=snapshots.read()) as feeds:
            # Without a single new message: it asks what came after the number that it knows.
            await until(lambda: any(counters.replays for _, counters in feeds.events.counters()))
            assert third.live.index.resident(0) == 0


async def test_an_engine_that_restarted_meanwhile_is_not_taken_over_f025_f027(
    make_world: Any, endpoint: Any, tmp_path: Path
) -> None:
    """F025, F027: another life of the engine, or none that can be told, starts cold."""
    snapshots = IndexSnapshots(tmp_path / "index", "scheme")
    async with FakeEngine() as engine, KvPublisher(tmp_path, "e") as publisher:
        engines = endpoint_of(engine, publisher)
        first = make_world([endpoint(0, kv_events=True)])
        async with following(first, engines) as feeds:
            await tell(first, publisher)
            await until(lambda: bool(feeds.events.capture()))
            await snapshots.write(feeds.events)
        engine.load.started_at_s += 1000
        second = make_world([endpoint(0, kv_events=True)])
        async with following(second, engines, saved=snapshots.read()) as feeds:
            await until(lambda: not np.isnan(second.live.states.started_at_s(0)))
            assert second.live.index.resident(0) == 0
            assert feeds.events.capture() == []


async def test_a_snapshot_of_another_secret_or_a_disk_that_refuses_is_told(
    make_world: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = make_world([])
    async with following(world) as feeds:
        assert await IndexSnapshots(tmp_path / "index", "one").write(feeds.events) == 0
        assert IndexSnapshots(tmp_path / "index", "two").read() == ()
        assert "is not used (scheme)" in caplog.text
        with caplog.at_level("INFO"):
            assert IndexSnapshots(tmp_path / "absent", "two").read() == ()
        assert "no index snapshot" in caplog.text
        assert await IndexSnapshots(tmp_path / "no" / "index", "one").write(feeds.events) == 0
        assert "cannot be written" in caplog.text


async def test_the_engines_own_hashes_match_where_the_fleet_says_so(
    make_world: Any, endpoint: Any, asked: Any, fleet: Any, tmp_path: Path
) -> None:
    """Callers that send the engine's hashes get hits from its events; else such hashes are the callers' own."""
    own = np.arange(1, 21, dtype=np.uint64).tobytes()
    for source, hit in (("engine", len(TOKENS) - 1), ("tokens", 0)):
        world = make_world([endpoint(0, kv_events=True)], hasher=ScopedHashes(KEYS))
        models = tuple(replace(m, engine=replace(m.engine, block_hashes=source)) for m in fleet.models)
        state = next_fleet_state(world.live, replace(fleet, models=models), "f2", FleetSettings())
        world.live.apply_fleet(state, [endpoint(0, kv_events=True)])
        async with (
            FakeEngine() as engine,
            KvPublisher(tmp_path, source) as publisher,
            following(world, endpoint_of(engine, publisher)),
        ):
            await tell(world, publisher)
            reply = world.live.route(asked(input_tokens=len(TOKENS), block_hashes=own))
            assert reply.placement.predicted_hit_tokens == hit
            assert reply.placement.cache_salt.startswith("tf1-")


async def test_another_reading_of_the_hashes_begins_anew(
    make_world: Any, endpoint: Any, fleet: Any, tmp_path: Path
) -> None:
    """The fleet file now says whose hashes callers send: what was learnt under the other reading is dropped."""
    world = make_world([endpoint(0, kv_events=True)], hasher=ScopedHashes(KEYS))
    models = tuple(replace(m, engine=replace(m.engine, block_hashes="engine")) for m in fleet.models)
    async with (
        FakeEngine() as engine,
        KvPublisher(tmp_path, "e") as publisher,
        following(world, endpoint_of(engine, publisher)) as feeds,
    ):
        await tell(world, publisher)
        feeds.apply([endpoint_of(engine, publisher)])
        assert world.live.index.resident(0) == 20
        state = next_fleet_state(world.live, replace(fleet, models=models), "f2", FleetSettings())
        world.live.apply_fleet(state, [endpoint(0, kv_events=True)])
        feeds.apply([endpoint_of(engine, publisher)])
        assert world.live.index.resident(0) == 0
        await tell(world, publisher)


async def test_prompts_that_the_engine_sees_otherwise_lose_their_hits_f038(
    make_world: Any, endpoint: Any, asked: Any, tmp_path: Path
) -> None:
    """F038: over ZMQ: the engine puts a token before each chat prompt; completions keep their hits."""
    world = make_world([endpoint(0, kv_events=True)], hasher=ScopedHashes(KEYS))
    rng = np.random.default_rng(1)
    async with (
        FakeEngine() as engine,
        KvPublisher(tmp_path, "e") as publisher,
        following(world, endpoint_of(engine, publisher)),
    ):
        await tell(world, publisher)
        for number in range(60):
            chat, plain = rng.integers(1, 30_000, (2, 32), dtype=np.uint32)
            for kind, tokens in (("chat", chat), ("completions", plain)):
                world.live.route(asked(input_tokens=0, token_ids=tokens.tobytes(), api_kind=kind))
            hashes = range(1000 + 4 * number, 1002 + 4 * number)
            await publisher.stored(hashes, [0, *chat.tolist()][:32], 16)
            await publisher.stored([h + 2 for h in hashes], plain.tolist(), 16)
            await asyncio.sleep(0.002)
        await until(lambda: not world.live.credit.book.credited(0, "chat"))
        assert world.live.credit.book.result(0, "chat").position == 0
        assert world.live.credit.book.credited(0, "completions")
