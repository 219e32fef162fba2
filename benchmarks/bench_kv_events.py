"""KV events: decoding, applying, and the whole way from a ZMQ socket into the index, in processor time."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import zmq

from benchmarks.bench_prefix_index import Row, measured, random
from router.kv_events.apply import FeedSettings, HashSource, RowEvents
from router.kv_events.decode import decode_batch
from router.kv_events.feed import Feed
from router.kv_events.subscriber import EventSource, KvEventSubscriber, SubscriberSettings
from router.prefix.index import PrefixIndex
from router.prefix.warm_up import warm_up

SOURCES: tuple[HashSource, ...] = ("tokens", "engine")
BURST = 500
"""Messages that wait in the socket when it is read."""


def rows(quick: bool) -> list[Row]:
    """Rows of the result table."""
    warm_up()
    found: list[Row] = []
    for source in SOURCES:
        found += _decoded(source, 1500 if quick else 10_000)
    for source in SOURCES:
        found += _wire(source, 20_000 if quick else 200_000)
    return found


def _messages(count: int, blocks: int, block_tokens: int = 16) -> list[bytes]:
    """Each message stores a chain and removes the one before it, one event a block, as vLLM does."""
    rng, before, out = np.random.default_rng(3), list[int](), list[bytes]()
    for _ in range(count):
        hashes = random(rng, blocks).tolist()
        stored: dict[str, Any] = {
            "type": "BlockStored",
            "block_hashes": hashes,
            "parent_block_hash": None,
            "token_ids": rng.integers(0, 150_000, blocks * block_tokens).tolist(),
            "block_size": block_tokens,
            "lora_id": None,
            "medium": "GPU",
            "lora_name": None,
            "extra_keys": [None] * blocks,
            "group_idx": 0,
            "kv_cache_spec_kind": "full_attention",
        }
        removed = [
            {"type": "BlockRemoved", "block_hashes": [block], "medium": "GPU", "group_idx": 0}
            for block in reversed(before)
        ]
        out.append(msgspec.msgpack.encode([time.time(), [stored, *removed], 0]))
        before = hashes
    return out


def _decoded(source: HashSource, count: int) -> Iterator[Row]:
    for blocks in (1, 16):
        messages = _messages(count, blocks)
        events = RowEvents(PrefixIndex(64), 0, FeedSettings("m@1", 16, source))
        began_s = time.process_time()
        batches = [batch for message in messages if (batch := decode_batch(message, events.needs_tokens))]
        decode_s = time.process_time() - began_s
        began_s = time.process_time()
        for batch in batches:
            events.apply(batch, 0.0)
        apply_s = time.process_time() - began_s
        done = events.counters.stored_blocks + events.counters.removed_blocks
        number = sum(len(batch.events) for batch in batches)
        target = 1e6 if blocks > 1 else None
        note = f"decoded events, {blocks} blocks stored in one, removed one by one"
        name = f"{source}.{blocks}"
        yield measured(f"applied_blocks_per_s.{name}", done / apply_s, "blocks/s", target, least=True, note=note)
        yield measured(f"decoded_events_per_s.{name}", number / decode_s, "events/s")


def _wire(source: HashSource, count: int) -> Iterator[Row]:
    for blocks in (1, 4):
        messages = _messages(count // (blocks + 1), blocks)
        spent_s, feed = asyncio.run(_received(messages, source))
        note = f"{blocks} blocks stored and removed a message, on the event loop; {feed.counters.gaps} gaps"
        rate = len(messages) * (1 + blocks) / spent_s
        yield measured(f"wire_events_per_s.{source}.{blocks}", rate, "events/s", 1e5, least=True, note=note)


async def _received(messages: list[bytes], source: HashSource) -> tuple[float, Feed]:
    """Time of the receiving thread; bursts are sent between the measured parts."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    sender = context.socket(zmq.PUB)
    sender.setsockopt(zmq.SNDHWM, 0)
    feed = Feed(RowEvents(PrefixIndex(64), 0, FeedSettings("m@1", 16, source)))
    subscriber = KvEventSubscriber(SubscriberSettings(high_water_mark=100_000))
    with tempfile.TemporaryDirectory() as folder:
        sender.bind(f"ipc://{folder}/e.ipc")
        subscriber.add(feed, EventSource(f"ipc://{folder}/e.ipc"))
        await asyncio.sleep(0.3)
        spent_s = 0.0
        for start in range(0, len(messages), BURST):
            part = messages[start : start + BURST]
            for offset, message in enumerate(part):
                sender.send_multipart([b"topic", (start + offset).to_bytes(8, "big"), message])
            began_s = time.thread_time()
            while (feed.next_sequence or 0) < start + len(part):
                await asyncio.sleep(0)
            spent_s += time.thread_time() - began_s
        await subscriber.close()
    context.destroy(0)
    return spent_s, feed
