"""Rates of several series on one grid of equal windows, with missing windows told apart from windows of zero."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from data.errors import InputError
from data.types import FloatArray


@dataclass(frozen=True, slots=True)
class History:
    """What was seen up to now.

    Attributes:
        names: One for each series, all different.
        values: Shape (series, windows): mean rate of each window (per second, >= 0). NaN = *not known* (the source
            was absent, or the window lies in an outage of the collection); 0 = *no traffic*.
        step_s: Length of a window, seconds (> 0).
        now_s: End of the last window on the source's clock, seconds. Nothing later is known.
    """

    names: tuple[str, ...]
    values: FloatArray
    step_s: float
    now_s: float

    def __post_init__(self) -> None:
        if self.values.ndim != 2 or self.values.shape[0] != len(self.names):
            shape = f"({len(self.names)}, windows)"
            raise InputError("wrong shape", field="values", value=self.values.shape, expected=shape)
        if not self.values.size:
            raise InputError(
                "no window to learn from", field="values", expected="one series and one window or more"
            )
        if len(set(self.names)) != len(self.names):
            raise InputError("series share a name", field="names", expected="names that differ")
        if not (np.isfinite(self.step_s) and self.step_s > 0 and np.isfinite(self.now_s)):
            raise InputError(
                "no such clock", field="step_s", value=(self.step_s, self.now_s), expected="finite, step above 0"
            )
        bad = np.isinf(self.values) | (self.values < 0)
        if bad.any():
            row, column = np.argwhere(bad)[0]
            raise InputError(
                f"rate of {self.names[row]} in window {column} cannot be",
                field="values",
                value=float(self.values[row, column]),
                expected="a finite rate of 0 or more, or NaN for an unknown one",
            )

    @property
    def windows(self) -> int:
        """Number of windows."""
        return int(self.values.shape[1])

    def until(self, windows: int) -> History:
        """The first ``windows`` windows (1 or more), with ``now_s`` at their end."""
        now_s = self.now_s - (self.windows - windows) * self.step_s
        return History(self.names, self.values[:, :windows], self.step_s, now_s)

    def season_steps(self, season_s: float) -> int:
        """Windows of one season of ``season_s`` seconds, rounded, at least 1."""
        return max(1, round(season_s / self.step_s))


def hold_last(values: FloatArray) -> FloatArray:
    """Unknown windows take the last known value before them; 0 before the first known one.

    Looks backward only, so a prefix of the result is the result of the prefix.
    """
    known = ~np.isnan(values)
    place = np.where(known, np.arange(values.shape[1]), -1)
    place = np.maximum.accumulate(place, axis=1)
    held = np.take_along_axis(values, np.maximum(place, 0), axis=1)
    return np.where(place >= 0, held, 0.0)
