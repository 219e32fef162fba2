"""What engines tell by themselves reaches decisions: load reports, KV events, restarts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
import zmq

from data.fleet.types import Endpoint
from router.engines.aliases import KV_USE, RUNNING, WAITING, Reading
from router.feeds.engine_feeds import EngineFeeds
from router.feeds.scrape import ScrapeSettings
from router.pb.v1 import router_pb2 as pb
from router.prompts.prefix_scope import ScopeKeys
from router.prompts.prompt_hashes import ScopedHashes

TOKENS = list(range(100, 100 + 16 * 20))


def page(running: float, waiting: float) -> Reading:
    return Reading({RUNNING: running, WAITING: waiting, KV_USE: 0.1}, (), 0)


def test_stale_endpoints_rank_below_every_fresh_one_f001(make_world: Any, endpoint: Any) -> None:
    world = make_world([endpoint(0), endpoint(1)])
    now_s = world.clock()
    world.live.states.page(0, page(30, 12), now_s)
    for _ in range(5):
        reply = world.ask()
        assert reply.placement.endpoint_id == "B/c/0"  # busy, but it is known
        assert list(reply.degraded) == []
    world.clock.now_s += 100
    reply = world.ask()
    assert "stale_metrics" in reply.degraded
    assert reply.placement.endpoint_id == "B/c/1"  # by what the router itself has in flight


def test_a_report_on_its_way_does_not_erase_what_was_sent_meanwhile_f008(make_world: Any, endpoint: Any) -> None:
    world = make_world([endpoint(0), endpoint(1)])
    sampled_s = world.clock()
    world.clock.now_s += 0.01
    first = world.ask().placement.endpoint_id
    for row in (0, 1):
        world.live.states.page(row, page(0, 0), sampled_s)
    assert world.ask().placement.endpoint_id != first


def test_a_page_of_another_process_forgets_the_old_one(make_world: Any, endpoint: Any, hashes: Any) -> None:
    world = make_world([endpoint(0)])
    blocks = hashes(*range(1, 40))
    lease = world.ask(block_hashes=blocks).placement.lease_id
    told: list[int] = []
    world.live.on_restart.append(told.append)
    for counter, started_s in ((500.0, 1000.0), (3.0, 5000.0)):
        reading = Reading({**page(0, 0).values, "started_at_s": started_s, "generation_tokens": counter}, (), 0)
        world.live.states.page(0, reading, world.clock())
        world.clock.now_s += 0.1
    assert told == [0]
    assert world.live.core.table.inflight[0] == 0
    assert world.ask(block_hashes=blocks).placement.predicted_hit_tokens == 0
    assert world.tell(lease, finished=pb.Finished(output_tokens=1)) == "accepted"
    assert world.live.core.table.inflight[0] == 1


@pytest.mark.asyncio
async def test_blocks_that_an_engine_tells_of_become_predicted_hits(
    make_world: Callable[..., Any], endpoint: Any, asked: Any, tmp_path: Any
) -> None:
    world = make_world(
        [endpoint(0, kv_events=True), endpoint(1, kv_events=True)],
        hasher=ScopedHashes(ScopeKeys(b"0123456789abcdef")),
    )
    question = asked(input_tokens=0, token_ids=np.array(TOKENS, dtype=np.uint32).tobytes())
    salt = world.live.route(question).placement.cache_salt
    address = f"ipc://{tmp_path}/events"
    context = zmq.Context()
    publisher = context.socket(zmq.PUB)
    publisher.bind(address)
    feeds = EngineFeeds(world.live, ScrapeSettings(), 0)
    try:
        feeds.apply([Endpoint("B/c/1", "B", "c", "http://127.0.0.1:9", kv_events=address)])
        stored = {
            "type": "BlockStored",
            "block_hashes": list(range(1, 21)),
            "parent_block_hash": None,
            "token_ids": TOKENS,
            "block_size": 16,
            "medium": "GPU",
            "extra_keys": [[salt], *[None] * 19],
        }
        number, deadline = 0, time.monotonic() + 20
        while world.live.index.resident(1) == 0 and time.monotonic() < deadline:
            batch = msgspec.msgpack.encode([time.time(), [stored]])
            publisher.send_multipart([b"", number.to_bytes(8, "big"), batch])
            number += 1
            await asyncio.sleep(0.02)
        reply = world.live.route(question)
        assert reply.placement.endpoint_id == "B/c/1"
        assert reply.placement.predicted_hit_tokens == len(TOKENS) - 1
        feeds.apply([])
        assert feeds.events.rows() == []
    finally:
        await feeds.close()
        publisher.close(linger=0)
        context.term()
