"""Reports are reconciled with what was sent after their sample, never written over it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from router.endpoints import EndpointTable
from router.leases import RETENTION_S, LeaseBook
from router.reports import apply_reports
from router.types import RouteRequest

Tables = Callable[..., EndpointTable]
Requests = Callable[..., RouteRequest]
NAN = float("nan")


def report(
    table: EndpointTable,
    book: LeaseBook,
    sampled_at_s: float,
    running: list[float],
    rows: list[int] | None = None,
) -> int:
    values = np.array(running)
    at = np.arange(len(table)) if rows is None else np.array(rows)
    return apply_reports(table, book, at, sampled_at_s, values, np.zeros(len(at)), np.zeros(len(at)))


def test_work_sent_after_the_sample_is_kept_f008(make_table: Tables, make_request: Requests) -> None:
    """F008: the example of the case, to the number."""
    table = make_table(2)
    book = LeaseBook(table)
    book.open(make_request(1), 0, 0.0, now_s=10.0)
    report(table, book, 0.0, [0.0, 0.0])
    load = table.running + table.waiting + table.sent_since_report
    assert load.tolist() == [1, 0]
    report(table, book, 20.0, [1.0, 0.0])
    load = table.running + table.waiting + table.sent_since_report
    assert load.tolist() == [1, 0]


def test_work_that_ended_meanwhile_is_not_counted(make_table: Tables, make_request: Requests) -> None:
    table = make_table(1)
    book = LeaseBook(table)
    gone = book.open(make_request(0), 0, 0.0, now_s=10.0)
    book.open(make_request(1), 0, 200.0, now_s=11.0)
    book.close(gone, 11.5)
    report(table, book, 5.0, [0.0])
    assert table.sent_since_report[0] == 1
    assert table.sent_uncached_since_report[0] == 800


def test_prompt_work_that_is_done_is_not_counted_again(make_table: Tables, make_request: Requests) -> None:
    table = make_table(1)
    book = LeaseBook(table)
    lease = book.open(make_request(0), 0, 0.0, now_s=10.0)
    book.first_token(lease, 10.5)
    report(table, book, 5.0, [0.0])
    assert table.sent_since_report[0] == 1
    assert table.sent_uncached_since_report[0] == 0
    book.close(lease, 12.0)
    assert table.sent_since_report[0] == 0


def test_only_the_reporting_rows_change(make_table: Tables, make_request: Requests) -> None:
    table = make_table(3)
    book = LeaseBook(table)
    for row in range(3):
        book.open(make_request(row), row, 0.0, now_s=1.0)
    assert report(table, book, 2.0, [7.0], rows=[1]) == 1
    assert table.sent_since_report.tolist() == [1, 0, 1]
    assert np.isnan(table.running[[0, 2]]).all()
    assert report(table, book, 0.5, [4.0], rows=[2]) == 1
    assert table.sent_since_report.tolist() == [1, 0, 1]


def test_an_older_report_changes_nothing(make_table: Tables) -> None:
    table = make_table(2)
    book = LeaseBook(table)
    assert report(table, book, 5.0, [3.0, 3.0]) == 2
    assert report(table, book, 4.0, [9.0, 9.0]) == 0
    assert report(table, book, 5.0, [9.0, 9.0]) == 0
    assert table.running.tolist() == [3, 3]
    assert table.reported_at_s.tolist() == [5, 5]


def test_missing_is_not_zero_f015_f020(make_table: Tables) -> None:
    """F015, F020: a missing sample stays NaN and leaves its neighbours; a row without any sample keeps ageing."""
    table = make_table(3)
    book = LeaseBook(table)
    report(table, book, 1.0, [1.0, 1.0, 1.0])
    rows = apply_reports(
        table,
        book,
        np.arange(3),
        2.0,
        running=np.array([NAN, NAN, 4.0]),
        waiting=np.array([5.0, NAN, 6.0]),
        kv_use=np.array([0.97, NAN, NAN]),
    )
    assert rows == 2
    assert np.isnan(table.running[0])
    assert (table.waiting[0], table.kv_use[0]) == (5.0, 0.97)
    assert (table.reported_at_s[1], table.running[1]) == (1.0, 1.0)
    assert (table.running[2], table.waiting[2]) == (4.0, 6.0)
    assert np.isnan(table.kv_use[2])


def test_a_report_older_than_the_memory_of_dispatches_is_refused(
    make_table: Tables, make_request: Requests
) -> None:
    table = make_table(2)
    book = LeaseBook(table)
    for row, at in ((0, 0.0), (1, RETENTION_S + 1.0)):
        book.open(make_request(row), row, 0.0, now_s=at)
    assert report(table, book, -1.0, [0.0, 0.0]) == 0
    assert table.sent_since_report.tolist() == [1, 1]
    assert report(table, book, 0.5, [0.0, 0.0]) == 2
    assert table.sent_since_report.tolist() == [0, 1]


@pytest.mark.parametrize("sampled_at_s", [0.0, 3.0, 9.0])
def test_the_memory_of_dispatches_stays_short(
    make_table: Tables, make_request: Requests, sampled_at_s: float
) -> None:
    table = make_table(1)
    book = LeaseBook(table)
    for i in range(10):
        book.open(make_request(i), 0, 0.0, now_s=float(i))
    report(table, book, sampled_at_s, [0.0])
    assert table.sent_since_report[0] == 9 - sampled_at_s
    assert len(list(book.opened_after(-1.0))) == 9 - sampled_at_s
