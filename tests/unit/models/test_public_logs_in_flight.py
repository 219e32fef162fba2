"""Load rebuilt from request times, against counting one by one; engine samples joined by clock."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from models.public_logs.in_flight import in_flight
from models.public_logs.series import join_series

SPANS = st.lists(
    st.tuples(st.integers(0, 40), st.integers(1, 20), st.integers(0, 20), st.integers(1, 9)),
    min_size=1,
    max_size=25,
)


@given(SPANS)
def test_counts_equal_counting_one_by_one(spans):
    start, wait, rest, tokens = (np.array(column, dtype=float) for column in zip(*spans, strict=True))
    # Events never share a moment with a start, so that "before" needs no rule for ties.
    first, end = start + wait - 0.5, start + wait + rest - 0.25
    found = in_flight(start, first, end, tokens)
    for row in range(len(start)):
        earlier = [other for other in range(len(start)) if (start[other], other) < (start[row], row)]
        waiting = [other for other in earlier if first[other] > start[row]]
        inside = [other for other in earlier if end[other] > start[row]]
        assert found.waiting[row] == len(waiting)
        assert found.waiting_tokens[row] == sum(tokens[other] for other in waiting)
        assert found.generating[row] == len(inside) - len(waiting)
        assert found.tokens[row] == sum(tokens[other] for other in inside)


@given(SPANS, st.randoms(use_true_random=False))
def test_the_order_of_distinct_starts_does_not_matter(spans, random):
    rows = {start: (wait, rest, tokens) for start, wait, rest, tokens in spans}
    table = np.array([(start, start + a, start + a + b, n) for start, (a, b, n) in rows.items()], dtype=float)
    mixed = list(range(len(table)))
    random.shuffle(mixed)
    straight, shuffled = in_flight(*table.T), in_flight(*table[mixed].T)
    assert np.array_equal(straight.waiting[mixed], shuffled.waiting)
    assert np.array_equal(straight.head_s[mixed], shuffled.head_s)


def test_the_head_is_aged_from_its_start_or_the_last_first_token():
    start, first = np.array([0.0, 1.0, 2.0, 5.0]), np.array([4.0, 9.0, 10.0, 11.0])
    found = in_flight(start, first, first + 1, np.ones(4))
    # Request 0 is the head until 4 s; then request 1, from 4 s on.
    assert found.head_s.tolist() == [0.0, 1.0, 2.0, 1.0]


def test_a_request_that_never_got_a_token_leaves_the_queue_at_its_end():
    found = in_flight(
        np.array([0.0, 1.0, 5.0]), np.array([np.inf, 2.0, 6.0]), np.array([4.0, 3.0, 7.0]), np.ones(3)
    )
    assert found.waiting.tolist() == [0.0, 1.0, 0.0]


def test_series_gives_the_newest_sample_before_and_its_age():
    values, age = join_series(np.array([0.5, 1.0, 2.7]), np.array([1.0, 2.0]), np.array([[10.0], [20.0]]))
    assert values[:, 0].tolist() == [0.0, 10.0, 20.0]
    np.testing.assert_allclose(age, [0.0, 0.0, 0.7])
