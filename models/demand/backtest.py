"""Rolling-origin back-test: fit on the past, forecast from later origins, score against what came, go on.

No forecast sees a window after its origin, and no fit sees a window after its own time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from data.types import FloatArray, IntArray
from models.demand.base import Forecaster
from models.demand.clean import clean_quantiles
from models.demand.history import History
from models.demand.loss import pinball
from models.demand.settings import ForecastSettings

Progress = Callable[[str], None]
LEAST_FIRST_FIT = 12
"""Windows before the first fit of a back-test."""


@dataclass(frozen=True, slots=True)
class Backtest:
    """What each candidate would have lost.

    Attributes:
        names: Candidates, in order.
        series: Names of the series.
        origins: Windows that forecasts were made in.
        fitted: For each origin, the window count of the fit that was used.
        losses: Shape (candidates, series, origins, leads): quantile loss, NaN where nothing was observed, infinite
            for a candidate that failed.
        observed: Shape (series, origins, leads): what came, NaN where not known.
        failures: Why a candidate failed, by name.
        clamped: Values below 0 that were set to 0, by name.
        seconds: Time spent in each candidate.
    """

    names: tuple[str, ...]
    series: tuple[str, ...]
    origins: IntArray
    fitted: IntArray
    losses: FloatArray
    observed: FloatArray
    failures: dict[str, str] = field(default_factory=dict)
    clamped: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Mix:
    """A candidate whose quantiles are the mean of its members' quantiles (Vincent averaging)."""

    name: str
    members: tuple[str, ...]


def fit_times(windows: int, settings: ForecastSettings) -> tuple[int, ...]:
    """Window counts at which a back-test fits, first to last; empty if the history is too short.

    The fits end one refit before the history does. Where so many do not fit, they stand closer.
    """
    every = settings.refit_every_steps
    if windows - settings.fits * every < max(LEAST_FIRST_FIT, windows // 3):
        every = int(windows * 2 / 3 / settings.fits)
    first = windows - settings.fits * every
    if every < 1 or first < LEAST_FIRST_FIT:
        return ()
    return tuple(first + k * every for k in range(settings.fits))


def backtest(
    history: History,
    forecasters: Sequence[Forecaster],
    mixes: Sequence[Mix],
    settings: ForecastSettings,
    times: Sequence[int],
    progress: Progress | None = None,
) -> Backtest:
    """Score every forecaster and every mix of them.

    Args:
        history: All that is known.
        forecasters: Candidates.
        mixes: Candidates made of these.
        settings: Levels, horizon, distance of origins.
        times: Window counts to fit at, rising; each fit serves until the next, the last to the end.
        progress: Told of each finished fit.
    """
    names = (*(one.name for one in forecasters), *(mix.name for mix in mixes))
    failures: dict[str, str] = {}
    clamped, seconds = dict.fromkeys(names, 0), dict.fromkeys(names, 0.0)
    stretches = list(zip(times, (*times[1:], history.windows), strict=True))
    parts: list[FloatArray] = []
    origins: list[IntArray] = []
    for start, stop in stretches:
        at = np.arange(start - 1, stop - 1, settings.origin_every_steps)
        seen, later = history.until(start), history.until(stop)
        rows: dict[str, FloatArray] = {}
        for one in forecasters:
            began = time.perf_counter()
            if one.name not in failures:
                try:
                    raw = one.fit(seen).predict(later, settings.horizon_steps, at)
                    rows[one.name], count = clean_quantiles(raw)
                    clamped[one.name] += count
                except (
                    Exception
                ) as error:  # a candidate may fail in any way: it loses, is named, and the rest go on
                    failures[one.name] = f"{type(error).__name__}: {error}"
            seconds[one.name] += time.perf_counter() - began
            if progress is not None:
                progress(f"{one.name} at window {start}")
        for mix in mixes:
            if all(member in rows for member in mix.members):
                rows[mix.name] = np.mean([rows[member] for member in mix.members], axis=0)
            else:
                failures.setdefault(mix.name, "a member failed")
        observed = observed_after(history.values, at, settings.horizon_steps)
        parts.append(np.stack([_losses(rows.get(name), observed, settings.levels) for name in names]))
        origins.append(at)
    losses = np.concatenate(parts, axis=2)
    every = np.concatenate(origins)
    fitted = np.repeat([start for start, _ in stretches], [len(at) for at in origins])
    observed = observed_after(history.values, every, settings.horizon_steps)
    return Backtest(names, history.names, every, fitted, losses, observed, failures, clamped, seconds)


def observed_after(values: FloatArray, origins: IntArray, horizon: int) -> FloatArray:
    """Shape (series, origins, horizon): the windows after each origin, NaN beyond the end."""
    padded = np.concatenate([values, np.full((len(values), horizon), np.nan)], axis=1)
    return padded[:, origins[:, None] + 1 + np.arange(horizon)[None, :]]


def _losses(quantiles: FloatArray | None, observed: FloatArray, levels: tuple[float, ...]) -> FloatArray:
    return np.full(observed.shape, np.inf) if quantiles is None else pinball(observed, quantiles, levels)
