"""Release checks: what a model must satisfy on real rows before it may serve."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from models.base import FeatureMatrix, Prediction
from models.features import INDEX, RISING
from models.predictor import ResidualPredictor

MONOTONE_TOLERANCE = 0.02
"""A prediction may fall by at most this share while a rising feature grows (F080)."""
SWEEP_POINTS = 24
LARGEST_MEDIAN_S = 3600.0


@dataclass(frozen=True, slots=True)
class CheckReport:
    """Measured values of each check and the names of those that failed."""

    values: dict[str, float]
    failed: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether every check held."""
        return not self.failed


def release_checks(predictor: ResidualPredictor, features: FeatureMatrix, limit: int = 256) -> CheckReport:
    """Run every check on up to ``limit`` rows spread evenly over ``features``.

    ``crossing_rate`` is reported, not limited: served quantiles are sorted. The others fail above their bound:
    non-finite or non-positive answers, medians beyond an hour (a unit slip), answers that fall while a rising
    feature grows, unknown categories that are not answered by the prior, missing values that break an answer.
    """
    rows = features[np.linspace(0, len(features) - 1, min(limit, len(features))).astype(np.int64)]
    prediction = predictor.predict(rows)
    raw = predictor.raw_quantiles(rows)
    crossing = [(np.diff(times, axis=1) < 0).any(axis=1).mean() for times in (raw.ttft_s, raw.tpot_s)]
    median = prediction.median_column
    values = {
        "crossing_rate": float(max(crossing)),
        "not_finite": _bad_share(prediction),
        "beyond_an_hour": float((prediction.ttft_s[:, median] > LARGEST_MEDIAN_S).mean()),
        "missing_values": _bad_share(predictor.predict(_with_missing(rows))),
        "unseen_category": _unseen_category(predictor, rows),
    }
    for name in RISING:
        values[f"falls_with_{name}"] = _worst_fall(predictor, rows, name)
    limits = {"crossing_rate": 1.0, "beyond_an_hour": 0.5}
    limits |= {f"falls_with_{name}": MONOTONE_TOLERANCE for name in RISING}
    failed = tuple(name for name, value in values.items() if not value <= limits.get(name, 0.0))
    return CheckReport(values, failed)


def _bad_share(prediction: Prediction) -> float:
    times = np.concatenate([prediction.ttft_s, prediction.tpot_s], axis=1)
    ordered = (np.diff(prediction.ttft_s, axis=1) >= 0).all(axis=1) & (
        np.diff(prediction.tpot_s, axis=1) >= 0
    ).all(axis=1)
    return float((~((np.isfinite(times) & (times > 0)).all(axis=1) & ordered)).mean())


def _with_missing(rows: FeatureMatrix) -> FeatureMatrix:
    """The rows with one reported value after another missing."""
    broken = rows.copy()
    holes = np.array([INDEX[name] for name in ("queue_depth", "running", "kv_use", "kv_tokens", "metrics_age_s")])
    broken[np.arange(len(rows)), holes[np.arange(len(rows)) % len(holes)]] = np.nan
    return broken


def _unseen_category(predictor: ResidualPredictor, rows: FeatureMatrix) -> float:
    """Share of rows of an unknown GPU type that the prior does not answer, or that are not flagged."""
    unseen = rows.copy()
    unseen[:, INDEX["gpu_type"]] = -1.0
    got, prior = predictor.predict(unseen), predictor.prior.predict(unseen)
    same = np.isclose(got.ttft_s, prior.ttft_s, rtol=1e-6).all(axis=1)
    flagged = got.extrapolated if got.extrapolated is not None else np.zeros(len(rows), dtype=bool)
    return float((~(same & flagged)).mean())


def _reconcile_lengths(rows: FeatureMatrix, swept: str) -> None:
    """Keep input = uncached + hit: a longer prompt keeps its hit, a smaller hit keeps the prompt."""
    inputs, uncached, hit = (INDEX[name] for name in ("input_tokens", "uncached_tokens", "hit_tokens"))
    if swept == "input_tokens":
        rows[:, hit] = np.minimum(rows[:, hit], rows[:, inputs])
        rows[:, uncached] = rows[:, inputs] - rows[:, hit]
    elif swept == "uncached_tokens":
        rows[:, inputs] = np.maximum(rows[:, inputs], rows[:, uncached])
        rows[:, hit] = rows[:, inputs] - rows[:, uncached]


def _worst_fall(predictor: ResidualPredictor, rows: FeatureMatrix, name: str) -> float:
    """Greatest relative fall of a served quantile from 0.5 up, from one point of a sweep to any later one."""
    column = INDEX[name]
    top = 1.0 if name == "kv_use" else 4.0 * float(np.nanmax(np.append(rows[:, column], 1e-3)))
    worst = 0.0
    peak_ttft = peak_tpot = np.zeros((len(rows), 1))
    upper = [level >= 0.5 for level in predictor.quantiles]
    for value in np.linspace(0.0, top, SWEEP_POINTS):
        swept = rows.copy()
        swept[:, column] = value
        _reconcile_lengths(swept, name)
        prediction = predictor.predict(swept)
        ttft, tpot = prediction.ttft_s[:, upper], prediction.tpot_s[:, upper]
        peak_ttft, peak_tpot = np.maximum(peak_ttft, ttft), np.maximum(peak_tpot, tpot)
        worst = max(worst, float((1 - ttft / peak_ttft).max()), float((1 - tpot / peak_tpot).max()))
    return worst
