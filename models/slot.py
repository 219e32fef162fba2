"""The serving slot: holds the predictor in use and swaps it only for one that loaded and verified."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from data.errors import ModelError
from models.base import CategoryCodes, FeatureMatrix, LatencyPredictor, Prediction


class PredictorSlot:
    """A latency predictor whose content can be replaced while it serves.

    Args:
        predictor: What serves at first, such as the prior.
    """

    def __init__(self, predictor: LatencyPredictor) -> None:
        self._predictor = predictor
        self.reload_failures: Counter[str] = Counter()
        """Refused reloads by reason of the ``ModelError``."""
        self.last_error: str | None = None
        """Why the latest reload was refused; ``None`` after one that worked."""

    @property
    def version(self) -> str:
        """Version that serves."""
        return self._predictor.version

    @property
    def codes(self) -> CategoryCodes:
        """Category codes of the predictor that serves."""
        return self._predictor.codes

    def current(self) -> LatencyPredictor:
        """The predictor that serves now: take it once a decision, so that codes and answers belong together."""
        return self._predictor

    def predict(self, features: FeatureMatrix) -> Prediction:
        """Answer of the predictor that serves."""
        return self._predictor.predict(features)

    def reload(self, load: Callable[[], LatencyPredictor]) -> bool:
        """Swap in what ``load`` gives; on a ``ModelError`` count the failure and keep the old one.

        Call it between decisions, on the thread that decides: a decision reads ``codes`` and then ``predict``.
        """
        try:
            fresh = load()
        except ModelError as error:
            self.reload_failures[error.reason] += 1
            self.last_error = str(error)
            return False
        self._predictor = fresh
        self.last_error = None
        return True
