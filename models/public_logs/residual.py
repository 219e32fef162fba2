"""The residual on a public log: quantiles of log time about a line in log prior, from the router's features and
the log's own.

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

LEAST_LINE_ROWS = 20
SOFT = 0.1
"""Error of log time beyond which a row pulls linearly on the line, not by its square."""


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
        line: The trees learn about a line in log prior (:func:`prior_line`) instead of the prior itself. It helps
            where a prior was fitted on the same kind of endpoint under other loads, and harms where it must carry
            over to a kind that was never seen.
    """

    trees: int = 400
    bags: int = 3
    learning_rate: float = 0.08
    leaves: int = 31
    least_rows: int = 5
    seed: int = 0
    line: bool = False

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
    start = prior_line(seconds[rows], prior_s[rows]) if settings.line else (0.0, 1.0)
    centre = start[0] + start[1] * np.log(prior_s)
    target = np.log(seconds[rows]) - centre[rows]
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
    times: FloatArray = np.exp(centre[wanted] + total / settings.bags)
    return times


def prior_line(seconds: FloatArray, prior_s: FloatArray) -> tuple[float, float]:
    """``a`` and ``g`` of ``log time ≈ a + g·log prior`` by robust least squares on training rows.

    A prior that rises too steeply with the load, or not steeply enough, misleads most where the trees know least:
    at loads that they have not seen. Without a spread of prior times the prior stands as it is.
    """
    from scipy.optimize import least_squares

    x, y = np.log(prior_s), np.log(seconds)
    if len(x) < LEAST_LINE_ROWS or x.std() < 1e-6:
        return 0.0, 1.0
    found = least_squares(
        lambda line: y - line[0] - line[1] * x, (0.0, 1.0), loss="soft_l1", f_scale=SOFT,
        bounds=((-np.inf, 0.2), (np.inf, 2.0)),
    )  # fmt: skip
    a, g = found.x.tolist()
    return a, g


def conformal_factor(seconds: FloatArray, predicted_s: FloatArray, level: float) -> float:
    """Factor that makes ``predicted_s`` cover ``level`` of the held-out rows ``seconds`` (split conformal)."""
    known = seconds > 0
    errors = np.log(seconds[known] / predicted_s[known])
    count = len(errors)
    if not count:
        raise ModelError("no time to calibrate on", reason="data")
    return float(np.exp(censored_quantile(errors, np.zeros(count, dtype=bool), np.ones(count), level)))
