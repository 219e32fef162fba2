"""Local accounting: charged at decision time, released exactly once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from data.errors import LeaseError
from data.types import Status
from models.signals import PREFILL_LOAD_HALF_LIFE_S, SignalSettings, observe
from router.endpoints import EndpointTable
from router.leases import LeaseBook
from router.reports import apply_reports
from router.types import RouteRequest

LOCAL = (
    "inflight",
    "inflight_uncached_tokens",
    "waiting_prefill_s",
    "inflight_tokens",
    "decoding",
    "sent_since_report",
    "sent_uncached_since_report",
)
Tables = Callable[..., EndpointTable]
Requests = Callable[..., RouteRequest]


def local_counts(table: EndpointTable) -> dict[str, list[float]]:
    return {name: getattr(table, name).tolist() for name in LOCAL}


def test_a_dispatch_is_charged_at_once(make_table: Tables, make_request: Requests) -> None:
    table = make_table(3)
    LeaseBook(table).open(make_request(input_tokens=1000), 1, hit_tokens=300.0, now_s=5.0)
    assert local_counts(table) == {
        "inflight": [0, 1, 0],
        "inflight_uncached_tokens": [0, 700, 0],
        "waiting_prefill_s": [0, pytest.approx(0.07), 0],
        "inflight_tokens": [0, 1200, 0],
        "decoding": [0, 0, 0],
        "sent_since_report": [0, 1, 0],
        "sent_uncached_since_report": [0, 700, 0],
    }
    assert table.prefill_since_s[1] == 5.0


def test_sent_prefill_work_is_remembered_and_fades(make_table: Tables, make_request: Requests) -> None:
    table = make_table(2)
    book = LeaseBook(table)
    lease = book.open(make_request(0, input_tokens=1000), 0, 0.0, 100.0)
    book.close(lease, 101.0)
    book.open(make_request(1, input_tokens=500), 0, 0.0, 100.0 + PREFILL_LOAD_HALF_LIFE_S)
    assert table.recent_prefill_s.tolist() == pytest.approx([0.05 + 0.05, 0.0])
    book.drop_endpoint(0)
    assert table.recent_prefill_s.tolist() == [0.0, 0.0]


def test_steady_work_shows_as_its_share_of_time(make_table: Tables, make_request: Requests) -> None:
    """0.1 s of prefill each half second is a load of 0.2, after some half-lives."""
    table = make_table(1)
    book = LeaseBook(table)
    for number in range(400):
        book.close(book.open(make_request(number, input_tokens=1000), 0, 0.0, 0.5 * number), 0.5 * number)
    seen = observe(table, np.array([0]), 200.0, SignalSettings())
    assert seen.prefill_load is not None
    assert seen.prefill_load[0] == pytest.approx(0.2, rel=0.02)


def test_first_token_moves_prompt_work_out_once(make_table: Tables, make_request: Requests) -> None:
    table = make_table(1)
    book = LeaseBook(table)
    first = book.open(make_request(0), 0, 0.0, 1.0)
    book.open(make_request(1), 0, 400.0, 2.0)
    book.first_token(first, 3.0)
    book.first_token(first, 3.5)
    assert table.inflight_uncached_tokens[0] == 600
    assert table.sent_uncached_since_report[0] == 600
    assert table.waiting_prefill_s[0] == pytest.approx(0.06)
    assert table.decoding[0] == 1
    assert table.prefill_since_s[0] == 3.0


@pytest.mark.parametrize("decoding", [False, True])
@pytest.mark.parametrize("status", list(Status))
def test_every_exit_releases_everything_f006_f012(
    make_table: Tables, make_request: Requests, status: Status, decoding: bool
) -> None:
    """F006, F012: client errors and refusals release load like completions; only completions count as done."""
    table = make_table(2)
    before = local_counts(table)
    book = LeaseBook(table)
    lease = book.open(make_request(), 0, 10.0, 1.0)
    if decoding:
        book.first_token(lease, 2.0)
    book.close(lease, 3.0, status)
    assert local_counts(table) == before
    assert table.completed[0] == (status is Status.COMPLETED)
    assert len(book) == 0


def test_a_second_close_is_an_error(make_table: Tables, make_request: Requests) -> None:
    book = LeaseBook(make_table(1))
    lease = book.open(make_request(), 0, 0.0, 1.0)
    book.close(lease, 2.0)
    with pytest.raises(LeaseError, match="not open"):
        book.close(lease, 2.0)
    with pytest.raises(LeaseError, match="not open"):
        book.first_token(lease, 2.0)
    with pytest.raises(LeaseError, match="never opened"):
        book.close(99, 2.0)


def test_leaked_leases_expire(make_table: Tables, make_request: Requests) -> None:
    table = make_table(1)
    book = LeaseBook(table)
    old = book.open(make_request(0), 0, 0.0, 1.0)
    book.open(make_request(1), 0, 0.0, 9.0)
    assert book.expire(5.0) == [old]
    assert table.inflight[0] == 1
    with pytest.raises(LeaseError):
        book.close(old, 10.0)


def test_an_endpoint_that_left_is_forgotten_and_its_leases_are_orphans(
    make_table: Tables, make_request: Requests
) -> None:
    """F025: reports and counters of an incarnation go together; late ends of its requests change nothing."""
    table = make_table(2)
    book = LeaseBook(table)
    lease = book.open(make_request(0), 0, 0.0, 1.0)
    late = book.open(make_request(1), 0, 0.0, 1.0)
    kept = book.open(make_request(2), 1, 0.0, 1.0)
    one = np.ones(2)
    apply_reports(table, book, np.arange(2), 0.5, one, one, one)
    book.drop_endpoint(0)
    assert {name: values[0] for name, values in local_counts(table).items()} == dict.fromkeys(LOCAL, 0.0)
    assert np.isnan([table.reported_at_s[0], table.running[0], table.waiting[0], table.kv_use[0]]).all()
    assert table.incarnation.tolist() == [1, 0]
    fresh = book.open(make_request(3), 0, 0.0, 2.0)
    book.first_token(late, 3.0)
    book.close(late, 3.0)
    book.close(lease, 3.0)
    assert table.inflight.tolist() == [1, 1]
    book.close(fresh, 4.0)
    book.close(kept, 4.0)
    assert table.inflight.tolist() == [0, 0]
    assert table.decoding.tolist() == [0, 0]


def test_health_checks_and_reports_never_lower_local_work_f004(make_table: Tables, make_request: Requests) -> None:
    """F004: five open requests stay five through health cycles, a refresh and an idle report."""
    table = make_table(2)
    book = LeaseBook(table)
    for i in range(5):
        book.open(make_request(i), 0, 0.0, float(i))
    zero = np.zeros(2)
    for cycle in range(3):
        table.healthy[:] = False
        table.healthy[:] = True
        apply_reports(table, book, np.arange(2), 10.0 + cycle, zero, zero, zero)
    assert table.inflight.tolist() == [5, 0]
    assert table.inflight_uncached_tokens.tolist() == [5000, 0]


def test_a_clock_that_steps_back_keeps_dispatches_in_order(make_table: Tables, make_request: Requests) -> None:
    table = make_table(1)
    book = LeaseBook(table)
    book.open(make_request(0), 0, 0.0, 10.0)
    book.open(make_request(1), 0, 0.0, 4.0)
    assert [lease.request_id for lease in book.opened_after(9.0)] == [1, 0]
