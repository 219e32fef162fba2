"""The learned predictor: prior times exp(residual), calibrated, with guards. Needs no LightGBM."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from data.errors import ModelError
from data.types import FloatArray
from models.base import BoolArray, CategoryCodes, FeatureMatrix, Prediction
from models.calibration import Calibration
from models.card import TARGETS, ModelCard
from models.compiled import Forest
from models.features import INDEX, LEARNED, RISING, check_schema, schema_hash
from models.physics import LEAST_S, MOST_S, PriorPredictor, PriorSettings, bounded, prior_times, stale_spread

EXTRAPOLATION_SPREAD = 0.25
"""Standard deviation of log time added above the trained range (F082)."""
_GPU, _MODEL, _ROLE, _QUEUE, _AGE = (
    INDEX[name] for name in ("gpu_type", "model", "role", "queue_depth", "metrics_age_s")
)
_LEARNED = len(LEARNED)
_RISING = np.array([name in RISING for name in LEARNED])
_CODES = np.array([name in ("gpu_type", "model", "role") for name in LEARNED])


@dataclass(frozen=True, slots=True)
class RawQuantiles:
    """Quantiles before they are put in order: shape (rows, quantiles), to measure how often they cross."""

    ttft_s: FloatArray
    tpot_s: FloatArray
    extrapolated: BoolArray


class ResidualPredictor:
    """Latency predictor of one trained model.

    Log time = log prior + clamped residual of the forest + calibration offset. Rows of a GPU type, model or role
    that the model never saw get the prior alone. Outside the trained range the forest's answer stays what it is at
    the edge while the prior goes on growing; such rows are flagged. Upper quantiles widen above the trained range,
    and with old metrics, whose age the trees never see.

    Args:
        card: Model card; its feature schema must be this build's.
        forest: Trees: for each target the mean, then each quantile's shift.

    Raises:
        ModelError: Card and forest do not belong to this build or to each other.
    """

    def __init__(self, card: ModelCard, forest: Forest) -> None:
        check_schema(card.features, card.units)
        if card.schema_hash != schema_hash():
            raise ModelError("feature schema differs from this build's", reason="schema")
        levels = len(card.quantiles)
        if forest.outputs != len(TARGETS) * (levels + 1) or forest.features > _LEARNED:
            raise ModelError(
                f"forest with {forest.outputs} outputs over {forest.features} features for {levels} quantiles",
                reason="schema",
            )
        self.card = card
        self.quantiles = card.quantiles
        self.codes = CategoryCodes(card.gpu_types, card.models)
        self._prior_settings = PriorSettings(**card.prior)
        self.prior = PriorPredictor(self._prior_settings, card.quantiles, self.codes)
        self._forest = forest
        self._base = {target: np.array(card.base[target]) for target in TARGETS}
        self._calibration = {target: _calibration(card, target) for target in TARGETS}
        self._low, self._high = _bounds(card.low, -np.inf), _bounds(card.high, np.inf)
        self._low[_CODES], self._high[_CODES] = -np.inf, np.inf
        self._roles = np.array(card.roles)
        z = np.array([NormalDist().inv_cdf(level) for level in card.quantiles])
        self._upwards = np.maximum(z, 0.0)

    @property
    def version(self) -> str:
        """Version in the store."""
        return self.card.version

    def predict(self, features: FeatureMatrix) -> Prediction:
        """Quantiles for each row, in order; finite and positive for any input."""
        raw = self.raw_quantiles(features)
        return Prediction(
            quantiles=self.quantiles,
            ttft_s=np.sort(raw.ttft_s, axis=1),
            tpot_s=np.sort(raw.tpot_s, axis=1),
            source=self.version,
            extrapolated=raw.extrapolated,
        )

    def raw_quantiles(self, features: FeatureMatrix) -> RawQuantiles:
        """Quantiles as fitted and calibrated, which may cross."""
        times = prior_times(features, self._prior_settings)
        learned = features[:, :_LEARNED]
        known = self._known(features)
        above = (learned > self._high).any(axis=1) | times.suspect
        below = learned < self._low
        # Leaving the range of a rising feature downwards must not raise a prediction.
        wide = above | below[:, ~_RISING].any(axis=1)
        outside = above | below.any(axis=1) | ~known
        age, queue = features[:, _AGE], features[:, _QUEUE]
        if times.suspect.any():
            age, queue = np.where(times.suspect, 0.0, age), np.where(times.suspect, 0.0, queue)
        extra = EXTRAPOLATION_SPREAD * wide + stale_spread(age, self._prior_settings)
        sums = self._forest.predict(features)
        gpu = np.where(known, features[:, _GPU], -1.0)
        medians = (times.ttft_s, times.tpot_s)
        spreads = (times.ttft_spread, times.tpot_spread)
        answers = []
        for position, target in enumerate(TARGETS):
            ratio = self._ratio(sums, position, target) + self._calibration[target].offset(gpu, queue)
            ratio += extra[:, None] * self._upwards
            if not known.all():
                alone = np.log(self.prior.quantile_times(np.ones(len(gpu)), spreads[position]))
                ratio = np.where(known[:, None], ratio, alone)
            answers.append(bounded(medians[position][:, None] * np.exp(ratio), LEAST_S, MOST_S))
        return RawQuantiles(answers[0], answers[1], outside)

    def _ratio(self, sums: FloatArray, position: int, target: str) -> FloatArray:
        first = position * (len(self.quantiles) + 1)
        mean, shifts = sums[first], sums[first + 1 : first + 1 + len(self.quantiles)]
        low, high = self.card.clamp[target]
        return bounded(self._base[target] + (mean + shifts).T, low, high)

    def _known(self, features: FeatureMatrix) -> BoolArray:
        """Rows of a GPU type, model and role that the model was trained on."""
        gpu, model = features[:, _GPU], features[:, _MODEL]
        known: BoolArray = (gpu >= 0) & (gpu < len(self.codes.gpu_types)) & (model >= 0)
        known &= model < len(self.codes.models)
        role = features[:, _ROLE]
        trained = np.zeros(len(role), dtype=bool)
        for code in self._roles:
            trained |= role == code
        return known & trained


def _calibration(card: ModelCard, target: str) -> Calibration:
    offsets = np.array(card.offsets[target], dtype=np.float64)
    if offsets.ndim != 3 or offsets.shape[0] != len(card.gpu_types) + 1 or offsets.shape[2] != len(card.quantiles):
        raise ModelError(f"calibration of {target} has shape {offsets.shape}", reason="schema")
    return Calibration(offsets)


def _bounds(values: tuple[float | None, ...], unknown: float) -> FloatArray:
    """Range of each learned feature; one that training never saw has none."""
    return np.array([unknown if value is None else value for value in values])
