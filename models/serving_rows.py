"""What a trained model answers for each row, in one compiled pass: prior, forest, calibration and guards together.

Log time = log prior + clamped residual of the forest + calibration offset. Array by array this took three quarters
of a decision; the pass over a few rows takes microseconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from data.types import FloatArray, IntArray
from models.base import BoolArray, FeatureMatrix
from models.calibration import LOAD_BAND_EDGES
from models.features import INDEX
from models.jit import compiled
from models.leaf_masks import MaskArguments, add_sums
from models.physics import LEAST_S, MOST_S, PriorTimes, TimeArguments, put_times, stale_spread_of

EXTRAPOLATION_SPREAD = 0.25
"""Standard deviation of log time added above the trained range (F082)."""
_COLUMNS = np.array([INDEX[name] for name in ("gpu_type", "model", "role", "queue_depth", "metrics_age_s")])
_EDGES = np.array(LOAD_BAND_EDGES)


@dataclass(frozen=True, slots=True)
class ServingTables:
    """A model's numbers as arrays; the first axis of those by target is TTFT, TPOT.

    Attributes:
        base: Constant of each quantile's log-ratio, shape (targets, quantiles).
        clamp: Least and greatest log-ratio, shape (targets, 2).
        offsets: Calibration, shape (targets, GPU types + 1, load bands, quantiles).
        low, high: Trained range of each learned feature; infinite where there is none.
        rising: Learned features of which more never lowers a prediction.
        roles: Role codes that the model was trained on.
        models: Number of models that it knows.
        z: Standard normal quantile of each level.
        spread_age: As in ``PriorSettings``.
    """

    base: FloatArray
    clamp: FloatArray
    offsets: FloatArray
    low: FloatArray
    high: FloatArray
    rising: BoolArray
    roles: FloatArray
    models: int
    z: FloatArray
    spread_age: float


AnswerArguments: TypeAlias = tuple[
    IntArray, FloatArray, FloatArray, FloatArray, FloatArray, FloatArray, FloatArray, BoolArray, FloatArray, int,
    FloatArray, float, tuple[float, float, float],
]  # fmt: skip
"""Arguments of the compiled pass that belong to the model."""


def answer_arguments(tables: ServingTables) -> AnswerArguments:
    """The model as compiled code takes it."""
    return (
        _COLUMNS, _EDGES, tables.base, tables.clamp, tables.offsets, tables.low, tables.high, tables.rising,
        tables.roles, tables.models, tables.z, tables.spread_age, (EXTRAPOLATION_SPREAD, LEAST_S, MOST_S),
    )  # fmt: skip


def answer(
    features: FeatureMatrix,
    sums: FloatArray,
    times: PriorTimes,
    tables: ServingTables,
    quantiles: FloatArray,
    outside: BoolArray,
) -> None:
    """Fill ``quantiles`` (targets, rows, levels), which may cross, and ``outside``: rows beyond the trained range.

    Args:
        features: Feature rows.
        sums: Of the forest: for each target the mean, then each quantile's shift; shape (outputs, rows).
        times: The prior's times of the rows.
        tables: The model.
    """
    medians = (times.ttft_s, times.tpot_s)
    spreads = (times.ttft_spread, times.tpot_spread)
    arguments = answer_arguments(tables)
    _answer(features, sums, medians, spreads, times.suspect, *arguments, quantiles, outside)


@compiled
def whole_answer(
    features: FeatureMatrix,
    prior: TimeArguments,
    masks: MaskArguments,
    outputs: int,
    model: AnswerArguments,
    quantiles: FloatArray,
    outside: BoolArray,
) -> None:
    """Prior, forest and :func:`answer` in one call, the quantiles of each row in order."""
    rows = features.shape[0]
    times, suspect = np.empty((4, rows)), np.empty(rows, dtype=np.bool_)
    put_times(features, *prior, times, suspect)
    sums = np.zeros((outputs, rows))
    add_sums(features, *masks, sums)
    _answer(features, sums, (times[0], times[1]), (times[2], times[3]), suspect, *model, quantiles, outside)
    for target in range(quantiles.shape[0]):
        sort_rows(quantiles[target])


@compiled
def _answer(
    features: FeatureMatrix, sums: FloatArray, medians: tuple[FloatArray, FloatArray],
    spreads: tuple[FloatArray, FloatArray], suspect: BoolArray, columns: IntArray, edges: FloatArray,
    base: FloatArray, clamp: FloatArray, offsets: FloatArray, low: FloatArray, high: FloatArray, rising: BoolArray,
    roles: FloatArray, models: int, z: FloatArray, spread_age: float, limits: tuple[float, float, float],
    quantiles: FloatArray, outside: BoolArray,
) -> None:  # fmt: skip
    widening, least_s, most_s = limits
    levels = len(z)
    gpu_types = offsets.shape[1] - 1
    for row in range(features.shape[0]):
        gpu, model, role = features[row, columns[0]], features[row, columns[1]], features[row, columns[2]]
        trained = False
        for place in range(len(roles)):
            trained |= role == roles[place]
        known = trained and gpu >= 0 and gpu < gpu_types and model >= 0 and model < models
        wide, below = _beyond(features[row], low, high, rising, suspect[row])
        outside[row] = wide or below or not known
        queue, age = features[row, columns[3]], features[row, columns[4]]
        if suspect[row]:
            queue, age = 0.0, 0.0
        band = 0
        for place in range(len(edges)):
            band += not queue < edges[place]  # NaN counts as the last band
        extra = stale_spread_of(age, spread_age) + (widening if wide else 0.0)
        code = int(gpu) if known else gpu_types
        for target in range(2):
            first = target * (levels + 1)
            for level in range(levels):
                if known:
                    ratio = base[target, level] + (sums[first, row] + sums[first + 1 + level, row])
                    ratio = (
                        min(max(ratio, clamp[target, 0]), clamp[target, 1]) + offsets[target, code, band, level]
                    )
                    ratio += extra * max(z[level], 0.0)
                else:
                    ratio = spreads[target][row] * z[level]
                seconds = medians[target][row] * math.exp(ratio)
                quantiles[target, row, level] = min(max(seconds, least_s), most_s)


@compiled
def _beyond(
    values: FloatArray, low: FloatArray, high: FloatArray, rising: BoolArray, suspect: bool
) -> tuple[bool, bool]:
    """Whether a row calls for wider quantiles, and whether it leaves the trained range at all downwards."""
    wide, below = suspect, False
    for place in range(len(low)):
        wide |= values[place] > high[place]
        if values[place] < low[place]:
            below = True
            # Leaving the range of a rising feature downwards must not raise a prediction.
            wide |= not rising[place]
    return wide, below


@compiled
def sort_rows(quantiles: FloatArray) -> None:
    """Sort each row in place; rows are a few numbers that are nearly always in order."""
    for row in range(quantiles.shape[0]):
        for place in range(1, quantiles.shape[1]):
            value, back = quantiles[row, place], place
            while back > 0 and quantiles[row, back - 1] > value:
                quantiles[row, back] = quantiles[row, back - 1]
                back -= 1
            quantiles[row, back] = value
