"""What a forecaster is: rates seen so far in, quantiles of later rates out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from data.types import FloatArray, IntArray
from models.demand.history import History

NEAR_LEADS = 6
"""Leads up to this one are always computed; beyond, every third of an octave or so, the others in between."""


class FittedForecaster(Protocol):
    """What a fit has learned; it can be asked again as time goes on."""

    def predict(self, history: History, horizon: int, origins: IntArray | None = None) -> FloatArray:
        """Quantiles of the rate in the windows after an origin.

        Args:
            history: The series of the fit, up to the fit or later.
            horizon: Windows ahead (1 or more).
            origins: Windows to stand in, as indices; for each only the windows up to it are
                used. Default: the last.

        Returns:
            Shape (series, origins, horizon, levels): window ``origin + 1 + k`` at place ``k``. May be negative,
            cross or be no number: who calls cleans it and counts (``models.demand.clean``).
        """
        ...


class Forecaster(Protocol):
    """A way to forecast."""

    @property
    def name(self) -> str:
        """One word for reports."""
        ...

    def fit(self, history: History) -> FittedForecaster:
        """Learn from the whole of ``history``.

        Raises:
            ModelError: There is too little to learn from.
        """
        ...


def lead_grid(horizon: int) -> IntArray:
    """Leads that are computed; the quantiles of those between are interpolated."""
    leads = list(range(1, min(horizon, NEAR_LEADS) + 1))
    while leads[-1] < horizon:
        leads.append(min(horizon, max(leads[-1] + 1, round(leads[-1] * 1.25))))
    return np.array(leads, dtype=np.int64)


def spread_leads(values: FloatArray, leads: Sequence[int] | IntArray, horizon: int) -> FloatArray:
    """Values at some leads (third axis from the front) drawn out to every lead 1 … ``horizon``, linearly."""
    at = np.arange(1, horizon + 1)
    grid = np.asarray(leads)
    right = np.clip(np.searchsorted(grid, at), 0, len(grid) - 1)
    left = np.maximum(right - (grid[right] > at), 0)
    span = np.maximum(grid[right] - grid[left], 1)
    weight = ((at - grid[left]) / span)[:, None]
    return np.asarray(values[:, :, left] * (1.0 - weight) + values[:, :, right] * weight)


def last_origin(history: History, origins: IntArray | None) -> IntArray:
    """The origins asked for, else the last window."""
    return np.array([history.windows - 1]) if origins is None else origins
