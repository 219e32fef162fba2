"""The rules that serve where demand turns within a few dozen windows."""

from __future__ import annotations

import numpy as np
import pytest

from models.demand.damped_trend import DampedTrend
from models.demand.forecast import forecast
from models.demand.history import History
from models.demand.point_rules import SeasonalNaive
from models.demand.settings import ForecastSettings
from models.demand.smooth_season import SmoothSeason

STEP_S, SEASON_S, LEADS = 10.0, 400.0, np.arange(1, 6)
SETTINGS = ForecastSettings(
    horizon_steps=5, season_s=SEASON_S, near_steps=1, origin_every_steps=1, refit_every_steps=10, fits=2,
    short_term=True,
)  # fmt: skip


def rates(windows: int) -> np.ndarray:
    """Expected requests/s at the middle of each window."""
    return 12.0 + 10.0 * np.sin(2 * np.pi * (np.arange(windows) + 0.5) * STEP_S / SEASON_S)


def seen(values: np.ndarray) -> History:
    return History(("a",), values[None], STEP_S, len(values) * STEP_S)


def counted(windows: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).poisson(rates(windows) * STEP_S) / STEP_S


def test_a_ramp_is_followed_and_a_level_with_noise_is_not_extrapolated() -> None:
    ramp = seen(3.0 + 0.5 * np.arange(40.0))
    assert DampedTrend().fit(ramp, LEADS).points(ramp, 5)[0, -1] == pytest.approx(3.0 + 0.5 * 44, rel=0.01)
    noise = seen(20.0 + np.random.default_rng(4).standard_normal(400))
    ahead = DampedTrend().fit(noise, LEADS).points(noise, 5)[0]
    assert np.abs(ahead[50:] - 20.0).mean() < 0.6


def test_a_trend_never_leads_below_zero() -> None:
    falling = seen(np.maximum(20.0 - np.arange(24.0), 0.0))
    assert (DampedTrend().fit(falling, LEADS).points(falling, 5) >= 0.0).all()


def test_windows_beside_one_season_ago_take_out_the_noise() -> None:
    """Against the expected rate the smoothed season errs less than half as much as the window one season ago."""
    ours, naive = [], []
    for seed in range(5):
        history = seen(counted(120, seed))
        truth = rates(125)[5:]
        ours.append(np.abs(SmoothSeason(SEASON_S).fit(history, LEADS).points(history, 5)[0] - truth)[80:])
        naive.append(np.abs(SeasonalNaive(SEASON_S).points(history, 5)[0] - truth)[80:])
    assert np.mean(ours) < 0.5 * np.mean(naive)


def test_in_the_first_season_the_trend_stands_in() -> None:
    history = seen(counted(30, 1))
    season = SmoothSeason(SEASON_S).fit(history, LEADS).points(history, 5)
    assert (season == DampedTrend().fit(history, LEADS).points(history, 5)).all()


def test_a_season_that_is_only_declared_does_not_serve() -> None:
    """Steps at odd times have no season of 400 s: after four of these the trend or the last value serves still."""
    values = np.full(160, 6.0)
    for start, stop in ((30, 39), (76, 86), (125, 133)):
        values[start:stop] = 24.0
    made = forecast(seen(np.random.default_rng(3).poisson(values * STEP_S) / STEP_S), SETTINGS)
    assert "smooth_season" not in made.used[0]


def test_the_trend_serves_until_the_season_has_proved_itself() -> None:
    early = forecast(seen(counted(20, 2)), SETTINGS)
    assert early.used == (("damped_trend", "damped_trend"),)
    assert any("damped_trend is used" in note for note in early.notes)
    later = forecast(seen(counted(120, 2)), SETTINGS)
    assert later.used[0][1] == "smooth_season"
