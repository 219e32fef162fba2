"""The prefix indexes: matches, removal, bounds and memory."""

from __future__ import annotations

import numpy as np
import pytest

from router.prefix import ApproxPrefixIndex, EventPrefixIndex, change_points, change_points_linear


def chain(start: int, n: int) -> tuple[int, ...]:
    return tuple(range(start, start + n))


@pytest.mark.parametrize("n_endpoints", [1, 7, 8, 64, 65, 1024])
def test_each_endpoint_gets_its_own_match(n_endpoints: int) -> None:
    index = EventPrefixIndex(n_endpoints)
    prompt = chain(100, 50)
    expected = [row % 51 for row in range(n_endpoints)]
    for row, held in enumerate(expected):
        index.stored(row, prompt[:held])
    assert index.matched_blocks(prompt).tolist() == expected


def test_no_hashes_and_unknown_prompts_match_nothing() -> None:
    index = EventPrefixIndex(3)
    index.stored(0, chain(0, 5))
    assert index.matched_blocks(()).tolist() == [0, 0, 0]
    assert index.matched_blocks(chain(50, 5)).tolist() == [0, 0, 0]
    assert index.deepest(()) == (0, 0)


def test_an_answer_cannot_be_changed_and_is_renewed_by_events() -> None:
    index = EventPrefixIndex(2)
    prompt = chain(0, 4)
    index.stored(1, prompt)
    first = index.matched_blocks(prompt)
    assert index.matched_blocks(prompt) is first
    with pytest.raises(ValueError, match="read-only"):
        first[0] = 9
    index.removed(1, prompt[2:])
    assert index.matched_blocks(prompt).tolist() == [0, 2]
    index.cleared(1)
    assert index.matched_blocks(prompt).tolist() == [0, 0]


def test_removing_what_is_not_held_is_counted_and_leaves_nothing_f024() -> None:
    """F024: an unmatched remove is harmless, visible, and keeps no entry."""
    index = EventPrefixIndex(2)
    index.removed(0, [1, 2])
    index.stored(1, [1])
    index.removed(0, [1])
    assert index.unmatched_removes == 3
    assert len(index) == 1
    assert index.holders(1) == 0b10
    index.removed(1, [1])
    assert len(index) == 0


def test_a_departed_endpoint_leaves_no_entries_f021_f025() -> None:
    """F021, F025: the same address comes back empty; events may come twice."""
    index = EventPrefixIndex(2)
    prompt = chain(0, 30)
    index.stored(0, prompt)
    index.stored(0, prompt)
    index.stored(1, prompt[:3])
    index.cleared(0)
    assert index.resident(0) == 0
    assert index.matched_blocks(prompt).tolist() == [0, 3]
    assert len(index) == 3


def test_chains_with_gaps_need_the_linear_scan() -> None:
    index = EventPrefixIndex(2, prefix_closed=False)
    prompt = chain(0, 6)
    index.stored(0, prompt)
    index.removed(0, [2])
    index.stored(1, prompt[3:])
    assert index.matched_blocks(prompt).tolist() == [2, 0]


def test_bisection_and_scan_find_the_same_changes() -> None:
    masks = {1: 0b111, 2: 0b111, 3: 0b110, 4: 0b100, 5: 0b100}
    for prompt in ((1, 2, 3, 4, 5, 6), (1, 2, 3, 4, 5), (1,), (1, 2), (9,), ()):
        assert change_points(masks, prompt) == change_points_linear(masks, prompt)
    assert change_points(masks, (1, 2, 3, 4, 5, 6)) == [(0b111, 2), (0b110, 3), (0b100, 5)]


def test_an_endpoint_never_holds_more_than_its_capacity_f034() -> None:
    """F034: 200 blocks into a capacity of 100 leave the last 100; the first is gone."""
    index = ApproxPrefixIndex(2, [100, 5])
    for block in range(200):
        index.insert(0, (block,))
    assert index.resident(0) == 100
    assert index.matched_blocks((0,)).tolist() == [0, 0]
    assert index.matched_blocks((100,)).tolist() == [1, 0]
    index.insert(1, chain(1000, 50))
    assert index.matched_blocks(chain(1000, 50)).tolist() == [0, 5]


def test_unique_prefixes_reach_a_plateau_f023() -> None:
    """F023: with unique prompts only, entries stop growing at the cap, counted from what is stored."""
    index = ApproxPrefixIndex(2, 500)
    sizes = []
    for i in range(1000):
        index.insert(i % 2, chain(i * 20, 20))
        sizes.append(len(index))
    assert max(sizes) == 1000
    assert sizes[-1] == 1000
    assert len(index._latest) == 1000
    assert len(index._recent[0]) == 500


def test_a_used_prefix_outlives_unused_ones() -> None:
    index = ApproxPrefixIndex(1, 10)
    hot = chain(0, 4)
    index.insert(0, hot)
    for i in range(10):
        index.insert(0, chain(100 + 10 * i, 5))
        index.insert(0, hot)
    assert index.matched_blocks(hot).tolist() == [4]
    assert index.resident(0) == 10


def test_eviction_takes_tails_first() -> None:
    index = ApproxPrefixIndex(1, 6)
    old = chain(0, 4)
    index.insert(0, old)
    index.insert(0, chain(50, 4))
    assert index.matched_blocks(old).tolist() == [2]


def test_the_latest_holder_is_remembered_until_it_drops_the_block() -> None:
    index = ApproxPrefixIndex(3, 4)
    index.insert(2, (1, 2))
    index.insert(0, (1, 2))
    assert index.deepest((1, 2, 3)) == (2, 0b101)
    assert index.latest_holder(2) == 0
    index.insert(0, (11, 12, 13, 14))
    assert index.latest_holder(2) == 2
    index.dropped(2)
    assert index.latest_holder(2) == -1
    assert np.array_equal(index.matched_blocks((1, 2)), [0, 0, 0])
