"""The learned predictor: prior times exp(residual), calibrated, with guards. Needs no LightGBM."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from data.errors import ModelError
from data.types import FloatArray
from models.base import BoolArray, CategoryCodes, FeatureMatrix, Prediction
from models.calibration import LOAD_BANDS
from models.card import TARGETS, ModelCard
from models.compiled import Forest
from models.features import LEARNED, RISING, check_schema, schema_hash
from models.leaf_masks import LeafMasks, MaskArguments, quickest
from models.physics import PriorPredictor, PriorSettings, prior_times, time_arguments
from models.serving_rows import ServingTables, answer, answer_arguments, sort_rows, whole_answer

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
        self._forest = quickest(forest)
        self._tables = _tables(card, self._prior_settings)
        self._masks = self._forest.arguments if isinstance(self._forest, LeafMasks) else None
        self._times = time_arguments(self._prior_settings)
        self._answer = answer_arguments(self._tables)

    @property
    def version(self) -> str:
        """Version in the store."""
        return self.card.version

    def predict(self, features: FeatureMatrix) -> Prediction:
        """Quantiles for each row, in order; finite and positive for any input."""
        if self._masks is not None and features.shape[1] >= _LEARNED:
            return self._compiled(features, self._masks)
        raw = self.raw_quantiles(features)
        sort_rows(raw.ttft_s)
        sort_rows(raw.tpot_s)
        return Prediction(self.quantiles, raw.ttft_s, raw.tpot_s, self.version, raw.extrapolated)

    def _compiled(self, features: FeatureMatrix, masks: MaskArguments) -> Prediction:
        quantiles = np.empty((len(TARGETS), len(features), len(self.quantiles)))
        outside = np.empty(len(features), dtype=np.bool_)
        whole_answer(
            np.ascontiguousarray(features),
            self._times,
            masks,
            self._forest.outputs,
            self._answer,
            quantiles,
            outside,
        )
        return Prediction(self.quantiles, quantiles[0], quantiles[1], self.version, outside)

    def raw_quantiles(self, features: FeatureMatrix) -> RawQuantiles:
        """Quantiles as fitted and calibrated, which may cross."""
        times = prior_times(features, self._prior_settings)
        quantiles = np.empty((len(TARGETS), len(features), len(self.quantiles)))
        outside = np.empty(len(features), dtype=np.bool_)
        answer(features, self._forest.predict(features), times, self._tables, quantiles, outside)
        return RawQuantiles(quantiles[0], quantiles[1], outside)


def _tables(card: ModelCard, prior: PriorSettings) -> ServingTables:
    low, high = _bounds(card.low, -np.inf), _bounds(card.high, np.inf)
    low[_CODES], high[_CODES] = -np.inf, np.inf
    return ServingTables(
        base=np.array([card.base[target] for target in TARGETS], dtype=np.float64),
        clamp=np.array([card.clamp[target] for target in TARGETS], dtype=np.float64),
        offsets=np.array([_offsets(card, target) for target in TARGETS]),
        low=low,
        high=high,
        rising=_RISING,
        roles=np.array(card.roles, dtype=np.float64),
        models=len(card.models),
        z=np.array([NormalDist().inv_cdf(level) for level in card.quantiles]),
        spread_age=prior.spread_age,
    )


def _offsets(card: ModelCard, target: str) -> FloatArray:
    offsets = np.array(card.offsets[target], dtype=np.float64)
    if offsets.shape != (len(card.gpu_types) + 1, len(LOAD_BANDS), len(card.quantiles)):
        raise ModelError(f"calibration of {target} has shape {offsets.shape}", reason="schema")
    return offsets


def _bounds(values: tuple[float | None, ...], unknown: float) -> FloatArray:
    """Range of each learned feature; one that training never saw has none."""
    return np.array([unknown if value is None else value for value in values])
