"""A real vLLM engine on CPU: its events, its hashes and its own count of cached tokens against ours.

Runs if ``TOKENFLEET_VLLM_PYTHON`` names an interpreter with vLLM for CPU and ``TOKENFLEET_VLLM_MODEL`` a directory
with the configuration and tokenizer of a small model (weights are made up by the engine).
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest

from router.block_hashes import hash_tokens
from router.hash_parity import Parity, check_stored
from router.kv_events.apply import FeedSettings, RowEvents
from router.kv_events.feed import Feed
from router.kv_events.messages import Stored
from router.kv_events.subscriber import EventSource, KvEventSubscriber
from router.prefix.index import PrefixIndex
from router.prefix_scope import PUBLIC, Scope, ScopeKeys

PYTHON, MODEL = os.environ.get("TOKENFLEET_VLLM_PYTHON"), os.environ.get("TOKENFLEET_VLLM_MODEL")
BLOCK, VOCABULARY, CACHE_BYTES = 32, 250, 16 << 20

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (PYTHON and MODEL), reason="TOKENFLEET_VLLM_PYTHON or TOKENFLEET_VLLM_MODEL is not set"
    ),
]


class Engine:
    """One engine process and the HTTP session to it."""

    def __init__(self, folder: Path) -> None:
        self.source = EventSource(f"ipc://{folder}/kv.ipc", f"ipc://{folder}/replay.ipc", "kv@test")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._log = (folder / "engine.log").open("wb")
        self._process = subprocess.Popen(
            [str(PYTHON), "-m", "vllm.entrypoints.openai.api_server", *self._options()],
            env={**os.environ, **self._environment()},
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )

    def _options(self) -> list[str]:
        events = {
            "enable_kv_cache_events": True,
            "publisher": "zmq",
            "endpoint": self.source.endpoint,
            "replay_endpoint": self.source.replay_endpoint,
            "topic": self.source.topic,
        }
        options = {
            "--model": MODEL,
            "--served-model-name": "tiny",
            "--load-format": "dummy",
            "--host": "127.0.0.1",
            "--port": self.port,
            "--dtype": "bfloat16",
            "--max-model-len": 8192,
            "--max-num-seqs": 16,
            "--block-size": BLOCK,
            "--kv-cache-memory-bytes": CACHE_BYTES,
            "--prefix-caching-hash-algo": "sha256_cbor",
            "--kv-events-config": json.dumps(events),
        }
        flags = ["--enforce-eager", "--enable-prefix-caching", "--enable-prompt-tokens-details"]
        return [*flags, *(str(part) for pair in options.items() for part in pair)]

    def _environment(self) -> dict[str, str]:
        return {
            "VLLM_TARGET_DEVICE": "cpu",
            "VLLM_NO_USAGE_STATS": "1",
            "HF_HUB_OFFLINE": "1",
            "TRANSFORMERS_OFFLINE": "1",
            "VLLM_HOST_IP": "127.0.0.1",
            "GLOO_SOCKET_IFNAME": "lo",
            "OMP_NUM_THREADS": "1",
        }

    async def ready(self, session: aiohttp.ClientSession) -> None:
        async with asyncio.timeout(400):
            while True:
                assert self._process.poll() is None, "the engine ended; see engine.log"
                try:
                    async with session.get(f"http://127.0.0.1:{self.port}/health") as answer:
                        if answer.status == 200:
                            return
                except aiohttp.ClientError:
                    pass
                await asyncio.sleep(0.5)

    async def cached_tokens(self, session: aiohttp.ClientSession, tokens: Sequence[int], salt: str) -> int:
        body: dict[str, Any] = {"model": "tiny", "prompt": list(tokens), "max_tokens": 1, "temperature": 0}
        if salt:
            body["cache_salt"] = salt
        async with session.post(f"http://127.0.0.1:{self.port}/v1/completions", json=body) as answer:
            assert answer.status == 200, await answer.text()
            usage = (await answer.json())["usage"]
        return int((usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0)

    def stop(self) -> None:
        self._process.send_signal(signal.SIGINT)
        self._process.wait(60)
        self._log.close()


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[tuple[Engine, aiohttp.ClientSession]]:
    engine = Engine(folder)
    try:
        async with aiohttp.ClientSession() as session:
            await engine.ready(session)
            yield engine, session
    finally:
        engine.stop()


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
    feed = Feed(RowEvents(index, 0, FeedSettings("tiny@1", BLOCK), on_stored=first_events.append))
    async with running(tmp_path) as (engine, session):
        subscriber.add(feed, engine.source)
        await asyncio.sleep(0.5)
        prompts = [rng.integers(0, VOCABULARY, 700).tolist() for _ in range(40)]
        salts = [PUBLIC, keys.of("a"), keys.of("b"), keys.of("a", "narrow")]
        pairs, hits = list[tuple[int, int]](), 0
        for turn in range(220):
            prompt, salt = prompts[int(rng.integers(40))], salts[int(rng.integers(4))]
            length = int(rng.integers(100, 700))
            hashes = hash_tokens(prompt[:length], Scope("tiny@1", "", salt, BLOCK))
            held = int(index.matched_blocks(hashes)[0])
            # The engine computes the last token anew even if all of the prompt is cached.
            predicted = min(held, (length - 1) // BLOCK) * BLOCK
            cached = await engine.cached_tokens(session, prompt[:length], salt)
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
        found = check_stored(event, tokens, BLOCK, salt[0] if salt else None)
        assert found.parity is Parity.AGREES
        await late_joiner(engine, feed, index)
        await subscriber.close()


async def late_joiner(engine: Engine, feed: Feed, index: PrefixIndex) -> None:
    """A second router that starts now learns the same from the engine's buffer."""
    other, subscriber = PrefixIndex(1), KvEventSubscriber()
    late = Feed(RowEvents(other, 0, FeedSettings("tiny@1", BLOCK)))
    subscriber.add(late, engine.source)
    await asyncio.sleep(0.5)
    async with aiohttp.ClientSession() as session:
        await engine.cached_tokens(session, list(range(64)), PUBLIC)
    await settled(late)
    await settled(feed)
    assert not late.warming
    assert late.next_sequence == feed.next_sequence
    assert sorted(other.held(0).tolist()) == sorted(index.held(0).tolist())
    await subscriber.close()
