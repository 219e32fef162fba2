"""Laws of budgets and queues: no overshoot, conservation after settlement, bounded garbage."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from data.fleet.types import Tenant
from data.types import Slo
from router.slomax.budgets import Budgets
from router.slomax.settings import SloMaxSettings
from router.slomax.waiting import GARBAGE_FLOOR, Waiting, WaitingHeap
from router.types import RouteRequest

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["reserve", "settle", "undo"]), st.integers(1, 400), st.floats(0, 3), st.floats(0, 1)
    ),
    max_size=80,
)
RATE, BURST_S, LEASE_S = 100.0, 5.0, 20.0


@given(STEPS)
@settings(max_examples=200, deadline=None)
def test_parallel_requests_never_use_more_than_the_bucket_holds(
    steps: list[tuple[str, int, float, float]],
) -> None:
    """F056: whatever comes when, reserved and used tokens stay within burst + rate · time."""
    tenant = Tenant("t", tokens_per_s_budget=RATE, concurrent_budget=7)
    book = Budgets((tenant,), SloMaxSettings(budget_burst_s=BURST_S, lease_s=LEASE_S), 0.0)
    now_s, used, number = 0.0, 0.0, 0
    opened: dict[int, tuple[int, float]] = {}
    for kind, tokens, wait_s, share in steps:
        now_s += wait_s
        for key, (held, since_s) in list(opened.items()):
            if since_s <= now_s - LEASE_S:
                used += held
                del opened[key]
        if kind == "reserve":
            number += 1
            if book.reserve((number, 0), "t", float(tokens), now_s) == 0.0:
                opened[number] = tokens, now_s
        elif opened:
            key = next(iter(opened))
            held, _ = opened.pop(key)
            if kind == "settle":
                book.settle((key, 0), held * share, now_s)
                used += held * share
            else:
                book.undo((key, 0), now_s)
        status = book.status(now_s)[0]
        reserved = sum(held for held, _ in opened.values())
        assert status.reserved_tokens == reserved
        assert status.in_flight == len(opened) <= 7
        assert used + reserved <= RATE * (BURST_S + now_s) + 1e-6
        assert status.tokens_left is not None
        assert -1e-6 <= status.tokens_left <= RATE * BURST_S + 1e-6


@given(st.lists(st.integers(1, 100), min_size=1, max_size=20), st.floats(0, 1))
def test_after_settlement_only_what_was_used_is_gone(sizes: list[int], share: float) -> None:
    """F056: reservation and settlement at one moment cost exactly the tokens used."""
    book = Budgets((Tenant("t", tokens_per_s_budget=1.0),), SloMaxSettings(budget_burst_s=5000.0), 0.0)
    for key, tokens in enumerate(sizes):
        assert book.reserve((key, 0), "t", float(tokens), 0.0) == 0.0
    for key, tokens in enumerate(sizes):
        book.settle((key, 0), tokens * share, 0.0)
    left = book.status(0.0)[0].tokens_left
    assert left is not None
    assert abs(left - (5000.0 - share * sum(sizes))) < 1e-6


def waiting(ticket: int) -> Waiting:
    request = RouteRequest(ticket, "m@1", "t", "c", "A", 1, 1, 1.0, (), 16, "", Slo())
    return Waiting(ticket, request, 0.0, 0.0, 0.0, 1.0, 0.0, long=False)


@given(
    st.lists(st.tuples(st.sampled_from(["push", "pop", "cancel"]), st.floats(0, 10)), max_size=200), st.randoms()
)
@settings(max_examples=150, deadline=None)
def test_a_heap_gives_the_least_and_keeps_little_garbage(steps: list[tuple[str, float]], rng: Any) -> None:
    heap, live = WaitingHeap(), dict[int, tuple[float, Waiting]]()
    for ticket, (kind, key) in enumerate(steps):
        if kind == "push":
            item = waiting(ticket)
            heap.push(key, item)
            live[ticket] = key, item
        elif live:
            first = heap.first()
            assert first is not None
            assert live[first.ticket][0] == min(value for value, _ in live.values())
            gone = first if kind == "pop" else live[rng.choice(sorted(live))][1]
            gone.gone = True
            heap.discard()
            del live[gone.ticket]
        assert len(heap) == len(live)
        assert heap.stored <= 2 * len(live) + GARBAGE_FLOOR
    if not live:
        assert heap.first() is None
