"""Compile, or load from the disk cache, every compiled step of the index before the first request needs it."""

from __future__ import annotations

import numpy as np

from router.kv_events.apply import FeedSettings, HashSource, RowEvents
from router.kv_events.decode import Batch
from router.kv_events.messages import MapRemoved, MapStored
from router.prefix.index import PrefixIndex, PrefixIndexSettings
from router.prompts.block_hashes import hash_tokens, scope_hashes
from router.prompts.prefix_scope import MediaSpan, Scope


def warm_up() -> None:
    """Run each step once on a small index: some ten seconds on the first start of a version, then a fraction."""
    scope = Scope("warm-up", block_tokens=2)
    tokens = list(range(6))
    image = [MediaSpan("image", 0, 2)]
    for ids in (tokens, np.frombuffer(np.array(tokens, dtype="<u4").tobytes(), dtype=np.uint32)):
        hash_tokens(ids, scope, image)  # type: ignore[arg-type]
    index = PrefixIndex(2, PrefixIndexSettings(max_bytes=1 << 20))
    sources: tuple[HashSource, ...] = ("tokens", "engine")
    for source in sources:
        events = RowEvents(index, 0, FeedSettings("warm-up", 2, source))
        _one_life(events)
        events.aliases.load(*events.aliases.pairs())
    index.set_capacity(1, 4)
    for start in range(3):
        index.sent(1, hash_tokens([start, start, *tokens], scope), float(start))
    index.set_capacity(1, 2)
    index.expire(1, 2.0)
    index.matched_blocks(scope_hashes(bytes(16), scope))
    index.held(1)
    index.holds(1, 5)
    for block in range(3000):
        index.stored(0, [block])
    index.cleared(0)
    while index.upkeep():
        pass


def _one_life(events: RowEvents) -> None:
    """Store, store behind it, remove, clear."""
    first = MapStored([1, 2], None, [0, 1, 2, 3], 2)
    second = MapStored([3], 2, [4, 5], 2)
    events.apply(Batch(0.0, 0, [first, second, MapRemoved([3])]), 0.0)
    events.clear()
