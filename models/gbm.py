"""LightGBM fits of log-ratios: a mean, and shifts from it to each quantile; for training only.

LightGBM's own quantile objective renews leaf values after a tree has grown, which breaks monotone constraints. So
the location is fitted by least squares, and each quantile ``τ`` by boosting on the gradient of the pinball loss
with a constant curvature, which leaves the constraints intact. A row only known to lie *above* a bound pulls with
``−τ`` while the fit is below its bound and not at all above it (Powell's censored quantile loss).

Several workers may fit together (``models.fit_peers``): trees come from LightGBM's own sums over all of them, and
every other number over all rows is gathered here, so that only the place of the rows differs.
"""

from __future__ import annotations

from dataclasses import dataclass

import lightgbm
import numpy as np

from data.errors import SettingError
from data.types import FloatArray
from models.base import BoolArray, FeatureMatrix
from models.features import LEARNED, RISING
from models.fit_peers import Alone, FitPeers, total, weighted_quantile


@dataclass(frozen=True, slots=True)
class BoostSettings:
    """Size and pace of the forests.

    Attributes:
        mean_trees, quantile_trees: Trees of the location, and of each quantile's shift (1 to 5,000).
        learning_rate: Share of each tree's answer that is taken (above 0, to 1).
        leaves, depth: Size of a tree (2 to 1,024; 1 to 16).
        least_rows: Rows of a leaf, at least (1 or more).
        threads: OpenMP threads (1 or more); another number changes the last bits of sums, and with them a tie.
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
    peers: FitPeers | None = None,
) -> TargetFit:
    """Fit one target.

    Args:
        features: Shape (rows, columns); only the ``LEARNED`` leading columns are used.
        log_ratio: Logarithm of observed over prior; for censored rows of the lower bound over prior.
        censored: Rows where the truth is at least ``log_ratio``.
        weight: Weight of each row, above 0.
        quantiles: Levels to fit.
        settings: Size and pace.
        peers: Who else fits, on other rows; ``None`` = nobody.
    """
    peers = peers or Alone()
    learned = np.ascontiguousarray(features[:, : len(LEARNED)])
    seen = ~censored
    weights, rows = total(peers, float(weight.sum()), float(len(weight)))
    weight = weight * (rows / weights)
    known = weight[seen]
    known_sum, known_weight = total(peers, float(log_ratio[seen] @ known), float(known.sum()))
    centre = known_sum / known_weight
    mean = _boost(learned[seen], log_ratio[seen] - centre, known, settings, peers)
    rest = log_ratio - centre - mean.predict(learned, num_threads=settings.threads)
    data = lightgbm.Dataset(
        learned, params=_params(settings, peers), feature_name=list(LEARNED), free_raw_data=False
    )
    boosters, base = [mean], []
    for level in quantiles:
        shift = weighted_quantile(rest[seen], known, level, peers)
        base.append(centre + shift)
        boosters.append(_boost_quantile(data, rest - shift, censored, weight, level, settings, peers))
    gains = np.sum([booster.feature_importance("gain") for booster in boosters], axis=0)
    whole = float(gains.sum()) or 1.0
    share = {name: float(gain) / whole for name, gain in zip(LEARNED, gains, strict=True)}
    return TargetFit(tuple(booster.model_to_string() for booster in boosters), tuple(base), share)


def _params(settings: BoostSettings, peers: FitPeers) -> dict[str, object]:
    return {
        **peers.parameters,
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
    features: FeatureMatrix, target: FloatArray, weight: FloatArray, settings: BoostSettings, peers: FitPeers
) -> lightgbm.Booster:
    params = _params(settings, peers) | {"objective": "l2", "boost_from_average": False}
    data = lightgbm.Dataset(features, label=target, weight=weight, feature_name=list(LEARNED))
    return lightgbm.train(params, data, num_boost_round=settings.mean_trees)


def _boost_quantile(
    data: lightgbm.Dataset,
    rest: FloatArray,
    censored: BoolArray,
    weight: FloatArray,
    level: float,
    settings: BoostSettings,
    peers: FitPeers,
) -> lightgbm.Booster:
    def pinball(scores: FloatArray, _: lightgbm.Dataset) -> tuple[FloatArray, FloatArray]:
        error = rest - scores
        gradient = np.where(error > 0, -level, np.where(censored, 0.0, 1.0 - level))
        # A leaf's Newton step is then its mean gradient times the present scale of the errors.
        errors, weights = total(peers, float(np.abs(error) @ weight), float(weight.sum()))
        scale = max(errors / weights, 1e-4)
        return gradient * weight, weight * (0.5 / scale)

    params = _params(settings, peers) | {"objective": pinball, "min_sum_hessian_in_leaf": 0.0}
    return lightgbm.train(params, data.set_label(rest), num_boost_round=settings.quantile_trees)
