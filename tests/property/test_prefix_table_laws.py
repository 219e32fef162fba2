"""Laws of the compiled prefix index against naive models: any events, growth, sweeps, bounds and shards."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.prefix import ApproxPrefixIndex, EventPrefixIndex
from router.prefix.index import PrefixIndex, PrefixIndexSettings, as_hashes
from router.prefix.lru import LruBlocks

ROWS = 70
BLOCKS = st.integers(0, 30)
CHAINS = st.tuples(st.integers(2, 3), st.lists(st.integers(0, 1), max_size=7)).map(
    lambda drawn: path_of(drawn[0], drawn[1])
)


def path_of(root: int, turns: list[int]) -> tuple[int, ...]:
    path = [root]
    for turn in turns:
        path.append(2 * path[-1] + turn)
    return tuple(path)


def leading(held: set[int], prompt: tuple[int, ...]) -> int:
    count = 0
    while count < len(prompt) and prompt[count] in held:
        count += 1
    return count


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["stored", "removed", "cleared", "upkeep"]),
            st.sampled_from([0, 1, 63, 64, 69]),
            st.lists(BLOCKS, max_size=6),
        ),
        max_size=60,
    ),
    st.lists(BLOCKS, max_size=8, unique=True).map(tuple),
)
def test_any_interleaving_equals_a_set_model_f024(
    events: list[tuple[str, int, list[int]]], prompt: tuple[int, ...]
) -> None:
    """F024: stores, removals and clears in any order leave exactly what naive sets hold, over two shards."""
    index = PrefixIndex(ROWS)
    for row in range(ROWS):
        index.assume_gaps(row)
    model: list[set[int]] = [set() for _ in range(ROWS)]
    unmatched = 0
    for kind, row, blocks in events:
        if kind == "stored":
            index.stored(row, blocks)
            model[row] |= set(blocks)
        elif kind == "removed":
            for block in blocks:
                unmatched += block not in model[row]
                model[row].discard(block)
            index.removed(row, blocks)
        elif kind == "cleared":
            index.cleared(row)
            index.assume_gaps(row)
            model[row] = set()
        else:
            index.upkeep(len(blocks) * 50)
    assert [index.resident(row) for row in range(ROWS)] == [len(held) for held in model]
    assert index.unmatched_removes == unmatched
    assert index.matched_blocks(prompt).tolist() == [leading(held, prompt) for held in model]
    while index.upkeep():
        pass
    assert index.matched_blocks(tuple(prompt)).tolist() == [leading(held, prompt) for held in model]
    shards = (set(range(64)), set(range(64, ROWS)))
    assert len(index) <= sum(len(set().union(*(model[row] for row in rows))) for rows in shards) * 2


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from([0, 5, 64]), CHAINS, st.booleans()), max_size=50), CHAINS)
def test_bisection_equals_the_scan_on_prefix_closed_histories(
    history: list[tuple[int, tuple[int, ...], bool]], prompt: tuple[int, ...]
) -> None:
    fast, scan = PrefixIndex(ROWS), PrefixIndex(ROWS)
    exact = EventPrefixIndex(ROWS, prefix_closed=False)
    for row in range(ROWS):
        scan.assume_gaps(row)
    for row, path, drop in history:
        if drop:
            gone = [block for block in range(512) if exact.holders(block) >> row & 1 and follows(block, path[-1])]
            for index in (fast, scan, exact):
                index.removed(row, gone)
        else:
            fast.stored(row, path)
            scan.stored(row, path)
            exact.stored(row, path)
    expected = exact.matched_blocks(prompt).tolist()
    assert fast.matched_blocks(prompt).tolist() == expected
    assert scan.matched_blocks(prompt).tolist() == expected


def follows(block: int, ancestor: int) -> bool:
    while block > ancestor:
        block //= 2
    return block == ancestor


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from([0, 1, 69]), CHAINS), max_size=60),
    st.lists(st.integers(1, 9), min_size=3, max_size=3),
    st.integers(1, 9),
)
def test_approximate_rows_equal_the_dictionary_form_f034(
    sent: list[tuple[int, tuple[int, ...]]], capacity: list[int], later: int
) -> None:
    """F034: never above the capacity, also after it changed; the same blocks as the exact LRU."""
    index = PrefixIndex(ROWS)
    at = {0: 0, 1: 1, 69: 2}
    exact = ApproxPrefixIndex(3, capacity)
    for row, slot in at.items():
        index.set_capacity(row, capacity[slot])
    for row, path in sent:
        index.sent(row, path)
        exact.insert(at[row], path)
    for row, slot in at.items():
        held = {block for block in range(512) if index.holds(row, block)}
        assert held == {block for block in range(512) if exact.holders(block) >> slot & 1}
        assert len(held) == index.resident(row) <= capacity[slot]
    index.set_capacity(0, later)
    held = {block for block in range(512) if index.holds(0, block)}
    assert len(held) == min(later, exact.resident(0))
    assert all(block in (2, 3) or block // 2 in held for block in held)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.integers(0, 12), max_size=6, unique=True), max_size=40), st.integers(1, 8))
def test_lru_keeps_the_most_recent_distinct_blocks(touches: list[list[int]], capacity: int) -> None:
    lru, order = LruBlocks(capacity), list[int]()
    held: set[int] = set()
    for blocks in touches:
        evicted, new = lru.touch(as_hashes(blocks))
        held = (held - set(evicted.tolist())) | set(new.tolist())
        for block in reversed(blocks[:capacity]):
            order = [other for other in order if other != block] + [block]
        order = order[-capacity:]
        assert lru.oldest_first().tolist() == order
        assert held == set(order)


@pytest.mark.parametrize("seed", range(4))
def test_growth_sweeps_and_removals_together_keep_every_block(seed: int) -> None:
    """Random work large enough to grow the table many times, with growth and sweeps under way at most moments."""
    rng = np.random.default_rng(seed)
    index = PrefixIndex(ROWS)
    model: list[set[int]] = [set() for _ in range(ROWS)]
    pool = rng.integers(0, 2**64, 30_000, dtype=np.uint64)
    for _ in range(1_200):
        row = int(rng.integers(ROWS))
        kind = rng.random()
        if kind < 0.55:
            blocks = rng.choice(pool, int(rng.integers(1, 400)))
            index.stored(row, blocks)
            model[row] |= set(blocks.tolist())
        elif kind < 0.95 and model[row]:
            blocks = np.array(list(model[row])[: int(rng.integers(1, 300))], dtype=np.uint64)
            index.removed(row, blocks)
            model[row] -= set(blocks.tolist())
        elif kind > 0.97:
            index.cleared(row)
            model[row] = set()
    assert index.unmatched_removes == 0
    assert [index.resident(row) for row in range(ROWS)] == [len(held) for held in model]
    for block in rng.choice(pool, 500).tolist():
        assert index.matched_blocks((block,)).tolist() == [int(block in held) for held in model]
    while index.upkeep():
        pass
    distinct = set().union(*model[:64])
    assert len(index) >= len(distinct)
    for row in range(ROWS):
        index.cleared(row)
    while index.upkeep():
        pass
    assert len(index) == 0


def test_a_full_index_evicts_and_never_passes_its_bound_f023() -> None:
    """F023: unique prefixes only; entries and bytes reach a plateau and stay under the bound."""
    index = PrefixIndex(8, PrefixIndexSettings(max_bytes=1 << 20))
    rng = np.random.default_rng(1)
    sizes, entries = set(), []
    for turn in range(6_000):
        index.stored(turn % 8, rng.integers(0, 2**64, 20, dtype=np.uint64))
        sizes.add(index.memory_bytes())
        entries.append(len(index))
    assert max(sizes) <= (1 << 20) + 4096
    assert max(entries) <= index.max_entries
    assert index.evictions > 0
    assert min(entries[3_000:]) > index.max_entries // 4
