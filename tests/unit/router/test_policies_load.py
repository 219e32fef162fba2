"""Load-only policies: each rule pinned by small examples worked by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from data.types import Outcome, Status
from router.endpoints import EndpointTable
from router.registry import make_policy
from router.types import FleetView, RouteRequest

Tables = Callable[..., EndpointTable]
Requests = Callable[..., RouteRequest]
Views = Callable[..., FleetView]
Outcomes = Callable[..., Outcome]
NAN = float("nan")


def test_round_robin_takes_turns_a_model(make_table: Tables, make_request: Requests, make_view: Views) -> None:
    table = make_table(3)
    view = make_view(table)
    a, b = make_request(model="a@1"), make_request(model="b@1")
    own = make_policy("round_robin", {}, table, 0)
    rows = np.arange(3)
    assert [own.choose(r, rows, view) for r in (a, b, a, b, a, a)] == [0, 0, 1, 1, 2, 0]
    shared = make_policy("round_robin", {"shared_counter": True}, table, 0)
    assert [shared.choose(r, rows, view) for r in (a, b, a, b)] == [0, 1, 2, 0]


def test_least_request_and_its_variants(make_table: Tables, make_request: Requests, make_view: Views) -> None:
    table = make_table(4)
    table.inflight[:] = [3, 1, 1, 9]
    table.running[:] = [2, 5, 6, NAN]
    view, rows = make_view(table), np.arange(4)
    at_random = make_policy("least_request", {}, table, 0)
    assert {at_random.choose(make_request(), rows, view) for _ in range(50)} == {1, 2}
    first = make_policy("least_request", {"ties": "first"}, table, 0)
    assert {first.choose(make_request(), rows, view) for _ in range(50)} == {1}
    silent_attracts = make_policy("least_request", {"counts": "scraped"}, table, 0)
    assert silent_attracts.choose(make_request(), rows, view) == 3


def test_power_of_two_compares_reports_only_if_both_have_one(
    make_table: Tables, make_request: Requests, make_view: Views
) -> None:
    table = make_table(2)
    view, rows = make_view(table), np.arange(2)
    table.kv_use[:] = [0.9, 0.1]
    table.inflight[:] = [0, 5]
    policy = make_policy("power_of_two", {}, table, 0)
    assert {policy.choose(make_request(), rows, view) for _ in range(20)} == {1}
    local = make_policy("power_of_two", {"use_reports": False}, table, 0)
    assert {local.choose(make_request(), rows, view) for _ in range(20)} == {0}
    table.kv_use[1] = NAN
    assert {policy.choose(make_request(), rows, view) for _ in range(20)} == {0}


def test_power_of_two_counts_tokens_not_shares(
    make_table: Tables, make_request: Requests, make_view: Views
) -> None:
    table = make_table(2)
    table.kv_use[:] = [0.5, 0.2]
    table.kv_capacity_tokens[:] = [1000, 10_000]
    policy = make_policy("power_of_two", {}, table, 0)
    assert {policy.choose(make_request(), np.arange(2), make_view(table)) for _ in range(20)} == {0}


def test_power_of_two_draws_two_distinct(make_table: Tables, make_request: Requests, make_view: Views) -> None:
    """With the worst of three loaded more than all, it is never chosen: one of its two is always another."""
    table = make_table(3)
    table.inflight[:] = [1, 2, 3]
    policy = make_policy("power_of_two", {}, table, 0)
    chosen = Counter(policy.choose(make_request(), np.arange(3), make_view(table)) for _ in range(3000))
    assert set(chosen) == {0, 1}
    assert chosen[0] == pytest.approx(2000, abs=80)


def test_expected_wait_of_smg(make_table: Tables, make_request: Requests, make_view: Views) -> None:
    """Waits at first: 2·1024/2000 = 1.024 s; 0.15·0.8/0.2 = 0.6 s; 1024/2000 + 0.15·0.5/0.5 = 0.662 s."""
    table = make_table(3)
    table.reported_at_s[:] = 0.0
    table.waiting[:] = [2, 0, 1]
    table.kv_use[:] = [0.0, 0.8, 0.5]
    rows = np.arange(3)
    policy = make_policy("least_load_smg", {}, table, 0)
    request = make_request(input_tokens=400)
    view = make_view(table, now_s=1.0)
    assert policy.choose(request, rows, view) == 1
    policy.dispatched(request, 1, view)
    # 0.6 + 400/2000 = 0.8 s
    assert policy.choose(request, rows, view) == 2
    # Between polls a newer report is not seen.
    table.waiting[:] = [0, 9, 9]
    assert policy.choose(request, rows, make_view(table, now_s=10.9)) == 2
    assert policy.choose(request, rows, make_view(table, now_s=11.0)) == 0


def test_smg_forgets_its_own_dispatches_at_each_poll(
    make_table: Tables, make_request: Requests, make_view: Views
) -> None:
    table = make_table(2)
    table.reported_at_s[:] = 0.0
    table.waiting[:] = [0, 1]
    table.kv_use[:] = 0.0
    rows, request = np.arange(2), make_request(input_tokens=5000)
    policy = make_policy("least_load_smg", {}, table, 0)
    assert policy.choose(request, rows, make_view(table, now_s=1.0)) == 0
    policy.dispatched(request, 0, make_view(table, now_s=1.0))
    assert policy.choose(request, rows, make_view(table, now_s=10.0)) == 1
    assert policy.choose(request, rows, make_view(table, now_s=11.0)) == 0


def test_smg_without_exact_lengths_counts_1024(
    make_table: Tables, make_request: Requests, make_view: Views
) -> None:
    table = make_table(2)
    table.reported_at_s[:] = 0.0
    table.waiting[:] = [0, 0]
    table.kv_use[:] = [0.0, 0.3]
    rows, view = np.arange(2), make_view(table, now_s=1.0)
    request = make_request(input_tokens=10)
    exact = make_policy("least_load_smg", {}, table, 0)
    assumed = make_policy("least_load_smg", {"exact_tokens": False}, table, 0)
    for policy, after in ((exact, 0), (assumed, 1)):
        assert policy.choose(request, rows, view) == 0
        policy.dispatched(request, 0, view)
        assert policy.choose(request, rows, view) == after


def test_smg_guesses_for_silent_workers(make_table: Tables, make_request: Requests, make_view: Views) -> None:
    """A silent worker waits as the best reported one, plus 0.512 s for each of its requests in flight."""
    table = make_table(3)
    table.reported_at_s[:2] = 0.0
    table.waiting[:2] = [4, 2]
    table.kv_use[:2] = 0.0
    rows, view = np.arange(3), make_view(table, now_s=1.0)
    policy = make_policy("least_load_smg", {}, table, 0)
    table.inflight[:] = [0, 1, 0]
    assert policy.choose(make_request(), rows, view) == 2
    table.inflight[2] = 1
    assert policy.choose(make_request(), rows, view) == 1


def test_smg_without_any_report_counts_requests(
    make_table: Tables, make_request: Requests, make_view: Views
) -> None:
    table = make_table(3)
    table.inflight[:] = [2, 1, 1]
    policy = make_policy("least_load_smg", {}, table, 0)
    view = make_view(table)
    assert policy.choose(make_request(), np.arange(3), view) == 1
    policy.dispatched(make_request(), 1, view)
    # Equal in flight: the one that has processed fewer.
    assert policy.choose(make_request(), np.arange(3), view) == 2


def test_litellm_prefers_the_lowest_mean(
    make_table: Tables, make_request: Requests, make_view: Views, make_outcome: Outcomes
) -> None:
    table = make_table(3)
    rows = np.arange(3)
    policy = make_policy("latency_based_litellm", {}, table, 0)
    request = make_request()
    for endpoint, ttft_s in ((0, 0.5), (0, 0.7), (1, 0.4)):
        policy.first_token(request, endpoint, 1.0, ttft_s)
    # No samples count as 0: the new deployment comes first.
    assert policy.choose(request, rows, make_view(table, now_s=2.0)) == 2
    policy.first_token(request, 2, 2.0, 0.9)
    assert policy.choose(request, rows, make_view(table, now_s=2.0)) == 1
    # A time-out before the first token is a sample of 1,000 s: (0.4 + 1000)/2.
    late = make_outcome(request, 1, Status.CANCELLED, ttft_s=NAN, finished_s=3.0)
    policy.finished(request, late)
    assert policy.choose(request, rows, make_view(table, now_s=3.0)) == 0
    # Another failure teaches nothing.
    policy.finished(request, make_outcome(request, 0, Status.FAILED, ttft_s=NAN))
    assert policy.choose(request, rows, make_view(table, now_s=3.0)) == 0
    # After an hour without a sample a deployment counts as new.
    assert policy.choose(request, np.array([1, 2]), make_view(table, now_s=3602.5)) == 2


def test_litellm_keeps_ten_samples_and_a_buffer(
    make_table: Tables, make_request: Requests, make_view: Views
) -> None:
    table = make_table(2)
    rows, view = np.arange(2), make_view(table, now_s=30.0)
    strict = make_policy("latency_based_litellm", {}, table, 0)
    loose = make_policy("latency_based_litellm", {"buffer": 0.5}, table, 0)
    for policy in (strict, loose):
        policy.first_token(make_request(), 0, 0.0, 99.0)
        for i in range(10):
            policy.first_token(make_request(), 0, float(i), 1.0)
        policy.first_token(make_request(), 1, 10.0, 1.2)
    assert {strict.choose(make_request(), rows, view) for _ in range(30)} == {0}
    assert {loose.choose(make_request(), rows, view) for _ in range(30)} == {0, 1}


def test_litellm_time_per_token(
    make_table: Tables, make_request: Requests, make_view: Views, make_outcome: Outcomes
) -> None:
    """Endpoint 0: 10 s for 100 tokens; endpoint 1: 5 s for 10 tokens."""
    table = make_table(2)
    policy = make_policy("latency_based_litellm", {"signal": "per_token"}, table, 0)
    for i, (took, tokens) in enumerate(((10.0, 100), (5.0, 10))):
        request = make_request(i)
        policy.dispatched(request, i, make_view(table, now_s=1.0))
        policy.first_token(request, i, 1.5, 0.5)
        policy.finished(request, make_outcome(request, i, finished_s=1.0 + took, output_tokens=tokens))
    assert policy.choose(make_request(), np.arange(2), make_view(table, now_s=20.0)) == 0
