"""Errors and coverage of a predictor on samples: in all, by GPU type, load band, both, and prompt band."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

import numpy as np

from data.types import FloatArray, IntArray
from models.base import BoolArray, LatencyPredictor, Prediction
from models.calibration import LOAD_BANDS, load_band
from models.features import INDEX
from models.samples import Samples

PROMPT_EDGES = (1024.0, 4096.0, 16384.0)
PROMPT_BANDS = ("<1k", "1k-4k", "4k-16k", ">=16k")


@dataclass(frozen=True, slots=True)
class GroupError:
    """Errors on one group of rows.

    Attributes:
        target: ``ttft_s`` or ``tpot_s``.
        group: Kind of group and its name, such as ``gpu_type:H100`` or ``gpu_load:H100/busy``; ``all`` for all.
        rows: Rows with a known time; the errors are theirs.
        censored: Rows with only a lower bound; they enter ``loss`` and ``coverage`` where the bound decides.
        median_error: Median absolute relative error of the 0.5 quantile.
        loss: Mean pinball loss of log time over all quantiles.
        coverage: For each quantile the share of rows at or below it.
        losses: The pinball loss of each quantile.
        bias: Median of predicted over observed: below 1 = optimistic.

    For TPOT all of them are weighted by the tokens it is the mean of, as Goodput is.
    """

    target: str
    group: str
    rows: int
    censored: int
    median_error: float
    loss: float
    coverage: dict[str, float]
    losses: dict[str, float]
    bias: float


@dataclass(frozen=True, slots=True)
class Evaluation:
    """How well a predictor did on some samples. ``loss`` is the mean of both targets' losses."""

    version: str
    loss: float
    groups: tuple[GroupError, ...]
    extrapolated_share: float

    def to_dict(self) -> dict[str, object]:
        """As plain values, for the card and ``--json``."""
        return asdict(self)

    def overall(self, target: str) -> GroupError:
        """Errors of one target on all rows."""
        return next(group for group in self.groups if group.target == target and group.group == "all")


def evaluate(predictor: LatencyPredictor, samples: Samples) -> Evaluation:
    """Errors of ``predictor`` on ``samples``; the samples' codes must be the predictor's."""
    prediction = predictor.predict(samples.features)
    nothing = np.zeros(len(samples), dtype=bool)
    bound = np.isnan(samples.ttft_s)
    ttft = np.where(bound, samples.ttft_bound_s, samples.ttft_s)
    groups: list[GroupError] = []
    for name, rows in _groups(samples):
        groups.append(_group_error("ttft_s", name, ttft, bound, nothing + 1.0, prediction, rows))
        known = rows & ~np.isnan(samples.tpot_s)
        groups.append(_group_error("tpot_s", name, samples.tpot_s, nothing, samples.gaps, prediction, known))
    overall = [group.loss for group in groups if group.group == "all" and group.rows]
    outside = prediction.extrapolated
    share = float(outside.mean()) if outside is not None and len(outside) else 0.0
    return Evaluation(predictor.version, float(np.mean(overall)), tuple(groups), share)


def pinball(log_error: FloatArray, censored: BoolArray, level: float) -> FloatArray:
    """Pinball loss of ``log(observed) − log(predicted)``; a bound below the prediction costs nothing."""
    loss: FloatArray = np.where(
        log_error > 0, level * log_error, np.where(censored, 0.0, (level - 1.0) * log_error)
    )
    return loss


def _groups(samples: Samples) -> list[tuple[str, BoolArray]]:
    features = samples.features
    groups = [("all", np.ones(len(samples), dtype=bool))]
    gpu = features[:, INDEX["gpu_type"]]
    for code, name in enumerate(samples.codes.gpu_types):
        groups.append((f"gpu_type:{name}", gpu == code))
    bands = load_band(features[:, INDEX["queue_depth"]])
    groups += [(f"load:{name}", bands == band) for band, name in enumerate(LOAD_BANDS)]
    groups += [
        (f"gpu_load:{gpu_type}/{name}", (gpu == code) & (bands == band))
        for code, gpu_type in enumerate(samples.codes.gpu_types)
        for band, name in enumerate(LOAD_BANDS)
    ]
    prompts: IntArray = np.searchsorted(np.array(PROMPT_EDGES), features[:, INDEX["input_tokens"]], side="right")
    groups += [(f"prompt:{name}", prompts == band) for band, name in enumerate(PROMPT_BANDS)]
    return [(name, rows) for name, rows in groups if rows.any()]


def _group_error(
    target: str,
    group: str,
    observed: FloatArray,
    bound: BoolArray,
    weight: FloatArray,
    prediction: Prediction,
    rows: BoolArray,
) -> GroupError:
    predicted: FloatArray = getattr(prediction, target)[rows]
    observed, bound, weight = observed[rows], bound[rows], weight[rows]
    seen = ~bound
    if not seen.any():
        return GroupError(target, group, 0, int(bound.sum()), math.nan, math.nan, {}, {}, math.nan)
    log_error = np.log(observed)[:, None] - np.log(predicted)
    losses = {
        str(level): float(np.average(pinball(log_error[:, column], bound, level), weights=weight))
        for column, level in enumerate(prediction.quantiles)
    }
    ratio = predicted[seen, prediction.median_column] / observed[seen]
    return GroupError(
        target=target,
        group=group,
        rows=int(seen.sum()),
        censored=int(bound.sum()),
        median_error=_median(np.abs(ratio - 1.0), weight[seen]),
        loss=float(np.mean(list(losses.values()))),
        coverage={
            str(level): _coverage(log_error[:, column], bound, weight)
            for column, level in enumerate(prediction.quantiles)
        },
        losses=losses,
        bias=_median(ratio, weight[seen]),
    )


def _median(values: FloatArray, weight: FloatArray) -> float:
    return float(np.quantile(values, 0.5, weights=weight, method="inverted_cdf"))


def _coverage(log_error: FloatArray, bound: BoolArray, weight: FloatArray) -> float:
    """Share of rows at or below the prediction, of those where that is known; NaN if of none."""
    above = log_error > 0
    decided = above | ~bound
    return float(weight[~above & decided].sum() / weight[decided].sum()) if decided.any() else float("nan")
