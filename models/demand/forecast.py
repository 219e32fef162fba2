"""One forecast: back-test the forecasters, choose for each series, fit the chosen on everything, look ahead."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from data.errors import ModelError
from data.types import FloatArray
from models.base import BoolArray
from models.demand.backtest import Backtest, Mix, Progress, backtest, fit_times
from models.demand.base import Forecaster
from models.demand.catalogue import MIXES, forecasters, unproved
from models.demand.clean import clean_quantiles
from models.demand.history import History
from models.demand.selection import Choice, choose
from models.demand.settings import ForecastSettings

Winners = tuple[tuple[str, ...], ...]
"""Name of a forecaster by series and band."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """Quantiles of the rate of each series in each window ahead.

    Attributes:
        names: Of the series.
        levels: Quantile levels.
        now_s: End of the last observed window, on the source's clock.
        step_s: Length of a window, seconds.
        quantiles: Shape (series, windows ahead, levels): per second, finite, >= 0, never falling over the levels.
        bands: Leads (first, last) of each band, windows.
        used: Forecaster of each series in each band.
        clamped: Values of these forecasts that were below 0 and were set to 0.
        test: The back-test; ``None`` where the history was too short for one.
        choice: What was chosen on it.
        notes: What a reader should know.
    """

    names: tuple[str, ...]
    levels: tuple[float, ...]
    now_s: float
    step_s: float
    quantiles: FloatArray
    bands: tuple[tuple[int, int], ...]
    used: tuple[tuple[str, ...], ...]
    clamped: int
    test: Backtest | None = None
    choice: Choice | None = None
    notes: tuple[str, ...] = field(default=())

    def target_s(self, lead: int) -> float:
        """End of the window ``lead`` steps ahead (1 or more): now + lead × step, on the source's clock."""
        return target_s(self.now_s, self.step_s, lead)


def target_s(now_s: float, step_s: float, lead: int) -> float:
    """The moment that a forecast ``lead`` windows ahead reaches to.

    Raises:
        ModelError: It is not after now: the lead is below 1, or the clock is too coarse to tell steps apart.
    """
    target = now_s + lead * step_s
    if lead < 1 or not target > now_s or not math.isclose(target - now_s, lead * step_s, rel_tol=1e-3):
        raise ModelError(f"target {target:g} s is not {lead} steps of {step_s:g} s after {now_s:g} s")
    return target


def forecast(
    history: History,
    settings: ForecastSettings | None = None,
    candidates: Sequence[Forecaster] | None = None,
    mixes: Sequence[Mix] = MIXES,
    progress: Progress | None = None,
) -> Forecast:
    """Forecast every series of a history.

    A candidate that raises, or gives a value that is not finite, has an infinite loss and is named in the notes. A
    series whose best candidate does not beat the last value on held-out windows is forecast by the last value; by
    the damped trend, in both places, with ``short_term`` settings.

    Args:
        history: What was seen.
        settings: Levels, horizon, back-test.
        candidates: Forecasters, the one that serves where nothing is better among them; default: all.
        mixes: Means of their quantiles that compete too; those with other members are left out.
        progress: Told of each fit.
    """
    chosen = settings or ForecastSettings()
    given = tuple(candidates) if candidates is not None else forecasters(chosen)
    by_name = {one.name: one for one in given}
    base = unproved(chosen)
    if base not in by_name:
        raise ModelError(f"{base} is needed among the candidates: it serves where nothing is better")
    target_s(history.now_s, history.step_s, chosen.horizon_steps)
    able = [mix for mix in mixes if set(mix.members) <= by_name.keys()]
    times = fit_times(history.windows, chosen)
    notes: list[str] = []
    test, choice = None, None
    used = tuple(tuple(base for _ in chosen.bands) for _ in history.names)
    if times:
        test = backtest(history, given, able, chosen, times, progress)
        choice = choose(test, chosen.bands, history.windows, times[len(times) // 2], base)
        used = choice.winner
        notes.extend(f"{name} failed in the back-test: {why}" for name, why in sorted(test.failures.items()))
    else:
        notes.append(f"{history.windows} windows are too few for a back-test: {base} is used")
    quantiles, used, clamped = _look_ahead(history, by_name, able, used, chosen, notes)
    if clamped:
        notes.append(f"{clamped} forecast values below 0 were set to 0 (clamped={clamped})")
    return Forecast(
        history.names, chosen.levels, history.now_s, history.step_s, quantiles, chosen.bands, used, clamped, test,
        choice, tuple(notes),
    )  # fmt: skip


def _look_ahead(
    history: History,
    by_name: dict[str, Forecaster],
    mixes: Sequence[Mix],
    used: Winners,
    settings: ForecastSettings,
    notes: list[str],
) -> tuple[FloatArray, Winners, int]:
    """Quantiles from the chosen, who really made them, and how many values were clamped.

    Raises:
        ModelError: Not even the baseline can be forecast.
    """
    base = unproved(settings)
    members = {mix.name: mix.members for mix in mixes}
    needed = {part for row in used for name in row for part in members.get(name, (name,))} | {base}
    made: dict[str, FloatArray] = {}
    negative: dict[str, BoolArray] = {}
    for name in sorted(needed, key=lambda name: name != base):
        try:
            raw = by_name[name].fit(history).predict(history, settings.horizon_steps)[:, 0]
            made[name], _ = clean_quantiles(raw)
            negative[name] = raw < 0
        except Exception as error:  # any fault of a candidate is named, and the baseline serves instead
            if name == base:
                raise
            notes.append(f"{name} failed on the whole history: {type(error).__name__}: {error}")
    quantiles = np.empty_like(made[base])
    clamped, served = 0, []
    for series, row in enumerate(used):
        names = [name if all(part in made for part in members.get(name, (name,))) else base for name in row]
        for name, (first, last) in zip(names, settings.bands, strict=True):
            parts = members.get(name, (name,))
            place = (series, slice(first - 1, last))
            quantiles[place] = np.mean([made[part][place] for part in parts], axis=0)
            clamped += sum(int(negative[part][place].sum()) for part in parts)
        served.append(tuple(names))
    return quantiles, tuple(served), clamped
