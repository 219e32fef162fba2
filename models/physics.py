"""The closed-form prior of TTFT and TPOT: step times of the catalog applied to what the router sees.

With ``u`` uncached and ``h`` hit tokens of the request, ``W`` waiting uncached tokens ahead that take ``S``
seconds of variable prefill time, ``e`` seconds already spent on the head of that queue, ``r`` running requests,
``q`` queued ones, ``k`` KV tokens, ``C`` KV capacity, ``B`` the token budget of a step, and
``D(n) = d0 + d1·n + d_sat·(1 − exp(−n/sat_batch))`` the part of a decode step that does not depend on KV:

(1)  ``own  = p1·u + p2·u·(h + u/2)``                      variable prefill time of the request
(2)  ``fix  = max(p0, D(r) − d1·r) + d1·r + d2·k + host``  what each mixed step costs besides
(3)  ``b    = max(B − r, B/4)``                            prefill tokens of one step
(4)  ``left = max(S + fix·W/b − e, f·(S + fix·W/b))``      until the queue ahead is done
(5)  ``room = life·max(0, k + W + u − C)/C``               until KV memory is free
(6)  ``TTFT = left + room + own + fix·max(1, u/b) + (1/2)·min(1, r + q)·(D(r) + d2·k + host)``
(7)  ``TPOT = (D(r + q + 1) + d2·min(k + W + u + h, max(C, u + h)) + host) / (1 − min(a, A))``
(8)  ``σ² = σ_load² + min(y·a·p1·(u + h)/(n·TPOT), 1/2)``     of log TPOT, before the age of reports is added

In (7) everybody ahead has joined the batch, and prefill goes on arriving as it lately did: ``a`` seconds of it
each second (0 if unknown), in which nobody decodes. These interruptions come one by one, each as long as a prompt
like this one takes: over ``n`` tokens their number is Poisson, which is the second term of (8), and few tokens
leave them no time to average out. Each term rises with ``u`` (at fixed ``h``), ``W``, ``S``, ``q``, ``k`` and
``a``, hence so do both results. ``life`` is the time of as many decode steps as ``decode_tokens``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from statistics import NormalDist
from typing import TypeAlias

import numpy as np

from data.errors import SettingError
from data.types import FloatArray, IntArray
from models.base import BoolArray, CategoryCodes, FeatureMatrix, Prediction
from models.features import INDEX
from models.jit import compiled

LEAST_S, MOST_S = 1e-5, 1e5
"""Predictions are kept within these bounds."""


@dataclass(frozen=True, slots=True)
class PriorSettings:
    """Constants of the prior that no catalog knows.

    Attributes:
        head_floor: ``f`` of (4): share of the queue's time that is left at least (0 to 1).
        most_prefill: ``A`` of (7): share of its time that an engine prefills, at most (0 to 0.95).
        interruptions: ``y`` of (8) (0 to 10).
        decode_tokens: Output tokens of a running request in (5), and of one whose length nobody expects (>= 1).
        spread_least, spread_load, spread_age: Standard deviation of log time when idle, added at full load, and
            added by old metrics (each 0 to 3).
    """

    head_floor: float = 0.1
    most_prefill: float = 0.85
    interruptions: float = 1.0
    decode_tokens: float = 256.0
    spread_least: float = 0.12
    spread_load: float = 0.35
    spread_age: float = 0.6

    def __post_init__(self) -> None:
        ranges = (
            ("head_floor", 0.0, 1.0),
            ("most_prefill", 0.0, 0.95),
            ("interruptions", 0.0, 10.0),
            ("decode_tokens", 1.0, 1e6),
            ("spread_least", 0.0, 3.0),
            ("spread_load", 0.0, 3.0),
            ("spread_age", 0.0, 3.0),
        )
        for name, low, high in ranges:
            value = getattr(self, name)
            if not low <= value <= high:
                raise SettingError("setting out of range", field=name, value=value, expected=f"{low} to {high}")


@dataclass(frozen=True, slots=True)
class PriorTimes:
    """The prior for each row: medians in seconds, and standard deviations of their logarithms."""

    ttft_s: FloatArray
    tpot_s: FloatArray
    ttft_spread: FloatArray
    tpot_spread: FloatArray
    suspect: BoolArray
    """The row held a value that is not finite, or negative; it was read as 0."""


def prior_times(features: FeatureMatrix, settings: PriorSettings) -> PriorTimes:
    """Equations (1) to (8) for each row; finite and positive whatever the input."""
    times = np.empty((4, len(features)))
    suspect = np.empty(len(features), dtype=np.bool_)
    put_times(features, *time_arguments(settings), times, suspect)
    return PriorTimes(times[0], times[1], times[2], times[3], suspect)


PriorConstants: TypeAlias = tuple[float, float, float, float, float, float, float]
"""The values of ``PriorSettings``, in order."""


TimeArguments: TypeAlias = tuple[IntArray, IntArray, PriorConstants]
"""Arguments of :func:`put_times` between the rows and the results."""


def time_arguments(settings: PriorSettings) -> TimeArguments:
    """The prior as compiled code takes it."""
    constants = (
        settings.head_floor,
        settings.most_prefill,
        settings.interruptions,
        settings.decode_tokens,
        settings.spread_least,
        settings.spread_load,
        settings.spread_age,
    )
    return _PHYSICAL, _MAYBE_UNKNOWN, constants


@compiled
def put_times(
    features: FeatureMatrix,
    columns: IntArray,
    unknown_columns: IntArray,
    constants: PriorConstants,
    times: FloatArray,
    suspect: BoolArray,
) -> None:
    """Fill ``times`` (medians of TTFT and TPOT, then their spreads; shape (4, rows)) and ``suspect``.

    One pass over the rows: a decision does this twice, and each array operation would cost a microsecond.
    """
    head_floor, most_prefill, interruptions, decode_tokens, spread_least, spread_load, spread_age = constants
    value = np.empty(len(columns))
    for row in range(features.shape[0]):
        odd = False
        for place in range(len(columns)):
            x = features[row, columns[place]]
            if not (x >= 0.0 and x < np.inf):
                odd = True
                x = 1e12 if x > 0.0 else 0.0
            value[place] = x
        if odd:
            for place in range(len(columns)):
                value[place] = min(value[place], 1e12)
        suspect[row] = odd
        u, h, waiting, s, elapsed, q, r, age, kv_tokens, kv_use = value[:10]
        budget, capacity, p0, p1, p2, d0, d1, d2, host, d_sat, sat_batch = value[10:21]
        k = max(kv_tokens, kv_use * capacity)
        own = (p1 + p2 * (h + 0.5 * u)) * u  # (1)
        size = r + q + 1.0
        loose, weights, step = d1 * r + d2 * k + host, d0, d0 + d1 * size + host
        if d_sat > 0.0:  # only mixtures of experts
            rate = -1.0 / max(sat_batch, 1e-9)
            weights, step = d0 - d_sat * math.expm1(rate * r), step - d_sat * math.expm1(rate * size)
        fix = max(p0, weights) + loose  # (2)
        decode = weights + loose
        step_tokens = max(max(budget - r, 0.25 * budget), 1.0)  # (3)
        ahead = s + fix * waiting / step_tokens
        left = max(ahead - elapsed, head_floor * ahead)  # (4)
        occupied = k + waiting + u
        room = decode_tokens * decode * max(occupied - capacity, 0.0) / max(capacity, 1.0)  # (5)
        delay = left + room
        begin = own + fix * max(1.0, u / step_tokens) + 0.5 * min(1.0, r + q) * decode
        times[0, row] = _kept(delay + begin)  # (6)
        read = min(occupied + h, max(capacity, u + h))
        load, expected = features[row, unknown_columns[0]], features[row, unknown_columns[1]]
        share = min(load, 1.0) if load > 0.0 else 0.0  # NaN is unknown, and no fault
        tpot = _kept((step + d2 * read) / (1.0 - min(share, most_prefill)))  # (7)
        times[1, row] = tpot
        stale = stale_spread_of(age, spread_age)
        times[2, row] = spread_least + spread_load * delay / (delay + 0.5) + stale
        busy = spread_least + 0.5 * spread_load * (q + s) / (q + s + 2.0)
        tokens = expected if expected >= 1.0 else decode_tokens
        noise = min(interruptions * share * p1 * (u + h) / (tokens * tpot), 0.5)
        times[3, row] = math.sqrt(busy * busy + noise) + stale  # (8)


@compiled
def _kept(seconds: float) -> float:
    """Within the bounds; what is not a number is taken as long."""
    return min(max(seconds, LEAST_S), MOST_S) if seconds == seconds else MOST_S


@compiled
def stale_spread_of(age_s: float, spread_age: float) -> float:
    """Standard deviation of log time that a report older than a second adds; it tends to ``spread_age``."""
    extra = max(age_s - 1.0, 0.0)
    return spread_age * extra / (extra + 2.0)


_PHYSICAL = np.array([
    INDEX[name]
    for name in (
        "uncached_tokens", "hit_tokens", "waiting_prefill_tokens", "waiting_prefill_s", "prefill_elapsed_s",
        "queue_depth", "running", "metrics_age_s", "kv_tokens", "kv_use", "batch_token_budget",
        "kv_capacity_tokens", "p0", "p1", "p2", "d0", "d1", "d2", "host_overhead", "d_sat", "sat_batch",
    )
])  # fmt: skip
"""Columns that the equations read, in the order of ``put_times``. They are an argument of it and no constant:
compiled code that is kept on disk would not notice that they moved."""
_MAYBE_UNKNOWN = np.array([INDEX["prefill_load"], INDEX["expected_output_tokens"]])
"""Columns that may be NaN: public logs do not tell them."""


class PriorPredictor:
    """The prior alone: what serves before a model is trained, and where a model must not be trusted.

    Args:
        settings: Constants of the prior.
        quantiles: Levels to answer, ascending, 0.5 among them. Those from 0.5 up keep the prior's monotony.
        codes: Categories of the residual model that stands beside it, if any; the prior itself needs none.
    """

    version = "prior"

    def __init__(
        self,
        settings: PriorSettings | None = None,
        quantiles: tuple[float, ...] = (0.5, 0.9),
        codes: CategoryCodes | None = None,
    ) -> None:
        self.settings = settings or PriorSettings()
        self.quantiles = check_quantiles(quantiles)
        self.codes = codes or CategoryCodes()
        #: Standard normal quantile of each level.
        self.z = np.array([NormalDist().inv_cdf(level) for level in quantiles])

    def predict(self, features: FeatureMatrix) -> Prediction:
        """Quantiles for each row, log-normal around the prior's medians."""
        times = prior_times(features, self.settings)
        return Prediction(
            quantiles=self.quantiles,
            ttft_s=self.quantile_times(times.ttft_s, times.ttft_spread),
            tpot_s=self.quantile_times(times.tpot_s, times.tpot_spread),
            source=self.version,
            extrapolated=times.suspect,
        )

    def quantile_times(self, median_s: FloatArray, spread: FloatArray) -> FloatArray:
        """Log-normal quantiles, shape (rows, quantiles), for medians and standard deviations of log time."""
        times = np.empty((len(median_s), len(self.z)))
        put_quantiles(median_s, spread, self.z, times)
        return times


@compiled
def put_quantiles(median_s: FloatArray, spread: FloatArray, z: FloatArray, out: FloatArray) -> None:
    """Log-normal quantiles into ``out``, shape (rows, levels)."""
    for row in range(len(median_s)):
        for level in range(len(z)):
            out[row, level] = median_s[row] * math.exp(spread[row] * z[level])


def check_quantiles(quantiles: tuple[float, ...]) -> tuple[float, ...]:
    """The levels, if they are ascending, within (0, 1) and hold 0.5; else ``SettingError``."""
    ascending = all(a < b for a, b in pairwise(quantiles))
    if not (ascending and 0.5 in quantiles and all(0.0 < level < 1.0 for level in quantiles)):
        expected = "ascending levels within (0, 1), 0.5 among them"
        raise SettingError("setting out of range", field="quantiles", value=quantiles, expected=expected)
    return quantiles
