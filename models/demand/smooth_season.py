"""The same time of earlier seasons, averaged over the windows beside it, and how today departs from it.

One window of a short cycle holds few requests: its count is mostly noise. The windows beside it one season ago
hold the same information several times over.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np

from data.types import FloatArray, IntArray
from models.demand.damped_trend import DampedTrend, FittedTrend
from models.demand.history import History, hold_last
from models.demand.point_rules import ahead, mean_error
from models.demand.smoothing import smooth

BESIDE = (1, 2, 4)
HALF_LIVES = (1.0, 4.0)
CONSTANTS = tuple(product(BESIDE, HALF_LIVES, (0.0, 0.5, 1.0)))
"""Windows to each side, half-life of the departure (windows), share of the departure that stays."""
SEASON_WEIGHT = 0.6
"""Weight of a season over that of the one after it."""


@dataclass(frozen=True, slots=True)
class SmoothSeason:
    """Smoothed earlier seasons; the damped trend where none is known yet.

    Constants are chosen for each series and each lead by the mean absolute error over the history.

    Attributes:
        season_s: Length of the season, seconds.
    """

    season_s: float = 86_400.0
    name: str = "smooth_season"

    def fit(self, history: History, leads: IntArray) -> FittedSmoothSeason:
        """Try every set of constants on every lead."""
        held, season = hold_last(history.values), history.season_steps(self.season_s)
        departures = {pair: _departure(held, season, *pair) for pair in product(BESIDE, HALF_LIVES)}
        chosen = {}
        for lead in (int(one) for one in leads):
            target = ahead(history.values, lead)
            profiles = {beside: _profile(held, season, lead, beside) for beside in BESIDE}
            errors = [
                mean_error(target - _above_zero(profiles[beside] + share * departures[beside, half_life]))
                for beside, half_life, share in CONSTANTS
            ]
            chosen[lead] = np.array(errors).argmin(axis=0)
        return FittedSmoothSeason(season, chosen, DampedTrend().fit(history, leads))


@dataclass(frozen=True, slots=True)
class FittedSmoothSeason:
    """Windows of a season, number of the constants of each series by lead, and the trend where none is known."""

    season: int
    chosen: dict[int, IntArray]
    trend: FittedTrend

    def points(self, history: History, lead: int) -> FloatArray:
        """Season and departure of each window, by the constants of the lead."""
        held, found = hold_last(history.values), self.trend.points(history, lead)
        for one in np.unique(self.chosen[lead]):
            rows = self.chosen[lead] == one
            beside, half_life, share = CONSTANTS[one]
            departure = _departure(held[rows], self.season, beside, half_life)
            repeated = _above_zero(_profile(held[rows], self.season, lead, beside) + share * departure)
            found[rows] = np.where(np.isnan(repeated), found[rows], repeated)
        return found


def _departure(held: FloatArray, season: int, beside: int, half_life: float) -> FloatArray:
    """How far each window lies from its season, smoothed; 0 before there is one."""
    now = _profile(held, season, 0, beside)
    return smooth(np.where(np.isnan(now), 0.0, held - now), half_life)


def _above_zero(values: FloatArray) -> FloatArray:
    return np.asarray(np.maximum(values, 0.0))


def _profile(held: FloatArray, season: int, lead: int, beside: int) -> FloatArray:
    """Mean of earlier seasons at the phase of ``lead`` windows later, from each window's past; NaN without one."""
    windows = held.shape[1]
    around = _around(held, beside)
    total, weights = np.zeros_like(held), np.zeros(windows)
    nearest = -(-(lead + beside) // season)
    for count in range(nearest, (windows + lead) // season + 1):
        back = count * season - lead
        weight = SEASON_WEIGHT ** (count - nearest)
        total[:, back:] += weight * around[:, : max(windows - back, 0)]
        weights[back:] += weight
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(weights > 0, total / weights, np.nan))


def _around(held: FloatArray, beside: int) -> FloatArray:
    """Mean of each window and those to both sides, as far as there are any."""
    at = np.arange(held.shape[1])
    low, high = np.maximum(at - beside, 0), np.minimum(at + beside + 1, held.shape[1])
    sums = np.concatenate([np.zeros((len(held), 1)), np.cumsum(held, axis=1)], axis=1)
    return np.asarray((sums[:, high] - sums[:, low]) / (high - low))
