"""LightGBM fits of log-ratios: a mean, and shifts from it to each quantile; for training only.

LightGBM's own quantile objective renews leaf values after a tree has grown, which breaks monotone constraints. So
the location is fitted by least squares, and each quantile ``τ`` by boosting on the gradient of the pinball loss
with a constant curvature, which leaves the constraints intact. A row only known to lie *above* a bound pulls with
``−τ`` while the fit is below its bound and not at all above it (Powell's censored quantile loss).
"""

from __future__ import annotations

from dataclasses import dataclass

import lightgbm
import numpy as np

from data.errors import SettingError
from data.types import FloatArray
from models.base import BoolArray, FeatureMatrix
from models.features import LEARNED, RISING


@dataclass(frozen=True, slots=True)
class BoostSettings:
    """Size and pace of the forests.

    Attributes:
        mean_trees, quantile_trees: Trees of the location, and of each quantile's shift (1 to 5,000).
        learning_rate: Share of each tree's answer that is taken (above 0, to 1).
        leaves, depth: Size of a tree (2 to 1,024; 1 to 16).
        least_rows: Rows of a leaf, at least (1 or more).
        threads: OpenMP threads (1 or more); the result does not depend on it.
        seed: For LightGBM's own draws.
    """

    mean_trees: int = 60
    quantile_trees: int = 40
    learning_rate: float = 0.1
    leaves: int = 15
    depth: int = 6
    least_rows: int = 100
    threads: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        ranges = (
            ("mean_trees", 1, 5000),
            ("quantile_trees", 1, 5000),
            ("learning_rate", 1e-4, 1.0),
            ("leaves", 2, 1024),
            ("depth", 1, 16),
            ("least_rows", 1, 10**9),
            ("threads", 1, 1024),
            ("seed", 0, 2**31 - 1),
        )
        for name, low, high in ranges:
            value = getattr(self, name)
            if not low <= value <= high:
                raise SettingError("setting out of range", field=name, value=value, expected=f"{low} to {high}")


@dataclass(frozen=True, slots=True)
class TargetFit:
    """Fits of one target. ``base + mean + shift`` of a quantile is the log-ratio to the prior.

    Attributes:
        texts: Booster text of the mean, then of each quantile's shift.
        base: Constant for each quantile.
        gain: Share of the total split gain by feature name, over all forests.
    """

    texts: tuple[str, ...]
    base: tuple[float, ...]
    gain: dict[str, float]


def fit_target(
    features: FeatureMatrix,
    log_ratio: FloatArray,
    censored: BoolArray,
    weight: FloatArray,
    quantiles: tuple[float, ...],
    settings: BoostSettings,
) -> TargetFit:
    """Fit one target.

    Args:
        features: Shape (rows, columns); only the ``LEARNED`` leading columns are used.
        log_ratio: Logarithm of observed over prior; for censored rows of the lower bound over prior.
        censored: Rows where the truth is at least ``log_ratio``.
        weight: Weight of each row, above 0.
        quantiles: Levels to fit.
        settings: Size and pace.
    """
    learned = np.ascontiguousarray(features[:, : len(LEARNED)])
    seen = ~censored
    weight = weight / weight.mean()
    centre = float(np.average(log_ratio[seen], weights=weight[seen]))
    mean = _boost(learned[seen], log_ratio[seen] - centre, weight[seen], settings)
    location = centre + mean.predict(learned, num_threads=settings.threads)
    boosters = [mean]
    base = []
    for level in quantiles:
        rest = log_ratio - location
        shift = float(np.quantile(rest[seen], level, weights=weight[seen], method="inverted_cdf"))
        base.append(centre + shift)
        boosters.append(_boost_quantile(learned, rest - shift, censored, weight, level, settings))
    gains = np.sum([booster.feature_importance("gain") for booster in boosters], axis=0)
    total = float(gains.sum()) or 1.0
    share = {name: float(gain) / total for name, gain in zip(LEARNED, gains, strict=True)}
    return TargetFit(tuple(booster.model_to_string() for booster in boosters), tuple(base), share)


def _params(settings: BoostSettings) -> dict[str, object]:
    return {
        "learning_rate": settings.learning_rate,
        "num_leaves": settings.leaves,
        "max_depth": settings.depth,
        "min_data_in_leaf": settings.least_rows,
        "monotone_constraints": [1 if name in RISING else 0 for name in LEARNED],
        "monotone_constraints_method": "advanced",
        "deterministic": True,
        "force_row_wise": True,
        "num_threads": settings.threads,
        "seed": settings.seed,
        "feature_pre_filter": False,
        "verbosity": -1,
    }


def _boost(
    features: FeatureMatrix, target: FloatArray, weight: FloatArray, settings: BoostSettings
) -> lightgbm.Booster:
    params = _params(settings) | {"objective": "l2", "boost_from_average": False}
    data = lightgbm.Dataset(features, label=target, weight=weight, feature_name=list(LEARNED))
    return lightgbm.train(params, data, num_boost_round=settings.mean_trees)


def _boost_quantile(
    features: FeatureMatrix,
    rest: FloatArray,
    censored: BoolArray,
    weight: FloatArray,
    level: float,
    settings: BoostSettings,
) -> lightgbm.Booster:
    def pinball(scores: FloatArray, _: lightgbm.Dataset) -> tuple[FloatArray, FloatArray]:
        error = rest - scores
        above = error > 0
        gradient = np.where(above, -level, np.where(censored, 0.0, 1.0 - level))
        # A leaf's Newton step is then its mean gradient times the present scale of the errors.
        scale = max(float(np.average(np.abs(error), weights=weight)), 1e-4)
        return gradient * weight, weight * (0.5 / scale)

    params = _params(settings) | {"objective": pinball, "min_sum_hessian_in_leaf": 0.0}
    data = lightgbm.Dataset(features, label=rest, feature_name=list(LEARNED))
    return lightgbm.train(params, data, num_boost_round=settings.quantile_trees)
