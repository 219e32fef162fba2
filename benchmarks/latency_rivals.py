"""Recipes that predict held-out latencies of a public log, all on the same rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import lightgbm
import numpy as np

from data.types import FloatArray, IntArray
from models.base import BoolArray, FeatureMatrix
from models.features import INDEX
from models.gbm import BoostSettings, fit_target
from models.peer_recipe import fit_mean_seconds, predict_seconds
from models.physics import PriorSettings, prior_times
from models.public_logs.log import PublicLog
from models.public_logs.prior_refine import fitted_prior
from models.public_logs.residual import LogBoostSettings, predict_held_out, residual_columns
from models.public_logs.silicon_prior import silicon_prior

ROUTER = BoostSettings(mean_trees=200, quantile_trees=100, least_rows=20)
"""The router's own recipe, with smaller leaves than its default: these logs are small."""
PRIOR = PriorSettings()
LINE = ("burstgpt",)
"""Logs whose residual is learned about a line in log prior. It was chosen by leaving out training levels one by
one: the line had the smaller error in each of the five outer folds that were looked at."""


@dataclass(frozen=True)
class Fold:
    """One split of a log: what every recipe may use. ``test`` are row numbers with a known time."""

    features: FeatureMatrix
    columns: FeatureMatrix
    prior_s: FloatArray
    seconds: FloatArray
    train: BoolArray
    test: IntArray
    reported: FeatureMatrix
    settings: LogBoostSettings


def folds(log: PublicLog, held_out: BoolArray, targets: tuple[str, ...]) -> dict[str, Fold]:
    """The fold of each target that leaves out ``held_out``; the prior is fitted on the other rows."""
    train = ~held_out
    if log.source == "silicon":
        samples, extra = silicon_prior(log, train)
    else:
        samples, extra = fitted_prior(log.samples, train, PRIOR), log.extra
    times = prior_times(samples.features, PRIOR)
    columns = residual_columns(samples.features, times, extra)
    found = {}
    for target in targets:
        seconds = getattr(samples, target)
        known = seconds > 0
        found[target] = Fold(
            samples.features, columns, getattr(times, target), seconds, train & known,
            np.flatnonzero(held_out & known), reported(samples.features, extra),
            LogBoostSettings(line=log.source in LINE),
        )  # fmt: skip
    return found


def reported(features: FeatureMatrix, extra: Mapping[str, FloatArray]) -> FeatureMatrix:
    """The peer's features, loads as the engine reports them; and codes of model and hardware, which it lacks."""
    waiting = extra.get("engine_waiting", features[:, INDEX["queue_depth"]])
    running = extra.get("engine_running", features[:, INDEX["running"]])
    names = ("kv_use", "input_tokens", "hit_tokens", "gpu_type", "gpus", "model")
    return np.column_stack([waiting, running, *(features[:, INDEX[name]] for name in names)])


def constant(fold: Fold) -> FloatArray:
    """The median of the training rows."""
    return np.full(len(fold.test), np.median(fold.seconds[fold.train]))


def prior(fold: Fold) -> FloatArray:
    """The closed-form prior alone, its step times fitted on the training rows."""
    return fold.prior_s[fold.test]


def peer(fold: Fold) -> FloatArray:
    """LightGBM on plain features and seconds, mean objective, completed requests only."""
    booster = fit_mean_seconds(fold.reported[fold.train], fold.seconds[fold.train])
    return predict_seconds(booster, fold.reported[fold.test])


def router(fold: Fold) -> FloatArray:
    """The router's recipe: its features alone, monotone."""
    rows = np.flatnonzero(fold.train)
    ratio = np.log(fold.seconds[rows] / fold.prior_s[rows])
    nothing, weight = np.zeros(len(rows), dtype=bool), np.ones(len(rows))
    fit = fit_target(fold.features[rows], ratio, nothing, weight, (0.5,), ROUTER)
    mean, shift = (lightgbm.Booster(model_str=text) for text in fit.texts)
    learned = fold.features[fold.test][:, : mean.num_feature()]
    answer = mean.predict(learned, num_threads=1) + shift.predict(learned, num_threads=1)
    return fold.prior_s[fold.test] * np.exp(fit.base[0] + answer)


def ours(fold: Fold) -> FloatArray:
    """Prior and residual, with the log's own columns."""
    return quantile(fold, fold.train, fold.test, 0.5)


def quantile(fold: Fold, train: BoolArray, wanted: IntArray, level: float) -> FloatArray:
    """The same at any level, from any training rows."""
    return predict_held_out(fold.columns, fold.seconds, fold.prior_s, train, wanted, level, fold.settings)


RECIPES = {"constant": constant, "prior": prior, "peer": peer, "router": router, "ours": ours}
