"""The forecasters that compete, by name."""

from __future__ import annotations

from models.demand.backtest import Mix
from models.demand.base import Forecaster
from models.demand.boosted import Boosted, BoostedSettings
from models.demand.point_rules import ExponentialSmoothing, Persistence, SeasonalNaive
from models.demand.residual_quantiles import ResidualForecaster
from models.demand.settings import ForecastSettings

MIXES = (
    Mix("combination", ("boosted", "exponential_smoothing")),
    Mix("combination_naive", ("boosted", "exponential_smoothing", "persistence")),
)
"""Means of quantiles."""


def forecasters(settings: ForecastSettings) -> tuple[Forecaster, ...]:
    """Every forecaster, the last value first."""
    levels, horizon = settings.levels, settings.horizon_steps
    boost = BoostedSettings(seed=settings.seed, threads=settings.threads)
    return (
        ResidualForecaster(Persistence(), levels, horizon),
        ResidualForecaster(SeasonalNaive(settings.season_s), levels, horizon),
        ResidualForecaster(ExponentialSmoothing(settings.season_s), levels, horizon),
        Boosted(levels, horizon, settings.season_s, boost),
    )
