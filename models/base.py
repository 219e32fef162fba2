"""What a latency predictor is: features in, quantiles of TTFT and TPOT out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from data.types import FloatArray

FeatureMatrix = npt.NDArray[np.float64]
"""Shape (candidates, len(models.features.NAMES)), C-contiguous, columns in the order of ``NAMES``."""
BoolArray = npt.NDArray[np.bool_]

UNKNOWN_CODE = -1.0
"""Code of a category that a model has never seen: only the prior speaks for it."""


@dataclass(frozen=True, slots=True)
class CategoryCodes:
    """Numbers that stand for GPU types and models in one predictor's features: the position in each tuple."""

    gpu_types: tuple[str, ...] = ()
    models: tuple[str, ...] = ()

    def gpu_type(self, name: str | None) -> float:
        """Code of a GPU type; −1 for one that is unknown or missing."""
        return _code(self.gpu_types, name)

    def model(self, key: str | None) -> float:
        """Code of a model key ``name@version``; −1 for one that is unknown or missing."""
        return _code(self.models, key)


def _code(known: tuple[str, ...], name: str | None) -> float:
    return float(known.index(name)) if name in known else UNKNOWN_CODE


@dataclass(frozen=True, slots=True)
class Prediction:
    """Predicted quantiles for each candidate.

    Attributes:
        quantiles: Levels, ascending, 0.5 among them.
        ttft_s: Shape (candidates, quantiles), non-decreasing along the second axis.
        tpot_s: The same for the time per output token.
        source: ``"prior"`` or the version of the model that answered; ``MODEL+PRIOR`` where both did.
        extrapolated: Shape (candidates,): the row lies outside what the model was trained on (or is of an unknown
            category); ``None`` = the question does not arise.
        drifted: Shape (candidates,): the model has drifted for the row's group and the prior answered it;
            ``None`` = nothing has drifted.
    """

    quantiles: tuple[float, ...]
    ttft_s: FloatArray
    tpot_s: FloatArray
    source: str
    extrapolated: BoolArray | None = None
    drifted: BoolArray | None = None

    def is_drifted(self, row: int) -> bool:
        """Whether the prior answered this row because the model has drifted."""
        return self.drifted is not None and bool(self.drifted[row])

    def row_source(self, row: int) -> str:
        """Who answered for one row."""
        model, _, prior = self.source.partition("+")
        return (prior or model) if self.is_drifted(row) else model

    @property
    def median_column(self) -> int:
        """Column of the 0.5 quantile."""
        return self.quantiles.index(0.5)


class LatencyPredictor(Protocol):
    """Predicts TTFT and TPOT for every candidate of one request in one call."""

    @property
    def version(self) -> str:
        """Version that stands in the decision log."""
        ...

    @property
    def codes(self) -> CategoryCodes:
        """Category codes that the feature rows must be built with."""
        ...

    def predict(self, features: FeatureMatrix) -> Prediction:
        """Quantiles for each row; finite and positive for any finite input."""
        ...
