"""Load is work that waits and runs, not a count of requests and not a rate of the past."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from router.endpoints import EndpointTable
from router.engines.aliases import Reading
from router.feeds.endpoint_state import EndpointStates
from router.leases import LeaseBook
from router.registry import make_policy
from router.types import FleetView, RouteRequest

MakeTable = Callable[..., EndpointTable]
MakeRequest = Callable[..., RouteRequest]
MakeView = Callable[..., FleetView]


def test_a_long_prompt_outweighs_two_short_ones(
    make_table: MakeTable, make_request: MakeRequest, make_view: MakeView
) -> None:
    """F011: the example of the case; a count of requests would choose the first."""
    table = make_table(2)
    book = LeaseBook(table)
    book.open(make_request(1, input_tokens=10_000), 0, 0.0, 0.0)
    for number in (2, 3):
        book.open(make_request(number, input_tokens=1000), 1, 0.0, 0.0)
    view = make_view(table, now_s=0.01)
    rows = np.arange(2)
    request = make_request(4, input_tokens=1000)
    assert make_policy("tokenpilot", {}, table, 1).choose(request, rows, view) == 1
    assert make_policy("least_request", {}, table, 1).choose(request, rows, view) == 0, "the control"


@pytest.mark.parametrize("hit", [0.0, 9_500.0])
def test_a_predicted_hit_lessens_the_work(
    make_table: MakeTable, make_request: MakeRequest, make_view: MakeView, hit: float
) -> None:
    """F011: prefill tokens count less what the prefix cache holds."""
    table = make_table(2)
    book = LeaseBook(table)
    book.open(make_request(1, input_tokens=10_000), 0, hit, 0.0)
    for number in (2, 3):
        book.open(make_request(number, input_tokens=1000), 1, 0.0, 0.0)
    chosen = make_policy("tokenpilot", {}, table, 1).choose(
        make_request(4, input_tokens=1000), np.arange(2), make_view(table, now_s=0.01)
    )
    assert chosen == (0 if hit else 1)


def test_few_completions_are_not_a_low_load(
    make_table: MakeTable, make_request: MakeRequest, make_view: MakeView
) -> None:
    """F013: the example of the case: the busy backend that completes little is not preferred."""
    table = make_table(2)
    table.completed[:] = (4, 95)
    states = EndpointStates(table, LeaseBook(table), [0, 0], lambda _: None, lambda _: None)
    states.page(0, Reading({"running": 30.0, "waiting": 12.0, "kv_use": 0.6}, (), 0), 0.5)
    states.page(1, Reading({"running": 6.0, "waiting": 0.0, "kv_use": 0.2}, (), 0), 0.5)
    view = make_view(table, now_s=0.6)
    chosen = Counter(
        make_policy("tokenpilot", {}, table, seed).choose(make_request(seed), np.arange(2), view)
        for seed in range(20)
    )
    assert chosen == {1: 20}
