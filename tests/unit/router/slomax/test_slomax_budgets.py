"""Budgets: worst case at admission, settlement at the end, all or nothing, and leases that free themselves."""

from __future__ import annotations

import pytest

from data.errors import SettingError
from data.fleet.types import Tenant
from router.slomax.bucket import Bucket
from router.slomax.budgets import Budgets
from router.slomax.limits import Limits, limits_of
from router.slomax.settings import SloMaxSettings


def budgets(burst_s: float = 10.0, lease_s: float = 100.0, **limits: float | int | None) -> Budgets:
    settings = SloMaxSettings(budget_burst_s=burst_s, lease_s=lease_s)
    return Budgets((Tenant("t", **limits),), settings, 0.0)  # type: ignore[arg-type]


def test_f056_parallel_requests_reserve_their_worst_case() -> None:
    """F056: of five requests of 40,000 against 100,000 exactly two are in; settled at 25,000, one more is."""
    book = budgets(burst_s=100_000.0, tokens_per_s_budget=1.0)
    waits = [book.reserve((i, 0), "t", 40_000, 0.0) for i in range(5)]
    assert [wait == 0 for wait in waits] == [True, True, False, False, False]
    book.settle((0, 0), 25_000, 0.0)
    book.settle((1, 0), 25_000, 0.0)
    assert book.status(0.0)[0].tokens_left == pytest.approx(50_000)
    assert book.reserve((5, 0), "t", 40_000, 0.0) == 0.0
    assert book.reserve((6, 0), "t", 40_000, 0.0) > 0


def test_f055_a_refused_request_changes_no_counter() -> None:
    """F055: refused for the concurrent limit, nothing of the request budget is used up."""
    book = budgets(burst_s=200.0, requests_per_s_budget=0.01, concurrent_budget=1, tokens_per_s_budget=1000.0)
    assert book.reserve((0, 0), "t", 100, 0.0) == 0.0
    before = book.status(1.0)
    assert book.reserve((1, 0), "t", 100, 1.0) > 0
    assert book.status(1.0) == before
    book.settle((0, 0), 100, 10.0)
    assert book.reserve((2, 0), "t", 100, 11.0) == 0.0
    assert book.status(11.0)[0].requests_left == pytest.approx(0.11, abs=0.01)


def test_f061_every_exit_frees_the_place_and_a_leak_frees_itself() -> None:
    """F061: cancel, time-out and bad request give the place back; a lost one returns after the lease time."""
    book = budgets(concurrent_budget=1)
    for request in range(3):
        assert book.reserve((request, 0), "t", 10, float(request)) == 0.0
        book.settle((request, 0), 3, request + 0.5)
        assert book.status(request + 0.5)[0].in_flight == 0
    assert book.reserve((3, 0), "t", 10, 10.0) == 0.0
    # Others keep knocking, which must not renew the lease of the lost one.
    for second in range(11, 110):
        assert book.reserve((4, 0), "t", 10, float(second)) > 0
    assert book.reserve((5, 0), "t", 10, 110.5) == 0.0
    book.settle((3, 0), 10, 111.0)  # the lost one turns up late: nothing changes
    assert book.status(111.0)[0].in_flight == 1


def test_an_unknown_outcome_counts_as_all_used() -> None:
    book = budgets(burst_s=1.0, lease_s=5.0, tokens_per_s_budget=1000.0)
    assert book.reserve((0, 0), "t", 1000, 0.0) == 0.0
    book.expire(4.9)
    assert book.status(4.9)[0].reserved_tokens == 1000
    assert book.status(5.1)[0].reserved_tokens == 0
    assert book.status(5.1)[0].tokens_left == pytest.approx(1000)  # refilled by its rate, not by the expiry


def test_what_was_never_sent_is_as_if_it_had_not_come() -> None:
    book = budgets(tokens_per_s_budget=10.0, requests_per_s_budget=1.0)
    before = book.status(0.0)
    book.reserve((0, 0), "t", 90, 0.0)
    book.undo((0, 0), 0.0)
    assert book.status(0.0) == before


def test_a_request_larger_than_the_burst_is_never_let_in() -> None:
    book = budgets(burst_s=10.0, tokens_per_s_budget=10.0)
    assert book.reserve((0, 0), "t", 101, 1e6) == float("inf")


def test_tenants_without_budgets_are_only_counted() -> None:
    book = budgets()
    assert all(book.reserve((i, 0), "t", 1e9, 0.0) == 0.0 for i in range(100))
    status = book.status(0.0)[0]
    assert (status.tokens_left, status.in_flight) == (None, 100)


def test_a_bucket_keeps_its_fill_under_new_limits_and_refuses_nonsense() -> None:
    bucket = Bucket(10.0, 100.0, 0.0)
    bucket.take(70.0, 0.0)
    assert bucket.reshaped(20.0, 50.0, 0.0).level(0.0) == 30.0
    assert bucket.reshaped(20.0, 20.0, 0.0).level(0.0) == 20.0
    assert bucket.covered_in_s(50.0, 0.0) == pytest.approx(2.0)
    with pytest.raises(SettingError):
        Bucket(1.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("own", "share", "limits"),
    [
        ({}, 1.0, Limits()),
        ({}, 0.25, Limits()),
        ({"tokens_per_s_budget": 100.0}, 1.0, Limits(tokens_per_s=100.0)),
        ({"tokens_per_s_budget": 100.0}, 0.25, Limits(tokens_per_s=25.0)),
        ({"tokens_per_s_budget": 0.0}, 1.0, Limits(tokens_per_s=0.0)),
        ({"requests_per_s_budget": 8.0}, 0.5, Limits(requests_per_s=4.0)),
        ({"requests_per_s_budget": 0.0}, 0.5, Limits(requests_per_s=0.0)),
        ({"concurrent_budget": 5}, 0.5, Limits(concurrent=2)),
        ({"concurrent_budget": 1}, 0.1, Limits(concurrent=1)),
        ({"concurrent_budget": 0}, 0.1, Limits(concurrent=0)),
    ],
)
def test_a_limit_never_resolves_to_none_f059(own: dict[str, float], share: float, limits: Limits) -> None:
    """F059: one function resolves limits; unset, set and 0 stay three different things; 0 lets nothing in."""
    tenant = Tenant("t", **own)  # type: ignore[arg-type]
    assert limits_of(tenant, share) == limits
    book = Budgets((tenant,), SloMaxSettings(budget_share=share), 0.0)
    wait_s = book.reserve((0, 0), "t", 1.0, 0.0)
    assert (wait_s > 0) == (0 in (limits.tokens_per_s, limits.requests_per_s, limits.concurrent))
    status = book.status(0.0)[0]
    assert (status.tokens_per_s, status.requests_per_s, status.concurrent) == (
        limits.tokens_per_s,
        limits.requests_per_s,
        limits.concurrent,
    )


def test_routers_that_share_a_budget_need_no_common_store_f060() -> None:
    """F060: two routers with half of each budget never let in more than the whole, whichever takes the load."""
    tenant = Tenant("t", tokens_per_s_budget=100.0, concurrent_budget=10)
    settings = SloMaxSettings(budget_share=0.5, budget_burst_s=10.0)
    routers = [Budgets((tenant,), settings, 0.0) for _ in range(2)]
    let_in = [sum(book.reserve((i, 0), "t", 90.0, 0.0) == 0.0 for i in range(20)) for book in routers]
    assert let_in == [5, 5]
    assert sum(n * 90.0 for n in let_in) <= 100.0 * 10.0
    # One of them is gone: the other goes on with its own share, neither open nor shut.
    for i in range(5):
        routers[0].settle((i, 0), 90.0, 1.0)
    assert routers[0].status(1.0)[0].tokens_per_s == 50.0
    assert routers[0].reserve((30, 0), "t", 90.0, 1.0) == 0.0


def test_other_limits_keep_what_is_reserved_and_the_level() -> None:
    book = budgets(tokens_per_s_budget=100.0)
    assert book.reserve((0, 0), "t", 400, 0.0) == 0.0
    book.set_tenants((Tenant("t", tokens_per_s_budget=50.0), Tenant("new", concurrent_budget=1)), 0.0)
    new, old = book.status(0.0)
    assert (new.tenant, new.concurrent) == ("new", 1)
    assert (old.tokens_left, old.in_flight, old.reserved_tokens) == (500.0, 1, 400)
    book.settle((0, 0), 0.0, 0.0)
    assert book.status(0.0)[1].tokens_left == 500.0  # within the new burst
