"""Whatever arrives as a KV event: it is decoded or counted, never raised."""

from __future__ import annotations

import time
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from router.kv_events.apply import FeedSettings, RowEvents
from router.kv_events.decode import decode_batch
from router.kv_events.feed import Feed
from router.kv_events.trtllm import decode_trtllm
from router.prefix.index import PrefixIndex

JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)
HASH = st.integers(-(2**63), 2**64 - 1) | st.binary(max_size=32)
EVENT = st.one_of(
    JUNK,
    st.fixed_dictionaries(
        {"type": st.sampled_from(["BlockStored", "BlockRemoved", "AllBlocksCleared", "Other"])},
        optional={
            "block_hashes": st.lists(HASH, max_size=4) | JUNK,
            "parent_block_hash": HASH | JUNK,
            "token_ids": st.lists(st.integers(-2, 2**33), max_size=8) | JUNK,
            "block_size": st.integers(-1, 4) | JUNK,
            "lora_id": JUNK,
            "lora_name": JUNK,
            "medium": st.sampled_from(["GPU", "CPU", None]),
            "extra_keys": JUNK,
            "group_idx": JUNK,
        },
    ),
    st.tuples(st.just("BlockStored"), st.lists(HASH, max_size=3), HASH | st.none(), JUNK, st.integers(0, 4)).map(
        list
    ),
    st.tuples(st.just("BlockRemoved"), st.lists(HASH, max_size=3)).map(list),
)


def fresh(source: Any = "tokens") -> RowEvents:
    return RowEvents(PrefixIndex(1), 0, FeedSettings("m@1", 2, source))


@settings(deadline=None)
@given(st.binary(max_size=200), st.booleans())
def test_random_bytes_never_raise(payload: bytes, tokens: bool) -> None:
    decode_batch(payload, tokens)
    decode_trtllm(payload, 0.0)


@settings(deadline=None, max_examples=300)
@given(st.lists(EVENT, max_size=4) | JUNK, st.sampled_from(["tokens", "engine"]), JUNK)
def test_any_message_is_applied_or_counted(events: Any, source: str, rank: Any) -> None:
    row = fresh(source)
    feed = Feed(row)
    feed.receive(0, msgspec.msgpack.encode([1.0, events, rank]), 2.0)
    feed.receive(1, msgspec.msgpack.encode([1.0, events]), 2.0)
    assert feed.next_sequence == 2
    assert feed.counters.batches + feed.counters.malformed >= 2


@settings(deadline=None)
@given(JUNK)
def test_any_json_is_decoded_or_counted(body: Any) -> None:
    items = body if isinstance(body, list) else [{"event_id": 1, "data": body}]
    text = msgspec.json.encode([repr(item) if isinstance(item, bytes) else _plain(item) for item in items])
    found = decode_trtllm(text, 0.0)
    assert found is not None
    assert found.batch.malformed <= len(items)


def _plain(item: Any) -> Any:
    try:
        msgspec.json.encode(item)
    except (msgspec.MsgspecError, TypeError, UnicodeEncodeError):
        return None
    return item


def test_deep_nesting_is_refused_not_followed() -> None:
    payload = b"\x92\xcb" + b"\x00" * 8 + b"\x91" * 200_000
    began_s = time.perf_counter()
    assert decode_batch(payload) is None
    assert time.perf_counter() - began_s < 5.0
