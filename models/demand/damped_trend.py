"""A level and part of its trend: what serves where demand turns within a few dozen windows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from data.types import FloatArray, IntArray
from models.demand.history import History, hold_last
from models.demand.point_rules import ahead, mean_error
from models.demand.smoothing import smooth

CONSTANTS = (
    *((half_life, 0.0) for half_life in (0.5, 1.0, 2.0, 4.0)),
    *((half_life, share) for half_life in (1.0, 2.0, 4.0) for share in (0.5, 1.0)),
)
"""Half-life of the smoothing (windows) and share of the trend that is followed."""


@dataclass(frozen=True, slots=True)
class DampedTrend:
    """Double exponential smoothing (Brown 1963) with a share of its trend, never below 0.

    Half-life and share are chosen for each series and each lead by the mean absolute error over the history.
    """

    name: str = "damped_trend"

    def fit(self, history: History, leads: IntArray) -> FittedTrend:
        """Try every pair of constants on every lead."""
        held = hold_last(history.values)
        chosen = {}
        for lead in (int(one) for one in leads):
            target = ahead(history.values, lead)
            errors = np.array([mean_error(target - _extrapolated(held, lead, *pair)) for pair in CONSTANTS])
            chosen[lead] = errors.argmin(axis=0)
        return FittedTrend(chosen)


@dataclass(frozen=True, slots=True)
class FittedTrend:
    """Number of the constants of each series, by lead."""

    chosen: dict[int, IntArray]

    def points(self, history: History, lead: int) -> FloatArray:
        """Level and trend of each window, by the constants of the lead."""
        held = hold_last(history.values)
        found = np.empty_like(held)
        for one in np.unique(self.chosen[lead]):
            rows = self.chosen[lead] == one
            found[rows] = _extrapolated(held[rows], lead, *CONSTANTS[one])
        return found


def _extrapolated(held: FloatArray, lead: int, half_life: float, share: float) -> FloatArray:
    """Brown's forecast with share 1, the smoothed level alone with share 0."""
    gain = 1.0 - 0.5 ** (1.0 / half_life)
    once = smooth(held, half_life)
    behind = once - smooth(once, half_life)
    return np.asarray(np.maximum(once + share * behind * (1.0 + lead * gain / (1.0 - gain)), 0.0))
