"""The peers' recipe for latencies, to be measured on the same rows as ours: for training reports and benchmarks.

Routers that learn latencies today boost plain seconds on what engines report (waiting, running, KV use, prompt and
prefix hit), with a mean objective and completed requests only. Codes of hardware and model are added here, which
the peers lack: without them a fleet of several GPU types would be no contest.
"""

from __future__ import annotations

import lightgbm
import numpy as np

from data.types import FloatArray
from models.base import CategoryCodes, FeatureMatrix, Prediction
from models.features import INDEX
from models.samples import Samples

COLUMNS = ("queue_depth", "running", "kv_use", "input_tokens", "hit_tokens", "gpu_type", "gpus", "model")
TREES = 200
MOST_ROWS = 100_000
"""Rows that are fitted, drawn evenly over time: 200 trees of 31 leaves gain nothing from more."""
LEAST_S = 1e-4
_PARAMS = {
    "objective": "l2", "learning_rate": 0.05, "num_leaves": 31, "num_threads": 1, "verbosity": -1, "seed": 0,
    "deterministic": True, "force_row_wise": True,
}  # fmt: skip


def fit_mean_seconds(columns: FeatureMatrix, seconds: FloatArray) -> lightgbm.Booster:
    """The mean of ``seconds`` as boosted trees over ``columns``, shape (rows, anything)."""
    return lightgbm.train(_PARAMS, lightgbm.Dataset(columns, label=seconds), num_boost_round=TREES)


def predict_seconds(booster: lightgbm.Booster, columns: FeatureMatrix) -> FloatArray:
    """Predicted seconds of each row, at least ``LEAST_S``."""
    seconds: FloatArray = np.maximum(booster.predict(columns, num_threads=1), LEAST_S)
    return seconds


class PeerPredictor:
    """A latency predictor of the peers' recipe. Its one answer stands where the median does.

    Args:
        samples: What it learns from; rows without a first token are left out, as the peers do.
    """

    version = "peer recipe"

    def __init__(self, samples: Samples) -> None:
        self.codes: CategoryCodes = samples.codes
        step = max(1, -(-len(samples) // MOST_ROWS))
        columns, self._boosters = _columns(samples.features[::step]), {}
        for target in ("ttft_s", "tpot_s"):
            seconds = getattr(samples, target)[::step]
            known = seconds > 0
            self._boosters[target] = fit_mean_seconds(columns[known], seconds[known])

    def predict(self, features: FeatureMatrix) -> Prediction:
        """Predicted means for each row, as the only quantile."""
        columns = _columns(features)
        times = {name: predict_seconds(one, columns)[:, None] for name, one in self._boosters.items()}
        return Prediction((0.5,), times["ttft_s"], times["tpot_s"], self.version)


def _columns(features: FeatureMatrix) -> FeatureMatrix:
    return np.ascontiguousarray(features[:, [INDEX[name] for name in COLUMNS]])
