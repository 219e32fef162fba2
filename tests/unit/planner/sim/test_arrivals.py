"""The trace as a stream, and closed-loop turns."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest

from data.errors import TraceError
from data.types import Request
from planner.sim.arrivals import REMEMBERED, Arrivals


def request(number: int, at_s: float, **fields: Any) -> Request:
    return Request(number, at_s, 10, 2, 8, **fields)


def test_roots_come_in_order_and_the_stream_is_read_in_a_bounded_window() -> None:
    read = 0

    def stream() -> Iterator[Request]:
        nonlocal read
        for i in range(100):
            read += 1
            yield request(i, float(i))

    arrivals = Arrivals(stream(), look_ahead=10)
    assert read == 10
    for i in range(100):
        assert arrivals.next_s == i
        taken, at_s = arrivals.pop()
        assert (taken.request_id, at_s) == (i, float(i))
        assert read <= i + 11
        arrivals.ended(i, at_s + 0.5, True)
    assert arrivals.next_s == math.inf


def test_a_turn_waits_for_its_parent_and_its_think_time() -> None:
    arrivals = Arrivals([request(0, 0.0), request(1, 1.0, parent_id=0, think_time_s=3.0), request(2, 50.0)])
    assert arrivals.pop()[0].request_id == 0
    assert arrivals.next_s == 50.0
    arrivals.ended(0, 10.0, True)
    assert arrivals.next_s == 13.0
    assert arrivals.pop()[1] == 13.0
    assert arrivals.turns_after_failure == 0


def test_a_turn_follows_a_failed_parent_and_is_counted() -> None:
    arrivals = Arrivals([request(0, 0.0), request(1, 1.0, parent_id=0, think_time_s=1.0)])
    arrivals.pop()
    arrivals.ended(0, 4.0, False)
    assert arrivals.pop()[1] == 5.0
    assert arrivals.turns_after_failure == 1


def test_turns_of_a_chain_each_wait_for_the_one_before() -> None:
    chain = [request(0, 0.0)] + [request(i, float(i), parent_id=i - 1, think_time_s=1.0) for i in range(1, 5)]
    arrivals = Arrivals(chain)
    now = 0.0
    for i in range(5):
        taken, at_s = arrivals.pop()
        assert taken.request_id == i
        assert at_s == pytest.approx(now)
        arrivals.ended(i, at_s + 2.0, True)
        now = at_s + 3.0


def test_a_turn_read_after_its_moment_is_offered_at_once_and_counted() -> None:
    rows = [request(i, float(i)) for i in range(6)] + [request(9, 5.0, parent_id=0, think_time_s=0.0)]
    arrivals = Arrivals(rows, look_ahead=2)
    for _ in range(5):
        taken, at_s = arrivals.pop()
        arrivals.ended(taken.request_id, at_s + 0.1, True)
    taken, at_s = arrivals.pop()
    assert (taken.request_id, at_s) == (9, 4.0)
    assert arrivals.late_turns == 1


def test_a_turn_whose_parent_is_unknown_comes_when_the_trace_says() -> None:
    arrivals = Arrivals([request(0, 0.0), request(1, 7.0, parent_id=99, think_time_s=1.0)])
    arrivals.pop()
    assert arrivals.next_s == 7.0
    assert arrivals.orphan_turns == 1


def test_a_long_row_of_turns_does_not_hide_the_next_root() -> None:
    turns = [request(i, 0.0, parent_id=0) for i in range(1, 30)]
    arrivals = Arrivals([request(0, 0.0), *turns, request(100, 2.0)], look_ahead=4)
    arrivals.pop()
    assert arrivals.next_s == 2.0


def test_ends_are_forgotten_at_last() -> None:
    arrivals = Arrivals((request(i, float(i)) for i in range(REMEMBERED + 10)), look_ahead=1)
    for _ in range(REMEMBERED + 10):
        taken, at_s = arrivals.pop()
        arrivals.ended(taken.request_id, at_s, True)
    assert len(arrivals._ended) == REMEMBERED


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([request(0, 5.0), request(1, 4.0)], "back in time"),
        ([request(0, math.nan)], "back in time"),
        ([request(0, 0.0), request(0, 1.0)], "used twice"),
    ],
)
def test_traces_that_cannot_be_run(rows: list[Request], message: str) -> None:
    with pytest.raises(TraceError, match=message):
        Arrivals(rows)
