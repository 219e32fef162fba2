"""Law of the accounting: whatever happens to requests, all counters end where they began."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.catalog.types import ServiceTimes
from data.types import Slo, Status
from router.endpoints import EndpointSpec, EndpointTable
from router.leases import LeaseBook
from router.reports import apply_reports
from router.types import RouteRequest

N = 4
TIMES = ServiceTimes(p0=0.01, p1=1e-4, p2=1e-9, d0=0.01, d1=1e-4, d2=1e-8)
LOCAL = (
    "inflight",
    "inflight_uncached_tokens",
    "waiting_prefill_s",
    "inflight_tokens",
    "decoding",
    "sent_since_report",
    "sent_uncached_since_report",
)


def table_of() -> EndpointTable:
    return EndpointTable(
        [
            EndpointSpec(f"B/c/{i}", "B", "m@1", "c", "H100", 1, TIMES, 100_000, 8192, 256, 131_072)
            for i in range(N)
        ]
    )


def request_of(request_id: int, tokens: int, expected: float) -> RouteRequest:
    return RouteRequest(request_id, "m@1", "t", "c", "A", tokens, 500, expected, (), 512, "", Slo(), attempt=0)


def zeros(table: EndpointTable) -> bool:
    return all(not getattr(table, name).any() for name in LOCAL)


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["open", "open", "open", "first_token", "close", "report", "drop", "expire"]),
        st.integers(0, 10**6),
        st.floats(0, 3000),
    ),
    max_size=120,
)


@settings(max_examples=150)
@given(ACTIONS)
def test_counters_equal_what_is_open_and_end_at_zero_f012(actions: list[tuple[str, int, float]]) -> None:
    """F012, F008: at each moment the counters equal the sum over open leases; at the end they are zero."""
    table = table_of()
    book = LeaseBook(table)
    open_leases: dict[int, tuple[int, float]] = {}
    for now, (action, pick, amount) in enumerate(actions):
        leases = sorted(open_leases)
        if action == "open":
            lease = book.open(request_of(now, 3000, amount / 7), pick % N, amount, float(now))
            open_leases[lease] = (pick % N, float(now))
        elif action == "first_token" and leases:
            book.first_token(leases[pick % len(leases)], float(now))
        elif action == "close" and leases:
            lease = leases[pick % len(leases)]
            book.close(lease, float(now), Status(pick % len(Status)))
            del open_leases[lease]
        elif action == "report":
            rows = np.flatnonzero([pick >> row & 1 for row in range(N)])
            zero = np.zeros(len(rows))
            apply_reports(table, book, rows, now - amount / 1000, zero, zero, zero)
        elif action == "drop":
            book.drop_endpoint(pick % N)
            open_leases = {lease: (-1 if row == pick % N else row, at) for lease, (row, at) in open_leases.items()}
        elif action == "expire":
            for lease in book.expire(now - 50.0):
                del open_leases[lease]
        inflight = np.bincount([row for row, _ in open_leases.values() if row >= 0], minlength=N)
        assert table.inflight.tolist() == inflight.tolist()
        since = [
            sum(1 for r, at in open_leases.values() if r == row and not at <= table.reported_at_s[row])
            for row in range(N)
        ]
        assert table.sent_since_report.tolist() == since
    for lease in list(open_leases):
        book.close(lease, 1e6)
    assert zeros(table)


@pytest.mark.parametrize("seed", range(3))
def test_ten_thousand_mixed_outcomes_end_at_zero_f012(seed: int) -> None:
    """F012: success, error, time-out and cancel at random over 10,000 requests."""
    rng = np.random.default_rng(seed)
    table = table_of()
    book = LeaseBook(table)
    open_leases: list[int] = []
    for i in range(10_000):
        now = i * 0.01
        hit = float(rng.uniform(0, 2000))
        open_leases.append(book.open(request_of(i, 2000, float(rng.uniform(1, 500))), i % N, hit, now))
        if i % 25 == 0:
            values = rng.integers(0, 9, N).astype(float)
            apply_reports(table, book, np.arange(N), now - 0.05, values, values, values / 10)
        while len(open_leases) > 64:
            lease = open_leases.pop(int(rng.integers(len(open_leases))))
            if rng.random() < 0.7:
                book.first_token(lease, now)
            book.close(lease, now, Status(int(rng.integers(len(Status)))))
    for lease in open_leases:
        book.close(lease, 1e5)
    assert zeros(table)
