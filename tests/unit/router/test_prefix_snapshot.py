"""Snapshots of the prefix index: what is restored, what is refused, and that no bytes can make the loader fail."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.kv_events.apply import FeedSettings, HashSource, RowEvents
from router.kv_events.feed import Feed
from router.prefix import aliases, kernels, lru, slots, upkeep
from router.prefix.index import PrefixIndex
from router.prefix.snapshot_file import MAGIC, RowSnapshot, parse_snapshot, read_snapshot, write_snapshot
from router.prefix.warm_restart import capture_row, restore_row
from router.prefix.warm_up import warm_up
from router.prompts import block_hashes, xxh64
from router.prompts.block_hashes import hash_tokens, scope_hashes
from router.prompts.prefix_scope import Scope, ScopeKeys, scheme_of

BLOCK = 4
PROMPT = list(range(200, 240))
SCOPE = Scope("m@1", block_tokens=BLOCK)


def message(i: int, made_at_s: float = 1.0) -> bytes:
    event = {
        "type": "BlockStored",
        "block_hashes": [i + 1],
        "parent_block_hash": i or None,
        "token_ids": PROMPT[BLOCK * i : BLOCK * (i + 1)],
        "block_size": BLOCK,
    }
    return msgspec.msgpack.encode([made_at_s + i, [event], 0])


def running(source: HashSource = "tokens", blocks: int = 6) -> tuple[PrefixIndex, Feed]:
    index = PrefixIndex(2)
    feed = Feed(RowEvents(index, 1, FeedSettings("m@1", BLOCK, source)))
    for i in range(blocks):
        feed.receive(i, message(i), 9.0)
    return index, feed


def asked(source: HashSource) -> Any:
    if source == "tokens":
        return hash_tokens(PROMPT, SCOPE)
    return scope_hashes(np.arange(1, 11, dtype="<u8").tobytes(), SCOPE)


@pytest.mark.parametrize("source", ["tokens", "engine"])
def test_a_restarted_router_goes_on_where_it_was_f027(tmp_path: Path, source: HashSource) -> None:
    """F027: same incarnation: all blocks are there, later events attach to them, and repeats are harmless."""
    index, feed = running(source)
    saved = capture_row(index, feed, "w1", "a")
    assert saved is not None
    size = write_snapshot(tmp_path / "index.tfp", [saved], "s")
    assert size == (tmp_path / "index.tfp").stat().st_size
    assert [path.name for path in tmp_path.iterdir()] == ["index.tfp"]
    loaded = read_snapshot(tmp_path / "index.tfp", "s")
    assert loaded.refused is None
    later = PrefixIndex(1)
    events = RowEvents(later, 0, FeedSettings("m@1", BLOCK, source))
    feed, dropped = restore_row(later, events, loaded.rows[0], "a")
    assert dropped is None
    assert later.matched_blocks(asked(source)).tolist() == [6]
    feed.receive(8, message(8), 20.0)
    assert feed.replay_from == 6
    for i in (4, 5, 6, 7):
        feed.replayed(i, message(i), 20.0)
    feed.replay_ended(20.0)
    assert later.matched_blocks(asked(source)).tolist() == [9]
    assert (feed.counters.orphans, feed.counters.lost, later.missing_parents) == (0, 0, 0)


def test_another_incarnation_or_other_settings_start_cold_f021_f025_f027() -> None:
    """F021, F025, F027: entries whose incarnation or block size cannot be confirmed are dropped."""
    index, feed = running()
    saved = capture_row(index, feed, "w1", "a")
    assert saved is not None
    cases: list[tuple[str | None, FeedSettings, str]] = [
        ("b", FeedSettings("m@1", BLOCK), "incarnation"),
        (None, FeedSettings("m@1", BLOCK), "incarnation"),
        ("a", FeedSettings("m@1", 8), "settings"),
        ("a", FeedSettings("m@2", BLOCK), "settings"),
        ("a", FeedSettings("m@1", BLOCK, "engine"), "settings"),
    ]
    for incarnation, wanted, reason in cases:
        later = PrefixIndex(1)
        cold, dropped = restore_row(later, RowEvents(later, 0, wanted), saved, incarnation)
        assert dropped == reason
        assert cold.next_sequence is None
        assert later.resident(0) == 0


def test_a_row_whose_events_are_not_in_order_is_not_captured() -> None:
    index, feed = running()
    feed.receive(9, message(9), 9.0)
    assert capture_row(index, feed, "w1", "a") is None
    assert capture_row(index, Feed(feed.events), "w1", "a") is None


def test_rows_with_gaps_stay_marked() -> None:
    index, feed = running("engine")
    index.assume_gaps(1)
    saved = capture_row(index, feed, "w1", "a")
    assert saved is not None
    later = PrefixIndex(1)
    restore_row(later, RowEvents(later, 0, FeedSettings("m@1", BLOCK, "engine")), saved, "a")
    assert later.may_have_gaps(0)


def snapshot_bytes(folder: Path, scheme: str = "s") -> bytes:
    index, feed = running()
    saved = capture_row(index, feed, "w1", "a")
    assert saved is not None
    write_snapshot(folder / "x", [saved], scheme)
    return (folder / "x").read_bytes()


def resealed(body: bytes) -> bytes:
    return body + hashlib.blake2b(body, digest_size=32).digest()


def test_files_that_cannot_be_used_say_why(tmp_path: Path) -> None:
    raw = snapshot_bytes(tmp_path)
    assert read_snapshot(tmp_path / "none", "s").refused == "missing"
    assert read_snapshot(tmp_path, "s").refused == "unreadable"
    assert parse_snapshot(b"PK\x03\x04 something else", "s").refused == "foreign"
    assert parse_snapshot(MAGIC + b"\x00", "s").refused == "cut_short"
    assert parse_snapshot(raw[:-1], "s").refused == "checksum"
    assert parse_snapshot(raw, "another secret").refused == "scheme"
    assert parse_snapshot(resealed(raw[:-40]), "s").refused == "header"
    assert parse_snapshot(resealed(MAGIC + b"\xff\xff\xff\xff{}"), "s").refused == "header"
    assert parse_snapshot(raw, "s").refused is None
    assert parse_snapshot(raw, "s").rows[0].next_sequence == 6


def test_negative_counts_are_refused(tmp_path: Path) -> None:
    row = RowSnapshot("w", "a", "m@1", 4, "tokens", 1, 0.0, False, np.arange(3, dtype=np.uint64))
    write_snapshot(tmp_path / "x", [row, row], "s")
    raw = (tmp_path / "x").read_bytes()[:-32]
    changed = raw.replace(b'"own":3', b'"own":9', 1).replace(b'"own":3', b'"own":-3', 1)
    length = int.from_bytes(raw[8:12], "little") + 1
    sealed = resealed(changed[:8] + length.to_bytes(4, "little") + changed[12:])
    assert parse_snapshot(sealed, "s").refused == "header"


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_no_damage_makes_the_loader_fail(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    raw = bytearray(snapshot_bytes(tmp_path_factory.getbasetemp()))
    for _ in range(data.draw(st.integers(0, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    body = bytes(raw[: data.draw(st.integers(0, len(raw)))])
    for damaged in (body, resealed(body)):
        loaded = parse_snapshot(damaged, "s")
        for saved in loaded.rows:
            index = PrefixIndex(1)
            events = RowEvents(index, 0, FeedSettings("m@1", BLOCK))
            restore_row(index, events, saved, "a")
            assert index.resident(0) <= len(raw)


def test_the_scheme_tells_secrets_apart_but_not_what_they_are() -> None:
    one, other = ScopeKeys(b"0123456789abcdef"), ScopeKeys(b"another secret 16")
    assert scheme_of(one) != scheme_of(other)
    assert scheme_of(one) == scheme_of(ScopeKeys(b"0123456789abcdef"))
    assert "0123456789abcdef" not in scheme_of(one)


def signatures() -> dict[str, int]:
    modules = (aliases, block_hashes, kernels, lru, slots, upkeep, xxh64)
    return {
        f"{module.__name__}.{name}": len(step.signatures)
        for module in modules
        for name, step in vars(module).items()
        if hasattr(step, "signatures")
    }


def test_warming_up_leaves_nothing_to_compile() -> None:
    warm_up()
    before = signatures()
    assert before["router.prefix.kernels.match"] > 0
    for source in ("tokens", "engine"):
        index, feed = running(source)  # type: ignore[arg-type]
        index.matched_blocks(asked(source))  # type: ignore[arg-type]
        feed.receive(6, msgspec.msgpack.encode([1.0, [["BlockRemoved", [1, 2]], ["AllBlocksCleared"]]]), 1.0)
        index.set_capacity(0, 3)
        index.sent(0, asked("tokens"), 1.0)
        index.stored(1, range(5000))
        index.cleared(1)
        index.upkeep()
    hash_tokens(np.frombuffer(np.arange(9, dtype=np.uint32).tobytes(), dtype=np.uint32), SCOPE)  # type: ignore[arg-type]
    assert signatures() == before
