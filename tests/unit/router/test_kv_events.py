"""KV events: both forms on the wire, what they do to the index, and the order of messages."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np
import pytest

from data.errors import SettingError
from router.kv_events.apply import FeedSettings, HashSource, RowEvents
from router.kv_events.counters import EventCounters
from router.kv_events.decode import decode_batch, hash_of, hashes_of
from router.kv_events.feed import Feed, FeedState
from router.kv_events.trtllm import decode_trtllm
from router.prefix.index import PrefixIndex
from router.prompts.block_hashes import hash_tokens, scope_hashes
from router.prompts.prefix_scope import MediaSpan, Scope, ScopeKeys

BLOCK = 4
SCOPE = Scope("m@1", block_tokens=BLOCK)


def tokens_of(blocks: int, start: int = 100) -> list[int]:
    return list(range(start, start + blocks * BLOCK))


def stored(hashes: list[Any], tokens: list[int], parent: Any = None, **more: Any) -> dict[str, Any]:
    return {
        "type": "BlockStored",
        "block_hashes": hashes,
        "parent_block_hash": parent,
        "token_ids": tokens,
        "block_size": BLOCK,
        "lora_id": None,
        "medium": "GPU",
        "lora_name": None,
        "extra_keys": [None] * len(hashes),
        "group_idx": 0,
        "kv_cache_spec_kind": "full_attention",
        **more,
    }


def removed(hashes: list[Any], **more: Any) -> dict[str, Any]:
    return {"type": "BlockRemoved", "block_hashes": hashes, "medium": "GPU", "group_idx": 0, **more}


CLEARED = {"type": "AllBlocksCleared"}


def payload(*events: Any, made_at_s: float = 10.0) -> bytes:
    return msgspec.msgpack.encode([made_at_s, list(events), 0])


def positional(event: dict[str, Any]) -> list[Any]:
    return list(event.values())


class Rig:
    def __init__(self, source: HashSource = "tokens", **settings: Any) -> None:
        self.index = PrefixIndex(2)
        self.events = RowEvents(self.index, 0, FeedSettings("m@1", BLOCK, source, **settings))
        self.counters = self.events.counters

    def apply(self, *events: Any) -> None:
        batch = decode_batch(payload(*events), self.events.needs_tokens)
        assert batch is not None
        self.events.apply(batch, 10.5)

    def hit(self, tokens: list[int], scope: Scope = SCOPE, media: tuple[MediaSpan, ...] = ()) -> int:
        return int(self.index.matched_blocks(hash_tokens(tokens, scope, media))[0])


@pytest.mark.parametrize("form", [lambda event: event, positional], ids=["map", "array"])
def test_both_forms_build_the_same_index(form: Any) -> None:
    rig = Rig()
    prompt = tokens_of(4)
    rig.apply(form(stored([11, 12], prompt[:8])), form(stored([13, 2**64 - 1], prompt[8:], parent=12)))
    assert rig.hit(prompt) == 4
    assert rig.counters.stored_blocks == 4
    rig.apply(form(removed([2**64 - 1])), form(removed([13])))
    assert rig.hit(prompt) == 2
    rig.apply(form(CLEARED))
    assert rig.hit(prompt) == 0
    assert rig.counters.malformed == rig.counters.orphans == rig.counters.unknown_removes == 0


def test_the_short_positional_form_of_old_engines() -> None:
    rig = Rig()
    rig.apply(["BlockStored", [1], None, tokens_of(1), BLOCK, None])
    assert rig.hit(tokens_of(1)) == 1
    rig.apply(["BlockRemoved", [1]])
    assert rig.hit(tokens_of(1)) == 0


def test_hashes_come_signed_unsigned_or_as_digests() -> None:
    assert hashes_of([1, 2**64 - 1]).tolist() == [1, 2**64 - 1]
    assert hashes_of([-1, 5]).tolist() == [2**64 - 1, 5]
    assert hashes_of([b"\xff" * 24 + b"\x00" * 7 + b"\x09"]).tolist() == [9]
    assert hash_of(-2) == 2**64 - 2
    rig = Rig()
    digest = bytes(range(32))
    rig.apply(stored([digest], tokens_of(1)))
    rig.apply(removed([int.from_bytes(digest[-8:], "big")]))
    assert rig.hit(tokens_of(1)) == 0
    assert rig.counters.unknown_removes == 0


def test_engine_hashes_are_taken_as_they_are() -> None:
    rig = Rig("engine")
    assert not rig.events.needs_tokens
    rig.apply(stored([7, 8], tokens_of(2)), stored([9], tokens_of(1), parent=8))
    asked = scope_hashes(np.array([7, 8, 9, 10], dtype="<u8").tobytes(), SCOPE)
    assert rig.index.matched_blocks(asked).tolist() == [3, 0]
    rig.apply(removed([9]), removed([9]))
    assert rig.index.matched_blocks(asked.copy()).tolist() == [2, 0]
    assert rig.counters.unknown_removes == 1


def test_blocks_after_an_unknown_parent_are_accepted_without_error_f027() -> None:
    """F027: unknown parents are counted; without tokens the row is followed block by block from then on."""
    rig = Rig()
    rig.apply(stored([5], tokens_of(1), parent=4))
    assert rig.counters.orphans == 1
    assert rig.index.resident(0) == 0
    rig = Rig("engine")
    rig.apply(stored([1, 2], tokens_of(2)), stored([4, 5], tokens_of(2), parent=3))
    assert rig.index.missing_parents == 1
    asked = scope_hashes(np.arange(1, 6, dtype="<u8").tobytes(), SCOPE)
    assert rig.index.matched_blocks(asked).tolist() == [2, 0]


def test_adapter_salt_and_media_are_typed_f029_f030() -> None:
    """F029, F030: each key is read from its own field; unknown ones make a block not comparable, counted."""
    keys = ScopeKeys(b"0123456789abcdef")
    salt = keys.of("tenant")
    prompt = tokens_of(2)
    adapter = Scope("m@1", "legal", block_tokens=BLOCK)
    tenant = Scope("m@1", tenant_scope=salt, block_tokens=BLOCK)
    image = (MediaSpan("img", BLOCK, 2),)
    rig = Rig(lora_names=((3, "legal"),))
    rig.apply(stored([1, 2], prompt, lora_name="legal", lora_id=3, extra_keys=[["legal"], ["legal"]]))
    assert (rig.hit(prompt, adapter), rig.hit(prompt)) == (2, 0)
    rig.apply(CLEARED, stored([1, 2], prompt, lora_id=3))
    assert (rig.hit(prompt, adapter), rig.hit(prompt)) == (2, 0)
    rig.apply(CLEARED, stored([1, 2], prompt, extra_keys=[None, [["img", 0]]]))
    assert (rig.hit(prompt, media=image), rig.hit(prompt)) == (2, 1)
    rig.apply(CLEARED, stored([1, 2], prompt, lora_name="legal", extra_keys=[["legal"], ["legal", ["img", 0]]]))
    assert rig.hit(prompt, adapter, image) == 2
    rig.apply(CLEARED, stored([1, 2], prompt, extra_keys=[[salt], None]))
    assert (rig.hit(prompt, tenant), rig.hit(prompt)) == (2, 0)
    assert rig.counters.not_comparable == 0
    for unknown in ([["legal"], None], [[3], None], [["victim-salt"], None], [[["a", "b"]], None], [["x"]]):
        rig.apply(CLEARED, stored([1, 2], prompt, extra_keys=unknown))
    rig.apply(stored([1, 2], prompt, lora_id=99))
    assert rig.counters.not_comparable == 6
    assert rig.index.resident(0) == 0


def test_a_salt_is_inherited_along_the_chain_f146() -> None:
    """F146: only the first block names the salt; later blocks belong to the same tenant."""
    salt = ScopeKeys(b"0123456789abcdef").of("victim")
    rig = Rig()
    prompt = tokens_of(4)
    rig.apply(stored([1, 2], prompt[:8], extra_keys=[[salt], None]))
    rig.apply(stored([3, 4], prompt[8:], parent=2))
    assert rig.hit(prompt, Scope("m@1", tenant_scope=salt, block_tokens=BLOCK)) == 4
    assert rig.hit(prompt, Scope("m@1", tenant_scope=salt + "0", block_tokens=BLOCK)) == 0
    assert rig.hit(prompt) == 0


def test_only_device_memory_counts() -> None:
    rig = Rig()
    prompt = tokens_of(2)
    rig.apply(stored([1, 2], prompt), stored([1, 2], prompt, medium="CPU"))
    rig.apply(removed([1, 2], medium="CPU"))
    assert rig.hit(prompt) == 2
    assert rig.counters.other_tiers == 2
    both = Rig(media=("GPU", "CPU"))
    both.apply(stored([1, 2], prompt, medium="CPU"))
    assert both.hit(prompt) == 2


def test_sliding_window_groups_do_not_count() -> None:
    rig = Rig()
    rig.apply(stored([1, 2], tokens_of(2)))
    rig.apply(stored([1, 2], tokens_of(2), group_idx=1, kv_cache_spec_kind="sliding_window"))
    rig.apply(removed([1], group_idx=1))
    assert rig.hit(tokens_of(2)) == 2
    assert rig.counters.other_groups == 2


def test_another_block_size_is_counted_and_not_stored() -> None:
    rig = Rig()
    rig.apply(stored([1], list(range(8)), block_size=8))
    assert rig.counters.block_size == 1
    assert rig.index.resident(0) == 0


@pytest.mark.parametrize("tokens", [[1, 2, 3], [1, 2, 3, -4], [1, 2, 3, 2**40], None])
def test_tokens_that_do_not_fit_their_blocks_are_counted(tokens: Any) -> None:
    rig = Rig()
    rig.apply(stored([1], tokens))
    assert rig.counters.malformed == 1
    assert rig.index.resident(0) == 0


def test_unknown_events_are_counted_and_the_others_applied() -> None:
    rig = Rig()
    rig.apply({"type": "Defragmented"}, stored([1], tokens_of(1)), ["BlockStored"], removed("x"), 7)  # type: ignore[arg-type]
    assert rig.counters.malformed == 4
    assert rig.hit(tokens_of(1)) == 1


def test_too_many_blocks_clear_the_endpoint() -> None:
    rig = Rig(max_blocks=3)
    rig.apply(stored([1, 2], tokens_of(2)))
    rig.apply(stored([3, 4], tokens_of(2, 500)))
    assert rig.counters.overflows == 1
    assert rig.index.resident(0) == 0
    assert len(rig.events.aliases) == 0


def test_aliases_grow_and_leave_with_their_blocks() -> None:
    rig = Rig()
    for i in range(3000):
        rig.apply(stored([i], tokens_of(1, i)))
    assert len(rig.events.aliases) == rig.index.resident(0) == 3000
    for i in range(3000):
        rig.apply(removed([i]))
    assert len(rig.events.aliases) == rig.index.resident(0) == 0


def test_lag_is_measured_and_never_negative() -> None:
    counters = EventCounters()
    for lag in (-1.0, 0.0005, 0.003, 99.0):
        counters.lag(lag)
    assert counters.lag_bins.sum() == 4
    assert counters.lag_bins[0] == 2
    assert counters.lag_bins[-1] == 1
    assert counters.last_lag_s == 99.0
    batch = decode_batch(payload(made_at_s=math.nan))
    assert batch is not None
    rig = Rig()
    rig.events.apply(batch, 1.0)
    assert rig.counters.lag_bins.sum() == 0


def test_feed_settings_are_checked() -> None:
    with pytest.raises(SettingError, match="block_tokens"):
        FeedSettings("m@1", 0)
    with pytest.raises(SettingError, match="max_blocks"):
        FeedSettings("m@1", max_blocks=0)


# --- the order of messages -------------------------------------------------------------------------------------


def message(i: int, made_at_s: float | None = None) -> bytes:
    return payload(stored([i], tokens_of(1, 10 * i)), made_at_s=10.0 + i if made_at_s is None else made_at_s)


def feed_of(**known: Any) -> tuple[Rig, Feed]:
    rig = Rig()
    return rig, Feed(rig.events, **known)


def test_messages_in_order_are_applied_once() -> None:
    rig, feed = feed_of()
    assert feed.state is FeedState.SILENT
    assert feed.warming
    for i in range(3):
        feed.receive(i, message(i), 20.0)
    feed.receive(1, message(1), 20.0)
    assert feed.state is FeedState.LIVE
    assert (rig.index.resident(0), rig.counters.duplicates, rig.counters.batches) == (3, 1, 3)


def test_a_gap_is_closed_by_a_replay_and_nothing_is_lost() -> None:
    rig, feed = feed_of()
    feed.receive(0, message(0), 20.0)
    feed.receive(3, message(3), 20.0)
    assert feed.replay_from == 1
    feed.receive(4, message(4), 20.0)
    assert rig.index.resident(0) == 1
    for i in (0, 1, 2, 3):
        feed.replayed(i, message(i), 20.0)
    feed.replay_ended(20.0)
    assert rig.index.resident(0) == 5
    assert (feed.next_sequence, feed.state, feed.replay_from) == (5, FeedState.LIVE, None)
    counters = rig.counters
    assert (counters.gaps, counters.replays, counters.lost, counters.clears) == (1, 1, 0, 0)


def test_a_gap_that_stays_open_costs_the_entries() -> None:
    rig, feed = feed_of()
    feed.receive(0, message(0), 20.0)
    feed.receive(3, message(3), 20.0)
    feed.replay_ended(20.0)
    assert (rig.counters.lost, rig.counters.clears) == (1, 1)
    assert rig.hit(tokens_of(1, 0)) == 0
    assert rig.hit(tokens_of(1, 30)) == 1
    assert feed.next_sequence == 4


def test_a_replay_that_begins_too_late_costs_what_was_before() -> None:
    rig, feed = feed_of()
    feed.receive(0, message(0), 20.0)
    feed.receive(5, message(5), 20.0)
    for i in (3, 4):
        feed.replayed(i, message(i), 20.0)
    feed.replay_ended(20.0)
    assert rig.counters.lost == 1
    assert rig.index.resident(0) == 3
    assert feed.next_sequence == 6


def test_a_late_joiner_asks_for_the_history() -> None:
    rig, feed = feed_of()
    feed.receive(7, message(7), 20.0)
    assert feed.replay_from == 0
    for i in (5, 6, 7):
        feed.replayed(i, message(i), 20.0)
    feed.replay_ended(20.0)
    assert (rig.index.resident(0), rig.counters.lost, feed.warming) == (3, 0, False)


def test_an_engine_that_began_anew_starts_empty_f021_f025() -> None:
    """F021, F025: a lower number with a newer time is a restart; an old time is a repeat."""
    for first in (0, 1):
        rig, feed = feed_of()
        for i in range(5):
            feed.receive(i, message(i), 20.0)
        feed.receive(first, message(100, 99.0), 100.0)
        assert rig.counters.restarts == 1
        assert rig.hit(tokens_of(1, 0)) == 0
        if first:
            assert feed.replay_from == 0
            feed.replayed(0, message(99, 98.0), 100.0)
            feed.replay_ended(100.0)
        assert rig.hit(tokens_of(1, 1000)) == 1
        assert rig.counters.orphans == 0


def test_a_new_incarnation_forgets_numbers_and_blocks_together_f025() -> None:
    """F025: after re-registration the numbers 0, 1, 2 are new ones; no replay from the old watermark."""
    rig, feed = feed_of()
    for i in range(3):
        feed.receive(i, message(i), 20.0)
    feed.restart()
    assert rig.index.resident(0) == 0
    for i in range(3):
        feed.receive(i, message(i, 5.0), 20.0)
    assert (rig.index.resident(0), rig.counters.duplicates, feed.replay_from) == (3, 0, None)


def test_a_warm_start_goes_on_from_the_known_number_f027() -> None:
    """F027: the saved number continues; what came meanwhile is replayed; replaying twice is harmless."""
    rig, feed = feed_of(next_sequence=3, last_made_at_s=12.0)
    feed.receive(5, message(5), 20.0)
    assert feed.replay_from == 3
    for i in (3, 4, 3, 4):
        feed.replayed(i, message(i), 20.0)
    feed.replay_ended(20.0)
    assert rig.index.resident(0) == 3
    feed.replay_ended(20.0)
    assert rig.counters.replays == 1


def test_an_unreadable_message_costs_the_entries_but_not_the_feed() -> None:
    rig, feed = feed_of()
    feed.receive(0, message(0), 20.0)
    feed.receive(1, b"\xc1junk", 20.0)
    assert (rig.counters.malformed, rig.index.resident(0)) == (1, 0)
    feed.receive(2, message(2), 20.0)
    assert rig.index.resident(0) == 1


# --- TensorRT-LLM ----------------------------------------------------------------------------------------------


def test_trtllm_events_build_the_same_index() -> None:
    def block(number: int, tokens: list[int], level: int = 0) -> dict[str, Any]:
        ids = [{"type": "unique_token", "token_id": token, "token_extra_id": 0} for token in tokens]
        return {"type": "stored_block", "block_hash": number, "tokens": ids, "lora_id": 0, "cache_level": level}

    prompt = tokens_of(3)
    body = [
        {"event_id": 0, "data": {"type": "created", "num_blocks_per_cache_level": [100, 0]}},
        {
            "event_id": 1,
            "data": {
                "type": "stored",
                "parent_hash": None,
                "blocks": [block(1, prompt[:4]), block(2, prompt[4:8])],
            },
        },
        {"event_id": 2, "data": {"type": "stored", "parent_hash": 2, "blocks": [block(3, prompt[8:])]}},
        {"event_id": 3, "data": {"type": "strange"}},
    ]
    found = decode_trtllm(msgspec.json.encode(body), 5.0)
    assert found is not None
    assert (found.last_event_id, found.batch.malformed) == (3, 1)
    rig = Rig()
    rig.events.apply(found.batch, 5.0)
    assert rig.hit(prompt) == 3
    moved = {"type": "updated", "block_hash": 3, "cache_level": {"old_value": 0, "new_value": 1}}
    later = decode_trtllm(
        msgspec.json.encode(
            [{"event_id": 4, "data": moved}, {"event_id": 5, "data": {"type": "removed", "block_hashes": [2]}}]
        ),
        6.0,
    )
    assert later is not None
    rig.events.apply(later.batch, 6.0)
    assert rig.hit(prompt) == 1
