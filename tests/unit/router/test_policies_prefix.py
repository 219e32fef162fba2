"""Prefix-aware policies with an approximate index: each rule pinned by small examples worked by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from router.endpoints import EndpointTable
from router.policies.prefix_hash_smg import ring_of
from router.prefix import EventPrefixIndex
from router.registry import make_policy
from router.types import FleetView, RouteRequest

Tables = Callable[..., EndpointTable]
Requests = Callable[..., RouteRequest]
Views = Callable[..., FleetView]
PROMPT = tuple(range(1, 11))
"""Ten blocks of 100 tokens: the 1,000-token prompt of the builder."""


# sglang: 64 / 1.5, share over 0.3


@pytest.mark.parametrize(
    ("loads", "chosen"),
    [
        ((0, 64, 5), 1),  # difference 64 is not above 64: affinity
        ((0, 65, 5), 0),  # both bounds exceeded: least in flight
        ((200, 270, 300), 1),  # 300 <= 1.5 * 200: affinity
        ((100, 165, 165), 0),  # 165 > 1.5 * 100: least in flight
    ],
)
def test_sglang_balances_only_when_both_bounds_are_exceeded(
    make_table: Tables, make_request: Requests, make_view: Views, loads: tuple[int, ...], chosen: int
) -> None:
    table = make_table(3)
    view = make_view(table)
    policy = make_policy("cache_aware_sglang", {}, table, 0)
    request = make_request(block_hashes=PROMPT)
    policy.dispatched(request, 1, view)
    table.inflight[:] = loads
    assert policy.choose(request, np.arange(3), view) == chosen


@pytest.mark.parametrize(("shared_blocks", "chosen"), [(3, 0), (4, 2)])
def test_sglang_needs_more_than_three_tenths(
    make_table: Tables, make_request: Requests, make_view: Views, shared_blocks: int, chosen: int
) -> None:
    table = make_table(3)
    view = make_view(table)
    policy = make_policy("cache_aware_sglang", {}, table, 0)
    policy.dispatched(make_request(block_hashes=PROMPT[:shared_blocks]), 2, view)
    table.inflight[:] = [1, 2, 3]
    assert policy.choose(make_request(block_hashes=PROMPT), np.arange(3), view) == chosen


def test_sglang_sends_to_the_most_recent_owner(
    make_table: Tables, make_request: Requests, make_view: Views
) -> None:
    table = make_table(3)
    view = make_view(table)
    policy = make_policy("cache_aware_sglang", {}, table, 0)
    request = make_request(block_hashes=PROMPT)
    for endpoint in (2, 1):
        policy.dispatched(request, endpoint, view)
    assert policy.choose(request, np.arange(3), view) == 1


def test_sglang_with_an_unhealthy_owner_takes_the_first_and_learns_nothing(
    make_table: Tables, make_request: Requests, make_view: Views
) -> None:
    table = make_table(3)
    view = make_view(table)
    policy = make_policy("cache_aware_sglang", {}, table, 0)
    request = make_request(block_hashes=PROMPT)
    policy.dispatched(request, 2, view)
    table.inflight[:] = [9, 0, 0]
    healthy = np.array([0, 1])
    assert policy.choose(request, healthy, view) == 0
    policy.dispatched(request, 0, view)
    assert policy.choose(request, np.arange(3), view) == 2


def test_trees_of_two_models_are_apart(make_table: Tables, make_request: Requests, make_view: Views) -> None:
    table = make_table(2)
    view = make_view(table)
    policy = make_policy("cache_aware_sglang", {}, table, 0)
    policy.dispatched(make_request(model="a@1", block_hashes=PROMPT), 1, view)
    table.inflight[:] = [1, 2]
    assert policy.choose(make_request(model="b@1", block_hashes=PROMPT), np.arange(2), view) == 0


def test_an_unhealthy_idle_worker_does_not_end_affinity_f005(
    make_table: Tables, make_request: Requests, make_view: Views
) -> None:
    """F005: the example of the case; with the idle worker in the statistics affinity would be dropped."""
    table = make_table(3)
    table.inflight[:] = [5, 5, 0]
    table.healthy[2] = False
    view = make_view(table)
    policy = make_policy("cache_aware_sglang", {"balance_abs": 0.0}, table, 0)
    request = make_request(block_hashes=PROMPT)
    policy.dispatched(request, 1, view)
    assert policy.choose(request, np.array([0, 1]), view) == 1
    table.healthy[2] = True
    assert policy.choose(request, np.arange(3), view) == 2


# SMG: spill gate max(4, 2 sqrt(mean)) up to 64, on the chosen holder only


@pytest.mark.parametrize(
    ("holder_load", "others", "chosen"),
    [
        (5, 0, 1),  # mean 1.25: 5 is above 1.88 but not above 1.25 + 4
        (6, 0, 0),  # mean 1.5: 6 is above 2.25 and above 1.5 + 4
        (44, 25, 1),  # mean 29.75: 44 is above 29.75 + 10.9 but not above 44.6
        (60, 25, 0),  # mean 33.75: 60 is above 50.6 and above 33.75 + 11.6
    ],
)
def test_smg_spills_a_holder_far_above_the_mean(
    make_table: Tables, make_request: Requests, make_view: Views, holder_load: int, others: int, chosen: int
) -> None:
    table = make_table(4)
    view = make_view(table)
    policy = make_policy("cache_aware_smg", {}, table, 0)
    request = make_request(block_hashes=PROMPT)
    policy.dispatched(request, 1, view)
    table.inflight[:] = [others, holder_load, others, others]
    assert policy.choose(request, np.arange(4), view) == chosen


def test_smg_spill_margin_is_capped_at_64(make_table: Tables, make_request: Requests, make_view: Views) -> None:
    """Mean 2,000: 2 sqrt = 89 is cut to 64, so 2,000 + 64 is the bound once 1.03 times the mean is passed."""
    table = make_table(100)
    policy = make_policy("cache_aware_smg", {"spill_ratio": 1.03}, table, 0)
    request = make_request(block_hashes=PROMPT)
    view = make_view(table)
    policy.dispatched(request, 1, view)
    for load, stays in ((2062.0, True), (2070.0, False)):
        table.inflight[:] = (200_000 - load) / 99
        table.inflight[1] = load
        assert (policy.choose(request, np.arange(100), view) == 1) == stays


def test_smg_approximate_takes_the_least_busy_holder_of_the_deepest_match(
    make_table: Tables, make_request: Requests, make_view: Views
) -> None:
    table = make_table(4)
    view = make_view(table)
    policy = make_policy("cache_aware_smg", {}, table, 0)
    request = make_request(block_hashes=PROMPT)
    for endpoint, depth in ((0, 9), (1, 10), (2, 10)):
        policy.dispatched(make_request(block_hashes=PROMPT[:depth]), endpoint, view)
    table.inflight[:] = [0, 3, 2, 0]
    assert policy.choose(request, np.arange(4), view) == 2


def test_smg_with_events_takes_most_overlap_or_decays_it(
    make_table: Tables, make_request: Requests, make_view: Views
) -> None:
    """Endpoint 1 holds 10 blocks but has 3 requests of 1,000 tokens queued: 10/(1 + 3) < 6."""
    table = make_table(3)
    index = EventPrefixIndex(3)
    index.stored(0, PROMPT[:6])
    index.stored(1, PROMPT)
    view = make_view(table, prefixes=index)
    request = make_request(block_hashes=PROMPT)
    for decay, chosen in ((0.0, 1), (1.0, 0)):
        policy = make_policy("cache_aware_smg", {"index": "events", "decay": decay}, table, 0)
        policy.choose(request, np.arange(3), view)
        for _ in range(3):
            policy.dispatched(request, 1, view)
        assert policy.choose(request, np.arange(3), view) == chosen


def test_smg_gives_a_new_worker_one_miss_in_four(
    make_table: Tables, make_request: Requests, make_view: Views
) -> None:
    table = make_table(3)
    table.inflight[:] = [0, 0, 5]
    policy = make_policy("cache_aware_smg", {}, table, 0)
    policy.endpoint_reset(2)
    rows = np.arange(3)
    chosen = [policy.choose(make_request(), rows, make_view(table, now_s=float(i))) for i in range(8)]
    assert [i for i, row in enumerate(chosen) if row == 2] == [3, 7]
    after = [policy.choose(make_request(), rows, make_view(table, now_s=61.0 + i)) for i in range(8)]
    assert 2 not in after


# SMG prefix hash: 1.25 times the mean with the request counted in


def test_prefix_hash_bound(make_table: Tables, make_request: Requests, make_view: Views) -> None:
    """Four workers: with 38 in flight the bound is 1.25 · 39 / 4 = 12.19, with 40 it is 12.81."""
    table = make_table(4)
    rows, view = np.arange(4), make_view(table)
    policy = make_policy("prefix_hash_smg", {"refuse_margin": 0.0}, table, 0)
    request = make_request(block_hashes=PROMPT)
    home = policy.choose(request, rows, view)
    table.inflight[rows != home] = [9, 9, 8]
    table.inflight[home] = 12
    assert policy.choose(request, rows, view) == home
    table.inflight[rows != home] = 9
    table.inflight[home] = 13
    neighbour = policy.choose(request, rows, view)
    assert neighbour != home
    # With version 1.13's margin, 13 is within the mean of 10 plus 10.
    assert make_policy("prefix_hash_smg", {}, table, 0).choose(request, rows, view) == home
    # The next one on the ring is also where the request goes when its home is away.
    assert policy.choose(request, rows[rows != home], view) == neighbour


def test_prefix_hash_looks_at_the_head_only(make_table: Tables, make_request: Requests, make_view: Views) -> None:
    table = make_table(8)
    rows, view = np.arange(8), make_view(table)
    policy = make_policy("prefix_hash_smg", {}, table, 0)
    for i in range(20):
        head = tuple(range(100 * i, 100 * i + 3))
        first = policy.choose(make_request(block_hashes=(*head, 1, 2)), rows, view)
        assert policy.choose(make_request(block_hashes=(*head, 8, 9, 10)), rows, view) == first
    homes = Counter(
        policy.choose(make_request(block_hashes=(i, i + 1, 7_000_000 + i)), rows, view) for i in range(800)
    )
    assert min(homes.values()) > 40


def test_the_ring_has_150_points_a_worker(make_table: Tables) -> None:
    ring = ring_of(make_table(5), "m@1", 150)
    assert np.bincount(ring.owners).tolist() == [150] * 5
    assert (np.diff(ring.points.astype(object)) >= 0).all()


# AIBrix: gate 8, mean + 1 sigma


@pytest.mark.parametrize(("loads", "chosen"), [((0, 8, 9), 0), ((1, 8, 9), 1)])
def test_aibrix_gate_of_eight(
    make_table: Tables, make_request: Requests, make_view: Views, loads: tuple[int, ...], chosen: int
) -> None:
    """Spread 9 leaves the idle pod only; spread 8 with mean 6 and σ 3.56 allows pod 1."""
    table = make_table(3)
    view = make_view(table)
    policy = make_policy("prefix_cache_aibrix", {}, table, 0)
    policy.dispatched(make_request(block_hashes=PROMPT), 1, view)
    table.inflight[:] = loads
    assert policy.choose(make_request(block_hashes=PROMPT), np.arange(3), view) == chosen


def test_aibrix_vetoes_a_holder_above_one_deviation(
    make_table: Tables, make_request: Requests, make_view: Views
) -> None:
    """Counts 1, 1, 1, 5: mean 2, σ 1.73; the holder with 5 is vetoed, the shorter match wins."""
    table = make_table(4)
    view = make_view(table)
    policy = make_policy("prefix_cache_aibrix", {}, table, 0)
    policy.dispatched(make_request(block_hashes=PROMPT), 3, view)
    policy.dispatched(make_request(block_hashes=PROMPT[:2]), 2, view)
    table.inflight[:] = [1, 1, 1, 5]
    assert policy.choose(make_request(block_hashes=PROMPT), np.arange(4), view) == 2


def test_aibrix_counts_its_own_requests_unless_told_to_use_reports(
    make_table: Tables, make_request: Requests, make_view: Views
) -> None:
    """The peer's gateway counts at every dispatch and end; a scraped count that is missing reads as 0."""
    table = make_table(3)
    table.running[:] = [9, 9, np.nan]
    table.inflight[:] = [0, 1, 50]
    rows, view = np.arange(3), make_view(table)
    assert make_policy("prefix_cache_aibrix", {}, table, 0).choose(make_request(), rows, view) == 0
    scraped = make_policy("prefix_cache_aibrix", {"counts": "scraped"}, table, 0)
    assert scraped.choose(make_request(), rows, view) == 2
