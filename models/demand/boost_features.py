"""What the boosted forecaster looks at: lags, means, restlessness, season and calendar, and the other series."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from data.types import FloatArray, IntArray
from models.demand.history import History, hold_last

LAGS = (1, 2, 3, 5)
WINDOWS = (3, 6)
SCALE_WINDOWS = 18
HOUR_S = 3600.0
LEAST_PAST = 6
"""Windows before the first origin that is learned from."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """One row for each (series, origin, lead): features in units of ``scale``, and what they refer to.

    Attributes:
        features: Shape (rows, columns).
        last: Last known rate at the origin, per second.
        scale: Recent mean rate, at least a tenth of the mean of three seasons (above 0).
    """

    features: FloatArray
    last: FloatArray
    scale: FloatArray


class FeatureSource:
    """Features of one history; a row looks at windows up to its origin only.

    Args:
        history: Rates, all series.
        season_s: Length of the season, seconds.
    """

    def __init__(self, history: History, season_s: float) -> None:
        self._held = hold_last(history.values)
        self._season = history.season_steps(season_s)
        self._sums = _sums(self._held)
        self._moves = _sums(np.abs(np.diff(self._held, axis=1, prepend=self._held[:, :1])))
        self._all = self._held.sum(axis=0)
        self._all_sums = _sums(self._all[None])[0]
        self._start_s = history.now_s - history.windows * history.step_s
        self._step_s, self._season_s = history.step_s, season_s

    def rows(self, series: IntArray, origin: IntArray, lead: IntArray) -> Drawn:
        """Features of these rows; the three arrays have one length."""
        season = self._season
        windows = (*WINDOWS, max(season // 4, 12), max(season // 2, 24), season)
        scale = np.maximum(self._mean(series, origin, SCALE_WINDOWS), 0.1 * self._mean(series, origin, 3 * season))
        scale = np.maximum(scale, 1e-9)
        last = self._held[series, origin]
        rates = [
            last,
            *(self._held[series, np.maximum(origin - lag, 0)] for lag in LAGS),
            *(self._mean(series, origin, window) for window in windows),
            self._mean(series, origin, 3 * season),
            *(self._mean_of(self._moves, series, origin, window) for window in (6, windows[2], season)),
            *self._seasonal(series, origin, lead),
        ]
        target_s = self._start_s + (origin + lead) * self._step_s
        angle = 2.0 * np.pi * target_s / self._season_s
        whole = self._all[origin] / np.maximum(self._all_mean(origin, SCALE_WINDOWS), 1e-9)
        wide = self._all[origin] / np.maximum(self._all_mean(origin, season), 1e-9)
        # Scheduled work starts on the hour.
        hour = [target_s % HOUR_S, (target_s - lead * self._step_s) % HOUR_S]
        plain = [np.cos(angle), np.sin(angle), *hour, lead.astype(float), whole, wide, series.astype(float)]
        columns = [rate / scale for rate in rates] + plain
        return Drawn(np.stack(columns, axis=1), last, scale)

    def _seasonal(self, series: IntArray, origin: IntArray, lead: IntArray) -> list[FloatArray]:
        """Rates one, two and seven seasons before the target, the mean of three, and the change a season ago."""
        base = -(-lead // self._season) - 1
        backs = {count: origin + lead - (base + count) * self._season for count in (1, 2, 3, 7)}
        found = {
            count: np.where(place >= 0, self._held[series, np.maximum(place, 0)], np.nan)
            for count, place in backs.items()
        }
        before = origin - (base + 1) * self._season
        change = found[1] - np.where(before >= 0, self._held[series, np.maximum(before, 0)], np.nan)
        return [found[1], found[2], found[7], (found[1] + found[2] + found[3]) / 3.0, change]

    def _mean(self, series: IntArray, origin: IntArray, window: int) -> FloatArray:
        return self._mean_of(self._sums, series, origin, window)

    @staticmethod
    def _mean_of(sums: FloatArray, series: IntArray, origin: IntArray, window: int) -> FloatArray:
        start = np.maximum(origin + 1 - window, 0)
        return np.asarray((sums[series, origin + 1] - sums[series, start]) / (origin + 1 - start))

    def _all_mean(self, origin: IntArray, window: int) -> FloatArray:
        start = np.maximum(origin + 1 - window, 0)
        return np.asarray((self._all_sums[origin + 1] - self._all_sums[start]) / (origin + 1 - start))


def _sums(values: FloatArray) -> FloatArray:
    """Running sums with a 0 in front."""
    return np.concatenate([np.zeros((len(values), 1)), np.cumsum(values, axis=1)], axis=1)
