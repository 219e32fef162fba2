"""The residual on a public log: quantiles of log(observed / prior) from the router's features and the log's own.

The router's recipe (``models.gbm``) keeps to features that every endpoint has, and to monotone answers. A log
tells more, or less, so here the log's own columns and the prior's two times are features too, quantiles are
fitted by LightGBM's pinball objective without constraints, and a few forests on different draws of the rows are
averaged, as such logs are small. Upper quantiles get a conformal offset from rows of runs that the fit had not
seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import lightgbm
import numpy as np

from data.errors import ModelError, SettingError
from data.types import FloatArray, IntArray
from models.base import BoolArray, FeatureMatrix
from models.calibration import censored_quantile
from models.features import LEARNED
from models.physics import PriorTimes


@dataclass(frozen=True, slots=True)
class LogBoostSettings:
    """Size and pace of the forests.

    Attributes:
        trees: Trees of a forest (1 to 5,000).
        bags: Forests that are averaged, each on 80 % of the rows (1 to 100).
        learning_rate: Share of each tree's answer that is taken (above 0, to 1).
        leaves: Leaves of a tree, at most (2 to 1,024).
        least_rows: Rows of a leaf, at least (1 or more).
        seed: For the draws.
    """

    trees: int = 400
    bags: int = 3
    learning_rate: float = 0.08
    leaves: int = 31
    least_rows: int = 5
    seed: int = 0

    def __post_init__(self) -> None:
        ranges = (
            ("trees", 1, 5000), ("bags", 1, 100), ("learning_rate", 1e-4, 1.0), ("leaves", 2, 1024),
            ("least_rows", 1, 10**9), ("seed", 0, 2**31 - 1000),
        )  # fmt: skip
        for name, low, high in ranges:
            value = getattr(self, name)
            if not low <= value <= high:
                raise SettingError("setting out of range", field=name, value=value, expected=f"{low} to {high}")


def residual_columns(features: FeatureMatrix, times: PriorTimes, extra: Mapping[str, FloatArray]) -> FeatureMatrix:
    """What the forests see: the router's learned features, the prior's times, the log's own columns."""
    return np.column_stack([features[:, : len(LEARNED)], times.ttft_s, times.tpot_s, *extra.values()])


def predict_held_out(
    columns: FeatureMatrix, seconds: FloatArray, prior_s: FloatArray, train: BoolArray, wanted: IntArray,
    level: float, settings: LogBoostSettings,
) -> FloatArray:  # fmt: skip
    """One quantile of the time of the rows ``wanted``, learned from the rows ``train`` with a known time.

    Args:
        columns: Of :func:`residual_columns`, all rows.
        seconds: Observed times; NaN = not known.
        prior_s: The prior's times.
        train: Rows to learn from; none of ``wanted`` may be among them.
        wanted: Row numbers.
        level: Quantile, within (0, 1).
        settings: Size and pace.

    Raises:
        ModelError: No training row has a time (reason ``data``).
    """
    rows = np.flatnonzero(train & (seconds > 0))
    if not len(rows):
        raise ModelError("no time to learn from", reason="data")
    target = np.log(seconds[rows] / prior_s[rows])
    total = np.zeros(len(wanted))
    for bag in range(settings.bags):
        params = {
            "objective": "quantile", "alpha": level, "learning_rate": settings.learning_rate,
            "num_leaves": settings.leaves, "min_data_in_leaf": settings.least_rows, "num_threads": 1,
            "deterministic": True, "force_row_wise": True, "verbosity": -1, "seed": settings.seed + bag,
            "bagging_fraction": 0.8 if settings.bags > 1 else 1.0, "bagging_freq": 1,
        }  # fmt: skip
        data = lightgbm.Dataset(columns[rows], label=target)
        booster = lightgbm.train(params, data, num_boost_round=settings.trees)
        total += booster.predict(columns[wanted], num_threads=1)
    times: FloatArray = prior_s[wanted] * np.exp(total / settings.bags)
    return times


def conformal_factor(seconds: FloatArray, predicted_s: FloatArray, level: float) -> float:
    """Factor that makes ``predicted_s`` cover ``level`` of the held-out rows ``seconds`` (split conformal)."""
    known = seconds > 0
    errors = np.log(seconds[known] / predicted_s[known])
    count = len(errors)
    if not count:
        raise ModelError("no time to calibrate on", reason="data")
    return float(np.exp(censored_quantile(errors, np.zeros(count, dtype=bool), np.ones(count), level)))
