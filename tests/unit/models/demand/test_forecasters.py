"""Each forecaster by itself: what it knows, where it stands in time, what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

from data.errors import InputError, ModelError, SettingError
from models.demand.base import lead_grid, spread_leads
from models.demand.boosted import Boosted, BoostedSettings
from models.demand.catalogue import forecasters
from models.demand.history import History, hold_last
from models.demand.point_rules import ExponentialSmoothing, Persistence, SeasonalNaive
from models.demand.residual_quantiles import ResidualForecaster, Scale, conformal_quantiles
from models.demand.settings import ForecastSettings

LEVELS = (0.1, 0.5, 0.9)
DAY_S = 86_400.0
FORECASTERS = {
    one.name: one
    for short_term in (False, True)
    for one in forecasters(ForecastSettings(horizon_steps=10, short_term=short_term))
}


def one(values: list[float], step_s: float = 600.0) -> History:
    return History(("a",), np.array([values]), step_s, len(values) * step_s)


def wavy(series: int = 3, windows: int = 400, seed: int = 0) -> History:
    rng = np.random.default_rng(seed)
    level = rng.uniform(1, 20, (series, 1))
    wave = 1.0 + 0.5 * np.sin(2 * np.pi * np.arange(windows) / 48)
    values = rng.poisson(level * wave * 20) / 20
    return History(tuple(f"s{i}" for i in range(series)), values, 1800.0, windows * 1800.0)


def test_history_refuses_what_cannot_be() -> None:
    for bad in (-1.0, np.inf):
        with pytest.raises(InputError, match="rate of a in window 1"):
            one([1.0, bad])
    with pytest.raises(InputError, match="no window"):
        one([])
    with pytest.raises(InputError, match="share a name"):
        History(("a", "a"), np.ones((2, 2)), 1.0, 2.0)
    with pytest.raises(InputError, match="step above 0"):
        one([1.0], 0.0)


def test_a_prefix_of_a_history_ends_earlier() -> None:
    short = one([1.0, 2.0, 3.0]).until(2)
    assert short.now_s == 1200.0
    assert short.values.tolist() == [[1.0, 2.0]]


def test_unknown_windows_hold_the_last_known_value() -> None:
    nan = np.nan
    assert hold_last(np.array([[nan, 2.0, nan, 0.0, nan]])).tolist() == [[0.0, 2.0, 2.0, 0.0, 0.0]]


def test_leads_between_are_interpolated() -> None:
    grid = lead_grid(144)
    assert grid[:6].tolist() == [1, 2, 3, 4, 5, 6]
    assert grid[-1] == 144
    assert len(grid) < 25
    drawn = spread_leads(grid.astype(float)[None, None, :, None], grid, 144)
    assert np.allclose(drawn.ravel(), np.arange(1, 145))


@pytest.mark.parametrize("step_s", [1.0, 60.0, 180.0, 900.0])
def test_the_season_is_looked_up_one_season_before_the_target(step_s: float) -> None:
    """F110: steps and seconds are not mixed: the forecast of a daily wave has no phase error at any step."""
    per_day = int(DAY_S / step_s)
    at = np.arange(2 * per_day)
    history = History(("a",), 10 + 5 * np.sin(2 * np.pi * at / per_day)[None], step_s, 2 * DAY_S)
    rule = SeasonalNaive()
    for lead in (1, 6, per_day // 3, per_day, per_day + 5):
        found = rule.points(history, lead)[0, -1]
        assert found == pytest.approx(10 + 5 * np.sin(2 * np.pi * (at[-1] + lead) / per_day), abs=1e-6)


def test_persistence_and_smoothing_know_a_constant() -> None:
    history = one([7.0] * 60)
    for rule in (Persistence(), SeasonalNaive(), ExponentialSmoothing()):
        quantiles = ResidualForecaster(rule, LEVELS, 10).fit(history).predict(history, 10)
        assert np.allclose(quantiles, 7.0)


def test_smoothing_forgets_fast_on_a_walk_and_slowly_on_noise() -> None:
    rng = np.random.default_rng(3)
    walk = 100 + np.cumsum(rng.standard_normal(600))
    noise = 100 + 5 * rng.standard_normal(600)
    history = History(("walk", "noise"), np.stack([walk, noise]), 600.0, 360_000.0)
    half_life, _ = ExponentialSmoothing().fit(history, np.array([1])).chosen[1]
    assert half_life[0] <= 1.0
    assert half_life[1] >= 18.0


@pytest.mark.parametrize("scale", list(Scale))
def test_errors_on_the_past_give_the_intervals(scale: Scale) -> None:
    rng = np.random.default_rng(1)
    values = 50 + 4 * rng.standard_normal((1, 3000))
    fitted = ResidualForecaster(SeasonalNaive(600.0), LEVELS, 1, scale).fit(
        History(("a",), values[:, :2000], 600.0, 1_200_000.0)
    )
    later = History(("a",), values, 600.0, 1_800_000.0)
    at = np.arange(1999, 2999)
    quantiles = fitted.predict(later, 1, at)[0, :, 0]
    below = (values[0, 2000:, None] <= quantiles).mean(axis=0)
    assert np.allclose(below, LEVELS, atol=0.05)


def test_few_errors_borrow_and_none_spread() -> None:
    assert np.isnan(conformal_quantiles(np.zeros(0), LEVELS)).all()
    single = one([4.0])
    quantiles = ResidualForecaster(Persistence(), LEVELS, 2).fit(single).predict(single, 2)[0, 0]
    assert (quantiles[:, 0] < 4.0).all()
    assert (quantiles[:, 1] == 4.0).all()
    assert (quantiles[:, 2] > 4.0).all()


def test_the_boosted_model_learns_the_wave_and_draws_are_seeded() -> None:
    history = wavy()
    small = BoostedSettings(trees=60, least_rows=20, sample_rows=6000)
    seen, at = history.until(300), np.arange(299, 390, 7)
    quantiles = Boosted(LEVELS, 8, DAY_S, small).fit(seen).predict(history, 8, at)
    truth = np.stack([history.values[:, at + 1 + lead] for lead in range(8)], axis=2)
    error = np.abs(truth - quantiles[..., 1]).mean()
    assert error < 0.7 * np.abs(truth - history.values[:, at, None]).mean()
    again = Boosted(LEVELS, 8, DAY_S, small).fit(seen).predict(history, 8, at)
    assert (again == quantiles).all()


def test_too_little_to_boost_on_is_an_error() -> None:
    for windows in (3, 40):
        with pytest.raises(ModelError, match="too few"):
            Boosted(LEVELS, 4).fit(one([1.0] * windows))


@pytest.mark.parametrize("name", list(FORECASTERS))
def test_nothing_after_an_origin_is_looked_at(name: str) -> None:
    """No leakage: another future leaves every forecast made before it as it was."""
    history = wavy()
    fitted = FORECASTERS[name].fit(history.until(250))
    other = history.values.copy()
    other[:, 300:] = 1000.0
    changed = History(history.names, other, history.step_s, history.now_s)
    at = np.array([249, 280, 299])
    assert (fitted.predict(history, 10, at) == fitted.predict(changed, 10, at)).all()
    assert np.allclose(fitted.predict(history, 10, at[2:]), fitted.predict(history.until(300), 10))


@pytest.mark.parametrize(
    ("field", "value"),
    [("levels", (0.2, 0.8)), ("levels", (0.5, 0.1)), ("horizon_steps", 0), ("season_s", 0.0), ("fits", 1)],
)
def test_settings_name_the_field(field: str, value: object) -> None:
    with pytest.raises(SettingError, match=field):
        ForecastSettings(**{field: value})  # type: ignore[arg-type]
    with pytest.raises(SettingError, match="trees"):
        BoostedSettings(trees=0)
