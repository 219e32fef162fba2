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
(7)  ``TPOT = D(r + q + 1) + d2·min(k + W + u + h, max(C, u + h)) + host + x·S/n``

In (7) everybody ahead has joined the batch, and the prefill that arrives meanwhile is taken to resemble what waits
now (share ``x``, over ``n`` tokens). Each term rises with ``u`` (at fixed ``h``), ``W``, ``S``, ``q`` and ``k``,
hence so do both results. ``life`` is the time of ``n`` decode steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from statistics import NormalDist

import numpy as np

from data.errors import SettingError
from data.types import FloatArray
from models.base import BoolArray, CategoryCodes, FeatureMatrix, Prediction
from models.features import INDEX

LEAST_S, MOST_S = 1e-5, 1e5
"""Predictions are kept within these bounds."""


@dataclass(frozen=True, slots=True)
class PriorSettings:
    """Constants of the prior that no catalog knows.

    Attributes:
        head_floor: ``f`` of (4): share of the queue's time that is left at least (0 to 1).
        interference: ``x`` of (7) (0 to 10).
        decode_tokens: ``n``: output tokens over which waiting work is spread (> 0).
        spread_least, spread_load, spread_age: Standard deviation of log time when idle, added at full load, and
            added by old metrics (each 0 to 3).
    """

    head_floor: float = 0.1
    interference: float = 0.5
    decode_tokens: float = 256.0
    spread_least: float = 0.12
    spread_load: float = 0.35
    spread_age: float = 0.6

    def __post_init__(self) -> None:
        ranges = (
            ("head_floor", 0.0, 1.0),
            ("interference", 0.0, 10.0),
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
    """Equations (1) to (7) for each row; finite and positive whatever the input."""
    physical = features[:, _PHYSICAL]
    suspect: BoolArray = ~np.all(np.isfinite(physical) & (physical >= 0), axis=1)
    if suspect.any():
        features = np.clip(np.nan_to_num(features, nan=0.0, posinf=1e12, neginf=0.0), 0.0, 1e12)
    columns = features.T
    u, h, waiting, s, elapsed = (columns[i] for i in _PREFILL)
    q, r, age = (columns[i] for i in _LOAD)
    budget, capacity, p0, p1, p2, d0, d1, d2, host, d_sat, sat_batch = columns[_HARDWARE]
    k = np.maximum(columns[_KV_TOKENS], columns[_KV_USE] * capacity)
    own = (p1 + p2 * (h + 0.5 * u)) * u  # (1)
    size = r + q + 1.0
    loose, weights, step = d1 * r + d2 * k + host, d0, d0 + d1 * size + host
    if d_sat.any():  # only mixtures of experts
        rate = -1.0 / np.maximum(sat_batch, 1e-9)
        weights, step = d0 - d_sat * np.expm1(rate * r), step - d_sat * np.expm1(rate * size)
    fix = np.maximum(p0, weights) + loose  # (2)
    decode = weights + loose
    step_tokens = np.maximum(np.maximum(budget - r, 0.25 * budget), 1.0)  # (3)
    ahead = s + fix * waiting / step_tokens
    left = np.maximum(ahead - elapsed, settings.head_floor * ahead)  # (4)
    occupied = k + waiting + u
    life = settings.decode_tokens * decode
    room = life * np.maximum(occupied - capacity, 0.0) / np.maximum(capacity, 1.0)  # (5)
    delay = left + room
    begin = own + fix * np.maximum(1.0, u / step_tokens) + 0.5 * np.minimum(1.0, r + q) * decode
    ttft = delay + begin  # (6)
    read = np.minimum(occupied + h, np.maximum(capacity, u + h))
    tpot = step + d2 * read + (settings.interference / settings.decode_tokens) * s  # (7)
    stale = stale_spread(age, settings)
    spread = settings.spread_least + settings.spread_load * delay / (delay + 0.5) + stale
    busy = settings.spread_least + 0.5 * settings.spread_load * (q + s) / (q + s + 2.0) + stale
    return PriorTimes(bounded(ttft, LEAST_S, MOST_S), bounded(tpot, LEAST_S, MOST_S), spread, busy, suspect)


def bounded(values: FloatArray, least: float, most: float) -> FloatArray:
    """``np.clip`` at a third of its overhead: a decision makes half a dozen such calls on a few rows."""
    within: FloatArray = np.minimum(np.maximum(values, least), most)
    return within


def stale_spread(age_s: FloatArray, settings: PriorSettings) -> FloatArray:
    """Standard deviation of log time that reports older than a second add; it tends to ``spread_age``."""
    extra = np.maximum(age_s - 1.0, 0.0)
    spread: FloatArray = settings.spread_age * extra / (extra + 2.0)
    return spread


_PREFILL = tuple(
    INDEX[name]
    for name in (
        "uncached_tokens",
        "hit_tokens",
        "waiting_prefill_tokens",
        "waiting_prefill_s",
        "prefill_elapsed_s",
    )
)
_LOAD = tuple(INDEX[name] for name in ("queue_depth", "running", "metrics_age_s"))
_KV_TOKENS, _KV_USE = INDEX["kv_tokens"], INDEX["kv_use"]
_HARDWARE = slice(INDEX["batch_token_budget"], INDEX["sat_batch"] + 1)
_PHYSICAL = np.array(sorted({*_PREFILL, *_LOAD, _KV_TOKENS, _KV_USE, *range(_HARDWARE.start, _HARDWARE.stop)}))


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
        self._z = np.array([NormalDist().inv_cdf(level) for level in quantiles])

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
        times: FloatArray = median_s[:, None] * np.exp(spread[:, None] * self._z[None, :])
        return times


def check_quantiles(quantiles: tuple[float, ...]) -> tuple[float, ...]:
    """The levels, if they are ascending, within (0, 1) and hold 0.5; else ``SettingError``."""
    ascending = all(a < b for a, b in pairwise(quantiles))
    if not (ascending and 0.5 in quantiles and all(0.0 < level < 1.0 for level in quantiles)):
        expected = "ascending levels within (0, 1), 0.5 among them"
        raise SettingError("setting out of range", field="quantiles", value=quantiles, expected=expected)
    return quantiles
