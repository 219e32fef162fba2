"""TokenPilot: each part of its score, its fallbacks, its explanation and its line in the log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from data.errors import SettingError
from data.types import Slo
from models.base import CategoryCodes, Prediction
from models.features import INDEX
from router.endpoints import EndpointTable
from router.leases import LeaseBook
from router.log_rows import decision_row
from router.policies.base import PolicyContext
from router.prefix import EventPrefixIndex
from router.registry import make_policy
from router.tokenpilot import TokenPilot, TokenPilotSettings
from router.types import FleetView, RouteRequest

MakeTable = Callable[..., EndpointTable]
MakeRequest = Callable[..., RouteRequest]
MakeView = Callable[..., FleetView]


class FixedPredictor:
    """Answers given times by the row's position in the table, told by its in-flight tokens."""

    version = "fixed"

    def __init__(self, ttft: list[list[float]], tpot: list[list[float]]) -> None:
        self.codes = CategoryCodes()
        self.ttft, self.tpot = np.array(ttft), np.array(tpot)
        self.asked: list[int] = []

    def predict(self, features: np.ndarray) -> Prediction:
        rows = features[:, INDEX["inflight_tokens"]].astype(int)
        self.asked = rows.tolist()
        return Prediction((0.5, 0.9), self.ttft[rows], self.tpot[rows], "fixed")


def pilot(table: EndpointTable, predictor: Any = None, seed: int = 0, **settings: Any) -> TokenPilot:
    return TokenPilot(TokenPilotSettings(**settings), PolicyContext(table, seed, predictor))


def numbered(table: EndpointTable) -> EndpointTable:
    """Mark each row so that ``FixedPredictor`` knows it."""
    table.inflight_tokens[:] = np.arange(len(table))
    return table


def test_more_likely_to_meet_the_targets_wins(
    make_table: MakeTable, make_request: MakeRequest, make_view: MakeView
) -> None:
    """A slower but safe endpoint beats a faster one that may break its TPOT target."""
    table = numbered(make_table(2))
    predictor = FixedPredictor([[0.2, 0.3], [0.5, 0.7]], [[0.045, 0.09], [0.045, 0.048]])
    request = make_request(slo=Slo(ttft_s=2.0, tpot_s=0.05), expected_output_tokens=10.0)
    policy = pilot(table, predictor, delay_price=0.3)
    assert policy.choose(request, np.arange(2), make_view(table)) == 1


@pytest.mark.parametrize("target", [1e6, 1e-6])
def test_all_safe_or_none_orders_by_completion_time(
    target: float, make_table: MakeTable, make_request: MakeRequest, make_view: MakeView
) -> None:
    table = numbered(make_table(3))
    predictor = FixedPredictor([[0.9, 1.0], [0.2, 0.3], [0.1, 0.2]], [[0.01, 0.02], [0.01, 0.02], [0.05, 0.06]])
    request = make_request(slo=Slo(ttft_s=target, tpot_s=target))
    assert pilot(table, predictor).choose(request, np.arange(3), make_view(table)) == 1
    # The round trip counts as waiting.
    assert pilot(table, predictor).choose(request, np.arange(3), make_view(table, rtt_s=[0.0, 5.0, 9.0])) == 0


def test_harm_to_others_moves_a_long_prompt_away_from_running_requests(
    make_table: MakeTable, make_request: MakeRequest, make_view: MakeView
) -> None:
    """Equal predictions: the prompt goes where nobody decodes."""
    table = numbered(make_table(2))
    table.inflight[:], table.decoding[:] = [40, 0], [40, 0]
    predictor = FixedPredictor([[0.5, 0.6]] * 2, [[0.01, 0.02]] * 2)
    request = make_request(input_tokens=30_000)
    chosen = {pilot(table, predictor, seed=s).choose(request, np.arange(2), make_view(table)) for s in range(10)}
    assert chosen == {1}


def test_near_ties_go_to_the_longest_prefix_then_to_chance(
    make_table: MakeTable, make_request: MakeRequest, make_view: MakeView
) -> None:
    table = numbered(make_table(4))
    index = EventPrefixIndex(4)
    index.stored(1, (1, 2, 3))
    index.stored(2, (1,))
    predictor = FixedPredictor([[0.5, 0.6]] * 4, [[0.01, 0.02]] * 4)
    request, view = make_request(block_hashes=(1, 2, 3, 4)), make_view(table, prefixes=index)
    settings = {"near_tie": 0.5, "harm_price": 0.0, "eviction_price": 0.0}
    for seed in range(5):
        assert pilot(table, predictor, seed, **settings).choose(request, np.arange(4), view) == 1
    plain = replace(request, block_hashes=())
    policy = pilot(table, predictor, **settings)
    assert {policy.choose(plain, np.arange(4), view) for _ in range(60)} == {0, 1, 2, 3}


def test_prefix_is_left_when_its_holder_is_swamped(
    make_table: MakeTable, make_request: MakeRequest, make_view: MakeView
) -> None:
    """Affinity and balance are one continuous cost."""
    table = make_table(2)
    index = EventPrefixIndex(2)
    index.stored(0, tuple(range(1, 10)))
    request = make_request(input_tokens=1000, block_hashes=tuple(range(1, 11)))
    view = make_view(table, prefixes=index, now_s=1.0)
    book = LeaseBook(table)
    choices = []
    for number in range(40):
        choices.append(pilot(table).choose(request, np.arange(2), view))
        book.open(make_request(request_id=number, input_tokens=2000), 0, 0.0, 1.0)
    assert choices[0] == 0
    assert choices[-1] == 1
    assert choices == sorted(choices)


def test_a_fast_gpu_takes_more(make_request: MakeRequest, make_table: MakeTable, make_view: MakeView) -> None:
    specs = list(make_table(2).specs)
    slow = replace(specs[1].times, p1=4e-4, d0=0.04)
    table = EndpointTable([specs[0], replace(specs[1], times=slow)])
    book, policy = LeaseBook(table), pilot(table)
    for number in range(60):
        request = make_request(request_id=number)
        row = policy.choose(request, np.arange(2), make_view(table))
        book.open(request, row, 0.0, 0.0)
    assert table.inflight[0] > 2 * table.inflight[1] > 0


def test_two_stages_keep_the_best_and_the_holders(
    make_table: MakeTable, make_request: MakeRequest, make_view: MakeView
) -> None:
    table = numbered(make_table(50))
    table.inflight[:] = table.decoding[:] = np.arange(50)  # later rows are busier
    index = EventPrefixIndex(50)
    index.stored(49, (1, 2))
    index.stored(40, (1,))
    predictor = FixedPredictor([[0.5, 0.6]] * 50, [[0.01, 0.02]] * 50)
    policy = pilot(table, predictor, forest_candidates=4, forest_holders=2)
    request = make_request(block_hashes=(1, 2, 3), expected_output_tokens=400.0)
    policy.choose(request, np.arange(50), make_view(table, prefixes=index))
    assert set(predictor.asked) == {0, 1, 2, 3, 40, 49}
    only = np.array([7, 8, 9])
    assert policy.choose(request, only, make_view(table, prefixes=index)) in only


def test_the_first_stage_knows_the_targets(
    make_table: MakeTable, make_request: MakeRequest, make_view: MakeView
) -> None:
    """An endpoint that is done sooner but late for the first token does not push out one that is in time."""
    specs = list(make_table(2).specs)
    slow_decode = replace(specs[0].times, d0=1.5 * specs[0].times.d0)
    table = numbered(EndpointTable([replace(specs[0], times=slow_decode), specs[1]]))
    table.inflight[1], table.inflight_uncached_tokens[1], table.waiting_prefill_s[1] = 4, 20_000, 1.2
    table.prefill_since_s[1] = 0.0
    predictor = FixedPredictor([[0.5, 0.6]] * 2, [[0.01, 0.02]] * 2)
    policy = pilot(table, predictor, forest_candidates=1, forest_holders=0, harm_price=0.0)
    request = make_request(expected_output_tokens=500.0, output_budget=2000, slo=Slo(ttft_s=1.0, tpot_s=0.05))
    view = make_view(table)
    told = policy.explain(request, np.arange(2), view)
    assert len(told) == 2
    policy.choose(request, np.arange(2), view)
    assert predictor.asked == [0]


def test_f001_stale_reports_count_less_and_mark_the_decision(
    make_table: MakeTable, make_request: MakeRequest, make_view: MakeView
) -> None:
    table = make_table(2)
    table.reported_at_s[:] = [0.0, 0.1]
    table.running[:], table.waiting[:], table.kv_use[:] = [0, 9], [0, 90], [0.0, 0.9]
    table.inflight[:] = table.decoding[:] = [3, 1]
    policy = pilot(table)
    row = policy.choose(make_request(), np.arange(2), make_view(table, now_s=30.0))
    assert row == 1  # the old report of a long queue is forgotten, own work in flight is not
    assert policy.last_decision is not None
    assert policy.last_decision.degraded == "stale_metrics"
    table.reported_at_s[1] = 29.9
    policy.choose(make_request(), np.arange(2), make_view(table, now_s=30.0))
    assert policy.last_decision.degraded is None


def test_f069_log_row_carries_the_prediction(
    make_table: MakeTable, make_request: MakeRequest, make_view: MakeView
) -> None:
    table = numbered(make_table(2))
    predictor = FixedPredictor([[0.5, 0.6], [9.0, 9.9]], [[0.01, 0.02], [0.05, 0.06]])
    policy, request, view = pilot(table, predictor), make_request(3), make_view(table)
    row = policy.choose(request, np.arange(2), view)
    logged = decision_row(request, row, view, policy, 2, 0.0)
    assert row == 0
    assert logged["predicted_ttft_p50_s"] == 0.5
    assert logged["predicted_ttft_p90_s"] == 0.6
    assert logged["predicted_tpot_p50_s"] == 0.01
    assert logged["predicted_tpot_p90_s"] == 0.02
    assert logged["model_version"] == "fixed"
    # A prediction for another request or endpoint is absent, never 0.
    assert "predicted_ttft_p50_s" not in decision_row(make_request(4), row, view, policy, 2, 0.0)
    assert "predicted_ttft_p50_s" not in decision_row(request, 1, view, policy, 2, 0.0)


def test_f069_a_quantile_that_was_not_predicted_is_null(
    make_table: MakeTable, make_request: MakeRequest, make_view: MakeView
) -> None:
    class MedianOnly(FixedPredictor):
        def predict(self, features: np.ndarray) -> Prediction:
            full = super().predict(features)
            return Prediction((0.5,), full.ttft_s[:, :1], full.tpot_s[:, :1], "median")

    table = numbered(make_table(1))
    policy = pilot(table, MedianOnly([[0.5, 0.6]], [[0.01, 0.02]]))
    policy.choose(make_request(), np.arange(1), make_view(table))
    assert policy.last_decision is not None
    assert policy.last_decision.ttft_p90_s is None
    assert policy.last_decision.tpot_p90_s is None


def test_explain_tells_what_choose_does(
    make_table: MakeTable, make_request: MakeRequest, make_view: MakeView
) -> None:
    table = make_table(5)
    table.inflight[:] = table.decoding[:] = [5, 1, 9, 3, 7]
    policy, request, view = pilot(table), make_request(), make_view(table)
    told = policy.explain(request, np.arange(5), view)
    assert policy.last_decision is None
    assert [score.chosen for score in told] == [True, False, False, False, False]
    assert told[0].endpoint == policy.choose(request, np.arange(5), view)
    assert [score.score for score in told] == sorted((score.score for score in told), reverse=True)
    best = told[0]
    assert best.features["input_tokens"] == 1000
    assert best.score == pytest.approx(best.value - 2.0 * best.lost_tokens - best.price)
    assert best.value == pytest.approx(200 * best.meets_targets)
    seconds = best.completion_s + best.harm_s + 3.0 * 1e-4 * 1000
    assert best.price == pytest.approx(200 * seconds / (2.0 + 200 * 0.05))
    assert best.ttft_upper_s > best.ttft_p50_s
    assert best.upper_quantile == 0.9


def test_new_codes_after_a_model_swap_are_used(
    make_table: MakeTable, make_request: MakeRequest, make_view: MakeView
) -> None:
    table = numbered(make_table(1))
    predictor = FixedPredictor([[0.5, 0.6]], [[0.01, 0.02]])
    policy = pilot(table, predictor)
    before = policy.explain(make_request(), np.arange(1), make_view(table))[0].features["gpu_type"]
    predictor.codes = CategoryCodes(("A100", "H100"), ("m@1",))
    after = policy.explain(make_request(), np.arange(1), make_view(table))[0].features["gpu_type"]
    assert (before, after) == (-1.0, 1.0)


def test_settings_are_checked_and_seeds_repeat(
    make_table: MakeTable, make_request: MakeRequest, make_view: MakeView
) -> None:
    table = make_table(8)
    for bad in ({"delay_price": 0.0}, {"near_tie": 0.6}, {"forest_candidates": 0}, {"harm_price": -1}):
        with pytest.raises(SettingError):
            make_policy("tokenpilot", bad, table, 0)
    runs = []
    for _ in range(2):
        policy = make_policy("tokenpilot", {}, table, 5)
        runs.append([policy.choose(make_request(i), np.arange(8), make_view(table)) for i in range(30)])
    assert runs[0] == runs[1]
    assert len(set(runs[0])) > 3
