"""Laws of the breakers under any sequence of notices."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
from hypothesis import given, settings

from data.catalog.types import ServiceTimes
from router.endpoints import EndpointSpec, EndpointTable
from router.feeds.breaker import Ending, HealthSettings, Phase
from router.feeds.health import HealthBook

TIMES = ServiceTimes(p0=0.01, p1=5e-5, p2=1e-9, d0=0.008, d1=5e-5, d2=1e-8)
ROWS = 4
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(0, ROWS - 1), st.floats(0.01, 5.0)),
        st.tuples(st.just("token"), st.integers(0, 30), st.just(0.0)),
        st.tuples(st.just("end"), st.integers(0, 30), st.sampled_from(list(Ending))),
        st.tuples(st.just("wait"), st.just(0), st.floats(0.0, 20.0)),
    ),
    max_size=80,
)


def table() -> EndpointTable:
    return EndpointTable(
        [
            EndpointSpec(f"B/c/{i}", "B", "m@1", "c", "H100", 1, TIMES, 200_000, 8192, 256, 131_072)
            for i in range(ROWS)
        ]
    )


def play(book: HealthBook, steps: list[tuple[str, int, object]]) -> tuple[list[int], float]:
    """Send only where it is allowed; gives the leases left and the time."""
    now_s, number, left = 0.0, 0, []
    for what, which, value in steps:
        now_s += 0.01
        book.refresh(now_s)
        if what == "send" and book._table.healthy[which]:
            number += 1
            assert book.dispatched(number, which, now_s, float(value)) >= book.settings.least_patience_s  # type: ignore[arg-type]
            left.append(number)
        elif what == "token" and left:
            book.first_token(left[which % len(left)], now_s)
        elif what == "end" and left:
            assert isinstance(value, Ending)
            book.finished(left.pop(which % len(left)), value, now_s)
        elif what == "wait":
            now_s += float(value)  # type: ignore[arg-type]
    return left, now_s


@settings(max_examples=200, deadline=None)
@given(STEPS)
def test_no_endpoint_is_lost_for_ever(steps: list[tuple[str, int, object]]) -> None:
    """Once everything has ended and the longest pause is over, every endpoint takes at least a probe."""
    book = HealthBook(table())
    left, now_s = play(book, steps)
    for lease in left:
        book.finished(lease, Ending.UNTOLD, now_s)
    book.refresh(now_s + book.settings.longest_pause_s + 1.0)
    stuck = [row for row in range(ROWS) if not book._table.healthy[row]]
    assert not stuck


@settings(max_examples=200, deadline=None)
@given(STEPS)
def test_what_is_good_or_the_clients_fault_never_takes_an_endpoint_out(
    steps: list[tuple[str, int, object]],
) -> None:
    """F006: without a failure of its own and without silence every endpoint stays in."""
    harmless = (Ending.COMPLETED, Ending.CLIENT_ERROR, Ending.THROTTLED)
    kept = [step for step in steps if step[0] != "end" or step[2] in harmless]
    book = HealthBook(table(), HealthSettings(most_suspected=0.0))
    play(book, kept)
    assert book._table.healthy.all()


@settings(max_examples=200, deadline=None)
@given(STEPS)
def test_silence_takes_out_half_a_pool_at_most(steps: list[tuple[str, int, object]]) -> None:
    failures = (Ending.SERVER_ERROR, Ending.CONNECT_ERROR)
    kept = [step for step in steps if step[0] != "end" or step[2] not in failures]
    book = HealthBook(table(), HealthSettings(failures_to_open=10**6))
    play(book, kept)
    out = [row for row in range(ROWS) if book.phase(row) in (Phase.SUSPECT, Phase.OPEN)]
    assert len(out) <= ROWS // 2


@settings(max_examples=100, deadline=None)
@given(STEPS)
def test_the_same_notices_give_the_same_health(steps: list[tuple[str, int, object]]) -> None:
    one, two = HealthBook(table()), HealthBook(table())
    play(one, steps)
    play(two, steps)
    assert np.array_equal(one._table.healthy, two._table.healthy)
    assert [r.phase for r in one.report()] == [r.phase for r in two.report()]
