"""A latency predictor that hands drifted groups over to the prior, and says so."""

from __future__ import annotations

import numpy as np

from models.base import BoolArray, CategoryCodes, FeatureMatrix, LatencyPredictor, Prediction
from models.calibration import load_band
from models.drift import DriftMonitor
from models.features import INDEX

_GPU, _QUEUE = INDEX["gpu_type"], INDEX["queue_depth"]


class DriftGuarded:
    """Answers with ``predictor``, except for groups that ``monitor`` has found drifted: there ``prior`` answers.

    While nothing is drifted the model's own answer is handed on as it is. If the two answer other quantiles, they
    cannot stand in one array: then the prior answers all rows of a request that meets a drifted group.

    Args:
        predictor: The model, or the slot that it is swapped in; version and codes may change between decisions.
        prior: What answers for drifted groups.
        monitor: Follows whatever version serves.
    """

    def __init__(self, predictor: LatencyPredictor, prior: LatencyPredictor, monitor: DriftMonitor) -> None:
        self.predictor = predictor
        self.prior = prior
        self.monitor = monitor
        self.rows_by_prior = 0
        """Rows that the prior answered so far."""

    @property
    def version(self) -> str:
        """Version of the model."""
        return self.predictor.version

    @property
    def codes(self) -> CategoryCodes:
        """Category codes of the model; the prior needs none."""
        return self.predictor.codes

    def predict(self, features: FeatureMatrix) -> Prediction:
        """Quantiles for each row, from the model or, where it has drifted, from the prior."""
        monitor = self.monitor
        monitor.follow(self.predictor.version, self.predictor.codes)
        if not monitor.any_drifted:
            return self.predictor.predict(features)
        drifted = monitor.drifted(features[:, _GPU], load_band(features[:, _QUEUE]))
        if not drifted.any():
            return self.predictor.predict(features)
        prior = self.prior.predict(features)
        model = None if drifted.all() else self.predictor.predict(features)
        if model is None or model.quantiles != prior.quantiles:
            self.rows_by_prior += len(features)
            everything = np.ones(len(features), dtype=bool)
            return Prediction(
                prior.quantiles, prior.ttft_s, prior.tpot_s, prior.source, prior.extrapolated, everything
            )
        self.rows_by_prior += int(drifted.sum())
        return _mixed(model, prior, drifted)


def _mixed(model: Prediction, prior: Prediction, drifted: BoolArray) -> Prediction:
    outside = model.extrapolated
    if outside is not None and prior.extrapolated is not None:
        outside = np.where(drifted, prior.extrapolated, outside)
    rows = drifted[:, None]
    return Prediction(
        quantiles=model.quantiles,
        ttft_s=np.where(rows, prior.ttft_s, model.ttft_s),
        tpot_s=np.where(rows, prior.tpot_s, model.tpot_s),
        source=f"{model.source}+{prior.source}",
        extrapolated=outside,
        drifted=drifted,
    )
