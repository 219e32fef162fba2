"""A real vLLM engine on CPU: its events, its hashes and its own count of cached tokens against ours.

Runs if ``TOKENFLEET_VLLM_PYTHON`` names an interpreter with vLLM for CPU.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest

from benchmarks.tiny_model import write_tiny_model
from benchmarks.vllm_engine import BLOCK_TOKENS, NAME, PYTHON, VllmEngine
from router.kv_events.apply import FeedSettings, RowEvents
from router.kv_events.feed import Feed
from router.kv_events.messages import Stored
from router.kv_events.subscriber import EventSource, KvEventSubscriber
from router.prefix.index import PrefixIndex
from router.prompts.block_hashes import hash_tokens
from router.prompts.hash_parity import Parity, check_stored
from router.prompts.prefix_scope import PUBLIC, Scope, ScopeKeys

VOCABULARY = 250

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON, reason="TOKENFLEET_VLLM_PYTHON is not set"),
]


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[tuple[VllmEngine, aiohttp.ClientSession]]:
    engine = VllmEngine(write_tiny_model(folder / "model"), folder)
    try:
        engine.start()
        await asyncio.to_thread(engine.wait_ready)
        async with aiohttp.ClientSession() as session:
            yield engine, session
    finally:
        engine.stop()


def source_of(engine: VllmEngine) -> EventSource:
    return EventSource(engine.kv_events, engine.kv_replay)


async def cached_tokens(
    engine: VllmEngine, session: aiohttp.ClientSession, tokens: Sequence[int], salt: str
) -> int:
    body: dict[str, Any] = {"model": NAME, "prompt": list(tokens), "max_tokens": 1, "temperature": 0}
    if salt:
        body["cache_salt"] = salt
    async with session.post(f"{engine.address}/v1/completions", json=body) as answer:
        assert answer.status == 200, await answer.text()
        usage = (await answer.json())["usage"]
    return int((usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0)


async def settled(feed: Feed) -> None:
    """Wait until no message has come for a moment."""
    before = -1
    while before != feed.counters.batches or feed.replay_from is not None:
        before = feed.counters.batches
        await asyncio.sleep(0.3)


@pytest.mark.asyncio
async def test_predicted_hits_equal_the_engines_own_count_f030_f038_f146(tmp_path: Path) -> None:
    """F030, F038, F146: over tenants, growing prompts and evictions, what we predict is what the engine reuses."""
    rng, keys = np.random.default_rng(0), ScopeKeys(b"0123456789abcdef")
    index, subscriber, first_events = PrefixIndex(2), KvEventSubscriber(), list[Stored]()
    feed = Feed(RowEvents(index, 0, FeedSettings("tiny@1", BLOCK_TOKENS), on_stored=first_events.append))
    async with running(tmp_path) as (engine, session):
        subscriber.add(feed, source_of(engine))
        await asyncio.sleep(0.5)
        prompts = [rng.integers(0, VOCABULARY, 700).tolist() for _ in range(40)]
        salts = [PUBLIC, keys.of("a"), keys.of("b"), keys.of("a", "narrow")]
        pairs, hits = list[tuple[int, int]](), 0
        for turn in range(220):
            prompt, salt = prompts[int(rng.integers(40))], salts[int(rng.integers(4))]
            length = int(rng.integers(100, 700))
            hashes = hash_tokens(prompt[:length], Scope("tiny@1", "", salt, BLOCK_TOKENS))
            held = int(index.matched_blocks(hashes)[0])
            # The engine computes the last token anew even if all of the prompt is cached.
            predicted = min(held, (length - 1) // BLOCK_TOKENS) * BLOCK_TOKENS
            cached = await cached_tokens(engine, session, prompt[:length], salt)
            pairs.append((predicted, cached))
            hits += cached > 0
            await settled(feed) if turn % 40 == 0 else await asyncio.sleep(0.05)
        assert [pair for pair in pairs if pair[0] != pair[1]] == []
        assert hits > 50
        assert feed.counters.removed_blocks > 100
        counters = feed.counters
        assert (counters.malformed, counters.orphans, counters.not_comparable, counters.gaps) == (0, 0, 0, 0)
        assert (counters.unknown_removes, index.missing_parents, counters.restarts) == (0, 0, 0)
        event = first_events[0]
        tokens = getattr(event, "token_ids", [])
        salt = (event.extra_keys or [None])[0]
        found = check_stored(event, tokens, BLOCK_TOKENS, salt[0] if salt else None)
        assert found.parity is Parity.AGREES
        await late_joiner(engine, feed, index)
        await subscriber.close()


async def late_joiner(engine: VllmEngine, feed: Feed, index: PrefixIndex) -> None:
    """A second router that starts now learns the same from the engine's buffer."""
    other, subscriber = PrefixIndex(1), KvEventSubscriber()
    late = Feed(RowEvents(other, 0, FeedSettings("tiny@1", BLOCK_TOKENS)))
    subscriber.add(late, source_of(engine))
    await asyncio.sleep(0.5)
    async with aiohttp.ClientSession() as session:
        await cached_tokens(engine, session, list(range(64)), PUBLIC)
    await settled(late)
    await settled(feed)
    assert not late.warming
    assert late.next_sequence == feed.next_sequence
    assert sorted(other.held(0).tolist()) == sorted(index.held(0).tolist())
    await subscriber.close()
