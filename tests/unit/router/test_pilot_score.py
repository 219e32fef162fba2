"""The parts of TokenPilot's score, by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist

import numpy as np
import pytest

from data.types import Slo
from models.base import Prediction
from models.features import INDEX
from router.pilot_score import (
    COMPLETION_S,
    HARM_S,
    LOST,
    MEETS,
    PRICE,
    SCORE,
    VALUE,
    allowed_s,
    expected_tokens,
    score_arguments,
    score_parts,
    upper_z,
)
from router.types import RouteRequest

MakeRequest = Callable[..., RouteRequest]


def parts_of(request: RouteRequest, prediction: Prediction, rtt_s: float = 0.0, **features: float) -> np.ndarray:
    """Parts of the score of one candidate with these features, at the price 1 for everything."""
    row = np.zeros((1, len(INDEX)))
    for name, value in features.items():
        row[0, INDEX[name]] = value
    return score_parts(
        row, prediction, np.full(1, rtt_s), score_arguments(request, 1.0, (1.0, 1.0, 1.0), (1.0, 0.05))
    )[:, 0]


def test_probability_is_the_log_normal_through_both_quantiles(make_request: MakeRequest) -> None:
    """Equation (1): at the upper quantile itself the probability is its level; targets multiply."""
    prediction = Prediction((0.5, 0.9), np.array([[1.0, 2.0]]), np.array([[0.02, 0.04]]), "x")

    def chance(rtt: float = 0.0, **slo: float) -> float:
        return float(parts_of(make_request(slo=Slo(**slo)), prediction, rtt)[MEETS])

    assert chance() == 1.0
    assert chance(ttft_s=1.0) == pytest.approx(0.5)
    assert chance(ttft_s=2.0) == pytest.approx(0.9)
    assert chance(ttft_s=2.5, rtt=0.5) == pytest.approx(0.9)
    assert chance(ttft_s=2.0, tpot_s=0.04) == pytest.approx(0.81)
    assert chance(ttft_s=1.0, rtt=2.0) == pytest.approx(0.0, abs=1e-9)
    assert chance(deadline_s=1.0 + 200 * 0.02) == pytest.approx(0.5)
    assert chance(deadline_s=2.0 + 200 * 0.04) == pytest.approx(0.9)
    assert upper_z((0.5,)) == math.inf


def test_a_sharp_prediction_keeps_a_least_spread(make_request: MakeRequest) -> None:
    sharp = Prediction((0.5, 0.9), np.array([[1.0, 1.0]]), np.array([[0.02, 0.02]]), "x")
    assert 0.5 < float(parts_of(make_request(slo=Slo(ttft_s=1.02)), sharp)[MEETS]) < 0.8


def test_harm_and_eviction_by_hand(make_request: MakeRequest) -> None:
    """Equations (2) to (5) and (7), with all prices 1 and a deadline that nothing misses."""
    request = make_request(input_tokens=150, expected_output_tokens=10.0, slo=Slo(deadline_s=1000.0), weight=3.0)
    times = Prediction((0.5, 0.9), np.array([[1.0, 2.0]]), np.array([[0.02, 0.04]]), "x")
    parts = parts_of(
        request, times, 0.25, uncached_tokens=100, hit_tokens=50, running=4, queue_depth=2, p1=1e-3, p2=1e-6,
        d1=1e-4, d2=1e-7,
    )  # fmt: skip
    own = 1e-3 * 100 + 1e-6 * 100 * (50 + 50)
    steps = 10 * (1e-4 + 1e-7 * (150 + 5))
    assert parts[COMPLETION_S] == pytest.approx(0.25 + 1.0 + 10 * 0.02)
    assert parts[HARM_S] == pytest.approx(own * 6 + steps * 4)
    assert parts[VALUE] == pytest.approx(30.0)
    assert parts[PRICE] == pytest.approx(30.0 / 1000 * (1.45 + own * 6 + steps * 4 + 100 * (1e-3 + 1e-6 * 75)))
    assert parts[SCORE] == parts[VALUE] - parts[PRICE]


def test_what_others_lose_by_hand(make_request: MakeRequest) -> None:
    """Equation (6): each of those that generate loses as much chance as the delay takes from their TPOT."""
    request = make_request(input_tokens=100, expected_output_tokens=10.0, slo=Slo(tpot_s=0.02), weight=2.0)
    times = Prediction((0.5, 0.9), np.array([[1.0, 2.0]]), np.array([[0.02, 0.03]]), "x")
    told = parts_of(request, times, uncached_tokens=100, running=4, queue_depth=9, p1=1e-4)
    deviation = math.log(1.5) / NormalDist().inv_cdf(0.9)
    later = 0.02 + 1e-4 * 100 / 10
    chance = NormalDist().cdf(math.log(0.02 / later) / deviation)
    assert told[MEETS] == pytest.approx(0.5)
    assert told[LOST] == pytest.approx(2.0 * 10 * 4 * (0.5 - chance))
    assert told[SCORE] == pytest.approx(told[VALUE] - told[LOST] - told[PRICE])


def test_evictions_cost_the_same_on_fast_and_slow_gpus(make_request: MakeRequest) -> None:
    """At each GPU's own speed, long prompts would leave the memory of slow GPUs empty."""
    rows = np.zeros((2, len(INDEX)))
    rows[:, INDEX["uncached_tokens"]], rows[:, INDEX["p1"]] = 1000, [1e-5, 9e-5]
    times = Prediction((0.5, 0.9), np.ones((2, 2)), np.full((2, 2), 0.02), "x")
    request = make_request(input_tokens=1000, slo=Slo(deadline_s=1000.0))

    def price(eviction: float) -> np.ndarray:
        arguments = score_arguments(request, 1.0, (0.0, eviction, 0.0), (1.0, 0.05))
        return score_parts(rows, times, np.zeros(2), arguments)[PRICE]

    added = price(2.0) - price(0.0)
    assert added == pytest.approx(200.0 / 1000.0 * 2.0 * 1e-5 * 1000)


def test_nothing_is_lost_where_all_are_safe_or_none_is(make_request: MakeRequest) -> None:
    request = make_request(expected_output_tokens=10.0, slo=Slo(tpot_s=0.02))
    for tpot in (1e-3, 1.0):
        times = Prediction((0.5, 0.9), np.array([[1.0, 2.0]]), np.array([[tpot, 1.1 * tpot]]), "x")
        assert parts_of(request, times, uncached_tokens=100, running=50, p1=1e-5)[LOST] < 1e-6


def test_without_a_spread_the_medians_are_sure(make_request: MakeRequest) -> None:
    times = Prediction((0.5, 0.9), np.array([[1.0, 9.0]]), np.array([[0.02, 0.04]]), "x")
    row, request = np.zeros((1, len(INDEX))), make_request(slo=Slo(ttft_s=1.01))
    sure = score_parts(row, times, np.zeros(1), score_arguments(request, 1.0, (1.0, 1.0, 1.0), (0.0, 1e-3)))
    assert sure[MEETS, 0] == pytest.approx(1.0)


def test_expected_tokens_and_allowed_time(make_request: MakeRequest) -> None:
    assert expected_tokens(make_request(expected_output_tokens=900.0, output_budget=400)) == 400
    assert expected_tokens(make_request(expected_output_tokens=0.0)) == 1
    assert allowed_s(make_request(slo=Slo(ttft_s=2.0, tpot_s=0.05))) == pytest.approx(12.0)
    assert allowed_s(make_request(slo=Slo(tpot_s=0.05))) == pytest.approx(10.0)
    assert allowed_s(make_request(slo=Slo(deadline_s=60.0))) == 60.0
    assert allowed_s(make_request(slo=Slo())) == 30.0
    assert allowed_s(make_request(slo=Slo(ttft_s=0.0))) > 0
