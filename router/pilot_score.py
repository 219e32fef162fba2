"""The parts of TokenPilot's score: chance to meet the targets, completion time, what others lose by the choice.

Equation numbers are those of docs/tokenpilot.md. One compiled pass scores all candidates: array by array, two of
these passes took a fifth of a decision.
"""

from __future__ import annotations

import math
from functools import cache
from statistics import NormalDist
from typing import TypeAlias

import numpy as np

from data.types import FloatArray, IntArray
from models.base import FeatureMatrix, Prediction
from models.features import INDEX
from models.jit import compiled
from router.types import RouteRequest

SURE = 8.5
"""Standard deviations inside the target beyond which the probability rounds to 1."""
NO_TARGET_S = 30.0
"""Time that counts as allowed for a request without any target."""
MEETS, COMPLETION_S, HARM_S, LOST, VALUE, PRICE, SCORE = range(7)
"""Rows of the parts that :func:`score_parts` gives."""
PARTS = 7
Targets: TypeAlias = tuple[float, float, float]
"""TTFT, TPOT and deadline in seconds; NaN = not set."""
Prices: TypeAlias = tuple[float, float, float, float]
"""Price of a second, then ``b``, ``c`` and ``l`` of (7)."""
Weights: TypeAlias = tuple[float, float, float]
"""``b``, ``c`` and ``l`` of (7)."""
Spread: TypeAlias = tuple[float, float]
"""Factor on the predicted spread, and the standard deviation of log time that is assumed at least."""
ScoreArguments: TypeAlias = tuple[tuple[float, float, float], Targets, Prices, Spread, IntArray]
"""Arguments of :func:`put_scores` between the candidates and the results."""
_COLUMNS = np.array(
    [INDEX[name] for name in ("uncached_tokens", "hit_tokens", "running", "queue_depth", "p1", "p2", "d1", "d2")]
)
"""Columns that the score reads; an argument of the compiled code, which would not notice that they moved."""


def expected_tokens(request: RouteRequest) -> float:
    """``n``: expected output tokens, at least 1 and within the budget."""
    return max(min(request.expected_output_tokens, float(request.output_budget)), 1.0)


def allowed_s(request: RouteRequest) -> float:
    """``T``: what the targets allow for the whole request, in seconds."""
    slo = request.slo
    if slo.deadline_s is not None:
        return max(slo.deadline_s, 1e-3)
    n = expected_tokens(request)
    if slo.ttft_s is None:
        return NO_TARGET_S if slo.tpot_s is None else max(n * slo.tpot_s, 1e-3)
    return max(slo.ttft_s + n * (slo.tpot_s or 0.0), 1e-3)


def worth_of(request: RouteRequest) -> float:
    """``w·n``: weighted tokens that are won if every target is met."""
    return request.weight * expected_tokens(request)


@cache
def upper_z(quantiles: tuple[float, ...]) -> float:
    """Standard normal quantile of the highest level; infinite if the median is the highest."""
    level = quantiles[-1]
    return NormalDist().inv_cdf(level) if level > 0.5 else float("inf")


def score_arguments(request: RouteRequest, delay_price: float, prices: Weights, spread: Spread) -> ScoreArguments:
    """What :func:`put_scores` must know of a request and of the settings.

    Args:
        request: What is routed.
        delay_price: ``a`` of (7).
        prices: ``b``, ``c`` and ``l`` of (7).
        spread: Factor and least value.
    """
    slo, worth = request.slo, worth_of(request)
    return (
        (float(request.input_tokens), expected_tokens(request), worth),
        (_or_nan(slo.ttft_s), _or_nan(slo.tpot_s), _or_nan(slo.deadline_s)),
        (worth * delay_price / allowed_s(request), *prices),
        spread,
        _COLUMNS,
    )


def score_parts(
    features: FeatureMatrix, prediction: Prediction, rtt_s: FloatArray, arguments: ScoreArguments
) -> FloatArray:
    """Equations (1) to (7) for every candidate.

    Args:
        features: Feature rows of the request at each candidate.
        prediction: Quantiles for the same rows.
        rtt_s: Round trip to each of them.
        arguments: See :func:`score_arguments`.

    Returns:
        Shape (7, candidates), rows ``MEETS`` to ``SCORE``: a probability, two times in seconds, the rest in
        weighted output tokens.
    """
    parts = np.empty((PARTS, len(features)))
    middle, z = prediction.median_column, upper_z(prediction.quantiles)
    put_scores(features, prediction.ttft_s, prediction.tpot_s, middle, z, rtt_s, *arguments, parts)
    return parts


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else float(value)


@compiled
def put_scores(
    features: FeatureMatrix,
    ttft_s: FloatArray,
    tpot_s: FloatArray,
    middle: int,
    z: float,
    rtt_s: FloatArray,
    asked: tuple[float, float, float],
    targets: Targets,
    prices: Prices,
    spread: Spread,
    columns: IntArray,
    parts: FloatArray,
) -> None:
    """Fill ``parts``, see :func:`score_parts`.

    ``ttft_s`` and ``tpot_s`` are quantiles, shape (candidates, levels), with the median in the column ``middle``;
    ``z`` is the standard normal quantile of the last level.
    """
    input_tokens, n, worth = asked
    second_price, harm_price, eviction_price, loss_price = prices
    again = np.inf  # seconds a token, to compute such a prompt again on the fastest candidate
    for row in range(features.shape[0]):
        again = min(again, features[row, columns[4]] + 0.5 * input_tokens * features[row, columns[5]])
    for row in range(features.shape[0]):
        u, h = features[row, columns[0]], features[row, columns[1]]
        running, queued = features[row, columns[2]], features[row, columns[3]]
        p1, p2 = features[row, columns[4]], features[row, columns[5]]
        d1, d2 = features[row, columns[6]], features[row, columns[7]]
        ttft, tpot = ttft_s[row, middle], tpot_s[row, middle]
        done = rtt_s[row] + ttft + n * tpot  # (2)
        prefill = u * (p1 + p2 * (h + 0.5 * u))  # (3)
        decode = n * (d1 + d2 * (input_tokens + 0.5 * n))  # (4)
        harm = prefill * (running + queued) + decode * running  # (5)
        meets = meets_targets(targets, (ttft, ttft_s[row, -1]), (tpot, tpot_s[row, -1]), rtt_s[row], n, z, spread)
        lost = 0.0
        if loss_price > 0.0 and targets[1] == targets[1]:
            later = 1.0 + (prefill + decode) / (n * tpot)
            before = _within(targets[1], tpot, tpot_s[row, -1], z, spread)
            after = _within(targets[1], later * tpot, later * tpot_s[row, -1], z, spread)
            lost = worth * running * (before - after)  # (6)
        value = worth * meets
        price = second_price * (done + harm_price * harm + eviction_price * u * again)
        parts[0, row], parts[1, row], parts[2, row], parts[3, row] = meets, done, harm, lost
        parts[4, row], parts[5, row], parts[6, row] = value, price, value - loss_price * lost - price  # (7)


@compiled
def meets_targets(
    targets: Targets,
    ttft_s: tuple[float, float],
    tpot_s: tuple[float, float],
    rtt_s: float,
    n: float,
    z: float,
    spread: Spread,
) -> float:
    """Equation (1): probability to meet every target that is set, 0 to 1.

    TTFT and TPOT are log-normal through the predicted median and the highest predicted quantile, and taken as
    independent. They are not quite (both grow with load), so the product errs on the low side near the targets.

    Args:
        targets: Of the request.
        ttft_s, tpot_s: Predicted median and upper quantile.
        rtt_s: Round trip.
        n: Expected output tokens.
        z: Standard normal quantile of the upper level.
        spread: Factor on the predicted spread, and its least value.
    """
    ttft_target, tpot_target, deadline = targets
    meets = 1.0
    if ttft_target == ttft_target:
        meets *= _within(ttft_target - rtt_s, ttft_s[0], ttft_s[1], z, spread)
    if tpot_target == tpot_target:
        meets *= _within(tpot_target, tpot_s[0], tpot_s[1], z, spread)
    if deadline == deadline:
        done, late = ttft_s[0] + n * tpot_s[0], ttft_s[1] + n * tpot_s[1]
        meets *= _within(deadline - rtt_s, done, late, z, spread)
    return meets


@compiled
def _within(target_s: float, median_s: float, upper_s: float, z: float, spread: Spread) -> float:
    """Probability that a log-normal time stays within the target."""
    factor, least = spread
    deviations = math.log(max(target_s, 1e-9) / median_s) / max(factor * math.log(upper_s / median_s) / z, least)
    if deviations > SURE:
        return 1.0
    # Through the tail on its own side, so that a sure miss is not rounded away.
    tail = 0.5 * math.erfc(abs(deviations) / math.sqrt(2.0))
    return 1.0 - tail if deviations > 0.0 else tail
