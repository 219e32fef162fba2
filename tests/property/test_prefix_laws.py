"""Laws of the prefix indexes against a naive model of sets."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from router.prefix import ApproxPrefixIndex, EventPrefixIndex

N = 5
BLOCKS = st.integers(0, 12)
EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["stored", "removed", "cleared"]),
        st.integers(0, N - 1),
        st.lists(BLOCKS, max_size=5),
    ),
    max_size=40,
)
# Children of block b are 2b and 2b + 1, so any path from a root is a chain whose ids name their whole prefix.
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


@given(EVENTS, st.lists(BLOCKS, max_size=8, unique=True).map(tuple))
def test_any_interleaving_of_events_equals_a_set_model_f024(
    events: list[tuple[str, int, list[int]]], prompt: tuple[int, ...]
) -> None:
    """F024: store, remove and clear in any order leave exactly what a naive set model holds."""
    index = EventPrefixIndex(N, prefix_closed=False)
    model: list[set[int]] = [set() for _ in range(N)]
    unmatched = 0
    for kind, endpoint, blocks in events:
        if kind == "stored":
            index.stored(endpoint, blocks)
            model[endpoint] |= set(blocks)
        elif kind == "removed":
            for block in blocks:
                unmatched += block not in model[endpoint]
                model[endpoint].discard(block)
            index.removed(endpoint, blocks)
        else:
            index.cleared(endpoint)
            model[endpoint] = set()
    assert [index.resident(row) for row in range(N)] == [len(held) for held in model]
    assert len(index) == len(set().union(*model))
    assert index.unmatched_removes == unmatched
    assert index.matched_blocks(prompt).tolist() == [leading(held, prompt) for held in model]


@given(st.lists(st.tuples(st.integers(0, N - 1), CHAINS, st.booleans()), max_size=40), CHAINS)
def test_bisection_equals_a_scan_on_prefix_closed_histories(
    history: list[tuple[int, tuple[int, ...], bool]], prompt: tuple[int, ...]
) -> None:
    index = EventPrefixIndex(N)
    model: list[set[int]] = [set() for _ in range(N)]
    for endpoint, path, drop in history:
        if drop:
            # An engine evicts a block only after everything that follows it.
            gone = [block for block in model[endpoint] if follows(block, path[-1])]
            model[endpoint] -= set(gone)
            index.removed(endpoint, gone)
        else:
            model[endpoint] |= set(path)
            index.stored(endpoint, path)
    expected = [leading(held, prompt) for held in model]
    assert index.matched_blocks(prompt).tolist() == expected
    depth, mask = index.deepest(prompt)
    assert depth == max(expected)
    assert mask == sum(1 << row for row in range(N) if depth and expected[row] == depth)


def follows(block: int, ancestor: int) -> bool:
    while block > ancestor:
        block //= 2
    return block == ancestor


@settings(max_examples=200)
@given(
    st.lists(st.tuples(st.integers(0, N - 1), CHAINS), max_size=60),
    st.lists(st.integers(1, 9), min_size=N, max_size=N),
    CHAINS,
)
def test_approximate_index_stays_closed_and_bounded(
    sent: list[tuple[int, tuple[int, ...]]], capacity: list[int], prompt: tuple[int, ...]
) -> None:
    """F023, F034: never above capacity, always prefix-closed, and the last prompt is held as far as it fits."""
    index = ApproxPrefixIndex(N, capacity)
    for endpoint, path in sent:
        index.insert(endpoint, path)
        fits = min(len(path), capacity[endpoint])
        assert index.matched_blocks(path)[endpoint] == fits
    for row in range(N):
        held = {block for block in range(2**10) if index.holders(block) >> row & 1}
        assert len(held) == index.resident(row) <= capacity[row]
        assert all(block in (2, 3) or block // 2 in held for block in held)
        assert index.matched_blocks(prompt)[row] == leading(held, prompt)
        index.dropped(row)
    assert len(index) == 0
