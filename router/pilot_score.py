"""The parts of TokenPilot's score: chance to meet the targets, completion time, delay laid on others.

Equation numbers are those of docs/tokenpilot.md. All arrays have one entry a candidate.
"""

from __future__ import annotations

from functools import cache
from statistics import NormalDist

import numpy as np
from scipy.special import ndtr

from data.types import FloatArray
from models.base import FeatureMatrix, Prediction
from models.features import INDEX
from router.types import RouteRequest

NO_TARGET_S = 30.0
"""Time that counts as allowed for a request without any target."""
_U, _H, _R, _Q, _P1, _P2, _D1, _D2 = (
    INDEX[name] for name in ("uncached_tokens", "hit_tokens", "running", "queue_depth", "p1", "p2", "d1", "d2")
)


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


def completion_s(request: RouteRequest, rtt_s: FloatArray, ttft_s: FloatArray, tpot_s: FloatArray) -> FloatArray:
    """Equation (2): round trip, first token and the expected rest."""
    seconds: FloatArray = rtt_s + ttft_s + expected_tokens(request) * tpot_s
    return seconds


def harm_s(request: RouteRequest, features: FeatureMatrix) -> FloatArray:
    """Equations (3) to (5): seconds of delay laid on the requests that are already there."""
    columns = features.T
    n = expected_tokens(request)
    running = columns[_R]
    prefill = prefill_work_s(features)
    decode = n * (columns[_D1] + columns[_D2] * (request.input_tokens + 0.5 * n))
    seconds: FloatArray = prefill * (running + columns[_Q]) + decode * running
    return seconds


def prefill_work_s(features: FeatureMatrix) -> FloatArray:
    """Equation (3): variable prefill time of the request itself."""
    columns = features.T
    u = columns[_U]
    work: FloatArray = u * (columns[_P1] + columns[_P2] * (columns[_H] + 0.5 * u))
    return work


def eviction_s(features: FeatureMatrix) -> FloatArray:
    """Time to compute once more as many tokens as this request pushes out of the cache."""
    columns = features.T
    work: FloatArray = columns[_P1] * columns[_U]
    return work


def meets_targets(
    request: RouteRequest, prediction: Prediction, rtt_s: FloatArray, least_spread: float
) -> FloatArray:
    """Equation (1): probability to meet every target that is set, 0 to 1.

    TTFT and TPOT are log-normal through the predicted median and the highest predicted quantile, and taken as
    independent. They are not quite (both grow with load), so the product errs on the low side near the targets.
    """
    slo = request.slo
    middle = prediction.median_column
    ttft, tpot = prediction.ttft_s[:, middle], prediction.tpot_s[:, middle]
    z = upper_z(prediction.quantiles)
    meets = np.ones(len(rtt_s))
    if slo.ttft_s is not None:
        spread = np.maximum(np.log(prediction.ttft_s[:, -1] / ttft) / z, least_spread)
        meets *= _within(slo.ttft_s - rtt_s, ttft, spread)
    if slo.tpot_s is not None:
        spread = np.maximum(np.log(prediction.tpot_s[:, -1] / tpot) / z, least_spread)
        meets *= _within(slo.tpot_s, tpot, spread)
    if slo.deadline_s is not None:
        done = completion_s(request, 0.0 * rtt_s, ttft, tpot)
        late = completion_s(request, 0.0 * rtt_s, prediction.ttft_s[:, -1], prediction.tpot_s[:, -1])
        spread = np.maximum(np.log(late / done) / z, least_spread)
        meets *= _within(slo.deadline_s - rtt_s, done, spread)
    return meets


def _within(target_s: FloatArray | float, median_s: FloatArray, spread: FloatArray) -> FloatArray:
    """Probability that a log-normal time stays within the target."""
    probability: FloatArray = ndtr(np.log(np.maximum(target_s, 1e-9) / median_s) / spread)
    return probability


@cache
def upper_z(quantiles: tuple[float, ...]) -> float:
    """Standard normal quantile of the highest level; infinite if the median is the highest."""
    level = quantiles[-1]
    return NormalDist().inv_cdf(level) if level > 0.5 else float("inf")
