"""One forecaster for all arms: fitted anew each day on what went before, asked in every window.

It is the mean of the quantiles of the boosted forests and of exponential smoothing, which serves most series of
these tables in ``bench_forecast``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.fleet_contest.demand import DAY, HOUR, STEP_S, ContestDemand
from data.types import FloatArray
from models.demand.catalogue import forecasters
from models.demand.clean import clean_quantiles
from models.demand.history import History
from models.demand.settings import ForecastSettings
from planner.demand import LEVELS

MEMBERS = ("boosted", "exponential_smoothing")


def rolling_forecasts(demand: ContestDemand, days: Sequence[int], seed: int = 0) -> FloatArray:
    """Quantiles of tokens/s, shape (windows, commodities, leads, levels); NaN outside of ``days``.

    Row ``w`` is made from windows before ``w`` alone: its lead ``k`` (from 0) is for window ``w + k``.
    """
    settings = ForecastSettings(levels=LEVELS, horizon_steps=HOUR, seed=seed)
    able = [one for one in forecasters(settings) if one.name in MEMBERS]
    tokens = demand.tokens_per_s
    windows = tokens.shape[1]
    whole = History(tuple("/".join(key) for key in demand.keys), tokens, STEP_S, windows * STEP_S)
    found = np.full((windows, len(demand.keys), HOUR, len(LEVELS)), np.nan)
    for start in (day * DAY for day in days):
        stop = min(start + DAY, windows)
        past, known = whole.until(start), whole.until(stop)
        origins = np.arange(start - 1, stop - 1)
        made = [one.fit(past).predict(known, HOUR, origins) for one in able]
        clean = [clean_quantiles(one.reshape(-1, *one.shape[2:]))[0].reshape(one.shape) for one in made]
        found[start:stop] = np.mean(clean, axis=0).transpose(1, 0, 2, 3)
    return found
