"""What a latency predictor is: features in, quantiles of TTFT and TPOT out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from data.types import FloatArray

FeatureMatrix = npt.NDArray[np.float64]
"""Shape (candidates, len(models.features.NAMES)), C-contiguous, columns in the order of ``NAMES``."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """Predicted quantiles for each candidate.

    Attributes:
        quantiles: Levels, ascending, 0.5 among them.
        ttft_s: Shape (candidates, quantiles), non-decreasing along the second axis.
        tpot_s: The same for the time per output token.
        source: ``"prior"`` or the version of the model that answered.
    """

    quantiles: tuple[float, ...]
    ttft_s: FloatArray
    tpot_s: FloatArray
    source: str


class LatencyPredictor(Protocol):
    """Predicts TTFT and TPOT for every candidate of one request in one call."""

    @property
    def version(self) -> str:
        """Version that stands in the decision log."""
        ...

    def predict(self, features: FeatureMatrix) -> Prediction:
        """Quantiles for each row; finite and positive for any finite input."""
        ...
