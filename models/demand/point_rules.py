"""Rules that forecast one value: the last value, the value one season ago, and exponential smoothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from data.types import FloatArray, IntArray
from models.demand.history import History, hold_last
from models.demand.smoothing import smooth


class FittedRule(Protocol):
    """A rule with its parameters."""

    def points(self, history: History, lead: int) -> FloatArray:
        """Shape (series, windows): the forecast made in each window for the one ``lead`` later, from its past."""
        ...


class PointRule(Protocol):
    """A rule before it has seen data."""

    @property
    def name(self) -> str:
        """One word for reports."""
        ...

    def fit(self, history: History, leads: IntArray) -> FittedRule:
        """Choose the parameters for these leads."""
        ...


@dataclass(frozen=True, slots=True)
class Persistence:
    """The last known value stands."""

    name: str = "persistence"

    def fit(self, history: History, leads: IntArray) -> Persistence:  # noqa: ARG002
        """Nothing to choose."""
        return self

    def points(self, history: History, lead: int) -> FloatArray:  # noqa: ARG002
        """The value of each window itself, or the last known one before it."""
        return hold_last(history.values)


@dataclass(frozen=True, slots=True)
class SeasonalNaive:
    """The value one season before the target; where that is not known, the last known value.

    Attributes:
        season_s: Length of the season, seconds.
    """

    season_s: float = 86_400.0
    name: str = "seasonal_naive"

    def fit(self, history: History, leads: IntArray) -> SeasonalNaive:  # noqa: ARG002
        """Nothing to choose."""
        return self

    def points(self, history: History, lead: int) -> FloatArray:
        """The value as many whole seasons ago as put it at or before the origin."""
        season = history.season_steps(self.season_s)
        held = hold_last(history.values)
        found = _behind(history.values, -(-lead // season) * season - lead, np.nan)
        return np.where(np.isnan(found), held, found)


HALF_LIVES = (0.5, 1.0, 3.0, 6.0, 18.0, 36.0, 144.0)
SEASON_SHARES = (0.0, 0.5)
SEASON_LEARNING = 0.4


@dataclass(frozen=True, slots=True)
class ExponentialSmoothing:
    """A smoothed level and a share of the smoothed daily deviation from it.

    Smoothing constant and season share are chosen for each series and each lead by the mean absolute error over
    the history (direct multi-step fitting): what serves best an hour ahead forgets faster than what serves a day
    ahead.

    Attributes:
        season_s: Length of the season, seconds.
    """

    season_s: float = 86_400.0
    name: str = "exponential_smoothing"

    def fit(self, history: History, leads: IntArray) -> FittedSmoothing:
        """Try every pair of constants on every lead."""
        states = [_levels(history, half_life) for half_life in HALF_LIVES]
        season = _season(history, self.season_s)
        chosen: dict[int, tuple[FloatArray, FloatArray]] = {}
        for lead in (int(one) for one in leads):
            target = ahead(history.values, lead)
            drift = _season_at(season, history, self.season_s, lead)
            errors = np.array(
                [mean_error(target - level - share * drift) for level in states for share in SEASON_SHARES]
            )
            best = errors.argmin(axis=0)
            half_life = np.array(HALF_LIVES)[best // len(SEASON_SHARES)]
            chosen[lead] = half_life, np.array(SEASON_SHARES)[best % len(SEASON_SHARES)]
        return FittedSmoothing(self.season_s, chosen)


@dataclass(frozen=True, slots=True)
class FittedSmoothing:
    """Constants by lead: half-life (windows) and season share of each series."""

    season_s: float
    chosen: dict[int, tuple[FloatArray, FloatArray]]

    def points(self, history: History, lead: int) -> FloatArray:
        """Level and season of each window, by the constants of the lead."""
        half_life, share = self.chosen[lead]
        found = np.empty_like(history.values)
        for one in np.unique(half_life):
            rows = half_life == one
            found[rows] = _levels(history, float(one))[rows]
        if share.any():
            drift = _season_at(_season(history, self.season_s), history, self.season_s, lead)
            found += share[:, None] * drift
        return found


def _levels(history: History, half_life: float) -> FloatArray:
    return smooth(hold_last(history.values), half_life)


def _behind(values: FloatArray, back: int, empty: float) -> FloatArray:
    """The value ``back`` windows earlier (0 or more), ``empty`` where there is none."""
    kept = max(values.shape[1] - back, 0)
    found = np.full_like(values, empty)
    found[:, values.shape[1] - kept :] = values[:, :kept]
    return found


def ahead(values: FloatArray, lead: int) -> FloatArray:
    """The value ``lead`` windows later, NaN where there is none."""
    found = np.full_like(values, np.nan)
    found[:, : max(values.shape[1] - lead, 0)] = values[:, lead:]
    return found


def mean_error(errors: FloatArray) -> FloatArray:
    """Mean absolute error of each series over its known windows, shape (series,)."""
    known = ~np.isnan(errors)
    return np.asarray(np.where(known, np.abs(errors), 0.0).sum(axis=1) / np.maximum(known.sum(axis=1), 1))


def _season(history: History, season_s: float) -> FloatArray:
    """Deviation from the level of each window, smoothed over the same time of earlier seasons."""
    held = hold_last(history.values)
    season = history.season_steps(season_s)
    off = held - smooth(held, max(season / 2.0, 1.0))
    for start in range(season, off.shape[1], season):
        stop = min(start + season, off.shape[1])
        before = off[:, start - season : stop - season]
        off[:, start:stop] = SEASON_LEARNING * off[:, start:stop] + (1.0 - SEASON_LEARNING) * before
    return off


def _season_at(season_state: FloatArray, history: History, season_s: float, lead: int) -> FloatArray:
    """The season's deviation expected ``lead`` windows after each window; 0 in the first season."""
    season = history.season_steps(season_s)
    return _behind(season_state, -(-lead // season) * season - lead, 0.0)
