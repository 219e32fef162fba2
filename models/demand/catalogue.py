"""The forecasters that compete, by name."""

from __future__ import annotations

from models.demand.backtest import Mix
from models.demand.base import Forecaster
from models.demand.boosted import Boosted, BoostedSettings
from models.demand.damped_trend import DampedTrend
from models.demand.point_rules import ExponentialSmoothing, Persistence, SeasonalNaive
from models.demand.residual_quantiles import ResidualForecaster
from models.demand.selection import BASELINE
from models.demand.settings import ForecastSettings
from models.demand.smooth_season import SmoothSeason

MIXES = (
    Mix("combination", ("boosted", "exponential_smoothing")),
    Mix("combination_naive", ("boosted", "exponential_smoothing", "persistence")),
)
"""Means of quantiles."""


def forecasters(settings: ForecastSettings) -> tuple[Forecaster, ...]:
    """Every forecaster for these settings, the one that serves where nothing has proved to be better first."""
    levels, horizon = settings.levels, settings.horizon_steps
    if settings.short_term:
        rules = (DampedTrend(), Persistence(), SmoothSeason(settings.season_s))
        return tuple(ResidualForecaster(rule, levels, horizon) for rule in rules)
    boost = BoostedSettings(seed=settings.seed, threads=settings.threads)
    return (
        ResidualForecaster(Persistence(), levels, horizon),
        ResidualForecaster(SeasonalNaive(settings.season_s), levels, horizon),
        ResidualForecaster(ExponentialSmoothing(settings.season_s), levels, horizon),
        Boosted(levels, horizon, settings.season_s, boost),
    )


def unproved(settings: ForecastSettings) -> str:
    """Name of the forecaster that serves where nothing has proved to be better."""
    return DampedTrend().name if settings.short_term else BASELINE
