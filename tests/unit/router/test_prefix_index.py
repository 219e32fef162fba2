"""The compiled prefix index: rows, shards, columns, ages and the edges of its table."""

from __future__ import annotations

import numpy as np
import pytest

from data.errors import SettingError
from router.prefix.index import PrefixIndex, PrefixIndexSettings, as_hashes
from router.prefix.table import BlockTable


@pytest.mark.parametrize("rows", [1, 63, 64, 65, 1024])
def test_each_endpoint_gets_its_own_match(rows: int) -> None:
    index = PrefixIndex(rows)
    prompt = as_hashes(range(100, 150))
    expected = [row % 51 for row in range(rows)]
    for row, held in enumerate(expected):
        index.stored(row, prompt[:held])
    assert index.matched_blocks(prompt).tolist() == expected
    assert [index.resident(row) for row in range(rows)] == expected


def test_no_hashes_and_unknown_prompts_match_nothing() -> None:
    index = PrefixIndex(2)
    index.stored(0, range(5))
    assert index.matched_blocks(()).tolist() == [0, 0]
    assert index.matched_blocks((77, 0, 1)).tolist() == [0, 0]


def test_any_64_bit_number_is_a_hash_f142() -> None:
    """F142: zero, the largest, signed forms, and numbers that differ only in their upper half stay distinct."""
    index = PrefixIndex(1)
    odd = (0, 2**64 - 1, 4294967297, 8589934593, 2**53, 2**53 + 1)
    for block in odd:
        assert index.matched_blocks((block,)).tolist() == [0]
        index.stored(0, (block,))
    assert index.matched_blocks(odd).tolist() == [len(odd)]
    assert index.matched_blocks((-1,)).tolist() == [1]
    index.removed(0, (-1,))
    assert not index.holds(0, 2**64 - 1)
    assert index.holds(0, 0)


def test_asking_again_for_the_same_hashes_sees_every_change() -> None:
    index = PrefixIndex(2)
    prompt = (1, 2, 3)
    assert index.matched_blocks(prompt).tolist() == [0, 0]
    index.stored(1, prompt)
    assert index.matched_blocks(prompt).tolist() == [0, 3]
    assert index.matched_blocks(prompt) is index.matched_blocks(prompt)
    index.removed(1, (3,))
    assert index.matched_blocks(prompt).tolist() == [0, 2]
    index.cleared(1)
    assert index.matched_blocks(prompt).tolist() == [0, 0]
    index.set_capacity(0, 2)
    index.sent(0, prompt)
    assert index.matched_blocks(prompt).tolist() == [2, 0]


def test_a_cleared_row_is_empty_at_once_and_swept_later_f021() -> None:
    """F021: nothing of the old incarnation is ever returned, and the sweep leaves no entry behind."""
    index = PrefixIndex(3)
    prompt = as_hashes(range(500))
    for row in range(3):
        index.stored(row, prompt)
    index.cleared(1)
    assert index.resident(1) == 0
    assert index.matched_blocks(prompt).tolist() == [500, 0, 500]
    index.stored(1, prompt[:10])
    while index.upkeep(100):
        pass
    assert index.matched_blocks(prompt.copy()).tolist() == [500, 10, 500]
    for row in range(3):
        index.cleared(row)
    while index.upkeep():
        pass
    assert len(index) == 0


def test_more_clears_than_spare_columns_sweep_at_once() -> None:
    index = PrefixIndex(60)
    for turn in range(200):
        index.stored(turn % 60, range(turn, turn + 5))
        index.cleared(turn % 60)
    assert [index.resident(row) for row in range(60)] == [0] * 60


def test_new_rows_are_empty_and_old_ones_stay() -> None:
    index = PrefixIndex(0)
    index.ensure_rows(2)
    index.stored(1, (1, 2))
    index.ensure_rows(200)
    index.ensure_rows(5)
    assert index.rows == 200
    index.stored(199, (1,))
    assert np.flatnonzero(index.matched_blocks((1, 2))).tolist() == [1, 199]


def test_a_long_prompt_is_stored_in_parts_without_a_gap() -> None:
    index = PrefixIndex(1)
    prompt = as_hashes(range(20_000))
    index.stored(0, prompt[:1])
    index.stored(0, prompt[1:], parent=0)
    assert index.missing_parents == 0
    assert not index.may_have_gaps(0)
    assert index.matched_blocks(prompt).tolist() == [20_000]


def test_a_store_behind_a_missing_parent_is_followed_block_by_block() -> None:
    index = PrefixIndex(2)
    prompt = tuple(range(1, 30))
    for row in (0, 1):
        index.stored(row, prompt[:5])
    index.stored(0, prompt[9:], parent=prompt[8])
    assert (index.missing_parents, index.may_have_gaps(0), index.may_have_gaps(1)) == (1, True, False)
    assert index.matched_blocks(prompt).tolist() == [5, 5]
    index.cleared(0)
    assert not index.may_have_gaps(0)


def test_blocks_age_out_and_come_back_f034() -> None:
    """F034: both limits apply: capacity and age; room given back is used again."""
    index = PrefixIndex(1)
    index.set_capacity(0, 6)
    index.sent(0, (1, 2, 3), 10.0)
    index.sent(0, (11, 12), 20.0)
    index.sent(0, (1,), 25.0)
    assert index.expire(0, 20.0) == 2
    assert index.resident(0) == 3
    assert index.matched_blocks((1, 2, 3)).tolist() == [1]
    assert index.expire(0, 20.0) == 0
    for start in range(0, 100, 4):
        index.sent(0, range(1000 + start, 1004 + start), 30.0)
    assert index.resident(0) == 6
    assert index.expire(0, 99.0) == 6
    assert len(index) == 0
    index.sent(0, (5, 6), 100.0)
    assert index.matched_blocks((5, 6)).tolist() == [2]


def test_a_row_without_capacity_guesses_nothing() -> None:
    index = PrefixIndex(1)
    index.sent(0, (1, 2))
    assert index.resident(0) == 0
    assert index.expire(0, 5.0) == 0
    with pytest.raises(SettingError, match=">= 1"):
        index.set_capacity(0, 0)


def test_one_endpoint_larger_than_the_bound_never_breaks_it_f023() -> None:
    """F023: even a single endpoint that outgrows the index cannot pass the bound."""
    index = PrefixIndex(1, PrefixIndexSettings(max_bytes=1 << 17))
    rng = np.random.default_rng(0)
    for _ in range(300):
        index.stored(0, rng.integers(0, 2**64, 100, dtype=np.uint64))
        assert len(index) <= index.max_entries
    assert index.evictions > 1
    assert index.memory_bytes() <= (1 << 17) + 4096


def test_a_prompt_larger_than_the_whole_index_is_stored_as_far_as_it_goes_f023() -> None:
    """F023: one event with more blocks than the bound allows neither breaks it nor hangs."""
    index = PrefixIndex(2, PrefixIndexSettings(max_bytes=1 << 16))
    index.stored(0, range(10_000))
    index.stored(1, range(5))
    assert 0 < len(index) <= index.max_entries < 10_000
    assert index.matched_blocks(tuple(range(5))).tolist()[1] == 5


def test_a_full_index_keeps_guessed_rows_within_their_capacity_f034() -> None:
    """F034: eviction for want of room leaves no guessed block that the capacity does not bound."""
    index = PrefixIndex(2, PrefixIndexSettings(max_bytes=1 << 16))
    rng = np.random.default_rng(0)
    for row in (0, 1):
        index.set_capacity(row, 1_500)
    for turn in range(400):
        index.sent(turn % 2, rng.integers(0, 2**64, 37, dtype=np.uint64))
        assert max(index.resident(row) for row in (0, 1)) <= 1_500
    assert index.evictions > 0
    for row in (0, 1):
        index.expire(row, 1e9)
        assert index.resident(row) == 0


def test_a_presized_table_does_not_grow() -> None:
    table = BlockTable(64, expected_blocks=10_000)
    before = table.memory_bytes()
    assert table.store(0, as_hashes(range(10_000))) == 0
    assert table.memory_bytes() == before
    with pytest.raises(SettingError, match="65536"):
        BlockTable(64, max_bytes=10)
