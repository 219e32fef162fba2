"""The competition: failures named, the last value where nothing is better, clean quantiles, right times."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from data.errors import ModelError
from data.types import FloatArray, IntArray
from models.demand.backtest import Mix, backtest, fit_times
from models.demand.base import last_origin
from models.demand.clean import clean_quantiles
from models.demand.forecast import forecast, target_s
from models.demand.history import History
from models.demand.loss import pinball
from models.demand.point_rules import ExponentialSmoothing, Persistence, SeasonalNaive
from models.demand.residual_quantiles import ResidualForecaster
from models.demand.selection import choose
from models.demand.settings import ForecastSettings

LEVELS = (0.2, 0.5, 0.8)
SHORT = ForecastSettings(levels=LEVELS, horizon_steps=4, near_steps=2, refit_every_steps=20, season_s=6000.0)
LAST = ResidualForecaster(Persistence(), LEVELS, 4)
SEASON = ResidualForecaster(SeasonalNaive(6000.0), LEVELS, 4)


@dataclass(frozen=True)
class Constant:
    """Always the same value; ``None`` raises."""

    name: str
    value: float | None

    def fit(self, history: History) -> Constant:
        if self.value is None:
            raise RuntimeError("no luck")
        return self

    def predict(self, history: History, horizon: int, origins: IntArray | None = None) -> FloatArray:
        shape = (len(history.names), len(last_origin(history, origins)), horizon, len(LEVELS))
        return np.full(shape, self.value, dtype=np.float64)


def wave(windows: int = 120) -> History:
    values = 10 + 5 * np.sin(2 * np.pi * np.arange(windows) / 10) + np.arange(windows) % 3 * 0.01
    return History(("a",), values[None], 600.0, windows * 600.0)


def test_a_raw_trend_below_zero_is_clamped_and_counted() -> None:
    """F109: the used forecast is 0 and the report says clamped."""
    history = History(("a",), np.array([[100.0, 80, 60, 40, 20, 10, 0, 0]]), 60.0, 480.0)
    made = forecast(history, ForecastSettings(levels=(0.5,), horizon_steps=1), [OneLevel("persistence", -12.5)])
    assert made.quantiles.tolist() == [[[0.0]]]
    assert made.clamped == 1
    assert any("clamped=1" in note for note in made.notes)


@dataclass(frozen=True)
class OneLevel(Constant):
    """The same with a single level."""

    def predict(self, history: History, horizon: int, origins: IntArray | None = None) -> FloatArray:
        return super().predict(history, horizon, origins)[..., :1]


@pytest.mark.parametrize("value", [None, np.nan, np.inf])
def test_a_forecaster_that_fails_loses_without_end_and_is_named(value: float | None) -> None:
    """F109: an exception or a value that is not finite never scores like the baseline."""
    made = forecast(
        wave(), SHORT, [LAST, SEASON, Constant("broken", value)], [Mix("mixed", ("broken", "persistence"))]
    )
    assert made.test is not None
    for name in ("broken", "mixed"):
        assert np.isinf(made.test.losses[made.test.names.index(name)]).all()
        assert any(note.startswith(f"{name} failed") for note in made.notes)
    assert made.used == (("seasonal_naive", "seasonal_naive"),)


def test_who_does_not_beat_the_last_value_on_held_out_windows_does_not_serve() -> None:
    """F109: best on the part that is chosen on is not enough."""
    walk = 60.0 + np.cumsum(np.random.default_rng(2).standard_normal(120))
    values = np.where(np.arange(120) < 80, wave().values[0], walk)
    made = forecast(History(("a",), values[None], 600.0, 72_000.0), SHORT, [LAST, SEASON])
    assert made.choice is not None
    assert made.choice.loss[1, 0, 0] < made.choice.loss[0, 0, 0]
    assert made.choice.held_out[1, 0, 0] > made.choice.held_out[0, 0, 0]
    assert made.used[0][0] == "persistence"
    assert made.choice.refused >= 1


def test_a_candidate_that_fails_only_at_the_end_is_replaced_by_the_last_value() -> None:
    @dataclass(frozen=True)
    class Late(Constant):
        def fit(self, history: History) -> Constant:
            if history.windows == 120:
                raise ModelError("worn out")
            return SEASON.fit(history)  # type: ignore[return-value]

    made = forecast(wave(), SHORT, [LAST, Late("late", 0.0)])
    assert made.used == (("persistence", "persistence"),)
    assert any("late failed on the whole history: ModelError: worn out" in note for note in made.notes)


def test_the_last_value_must_compete() -> None:
    with pytest.raises(ModelError, match="persistence is needed"):
        forecast(wave(), SHORT, [SEASON])


@pytest.mark.parametrize("step_s", [1.0, 60.0, 180.0, 900.0])
def test_targets_lie_after_the_last_observation(step_s: float) -> None:
    """F110: the target is now plus the horizon, and a clock too coarse to tell is refused."""
    history = History(("a",), np.ones((1, 60)), step_s, 1.7e9)
    made = forecast(history, ForecastSettings(levels=LEVELS, horizon_steps=5, season_s=20 * step_s))
    assert [made.target_s(lead) for lead in (1, 5)] == [1.7e9 + step_s, 1.7e9 + 5 * step_s]
    assert made.target_s(1) > history.now_s
    with pytest.raises(ModelError, match="not 0 steps"):
        made.target_s(0)
    with pytest.raises(ModelError, match="after"):
        target_s(1e18, step_s / 100.0, 1)


def test_a_daily_wave_is_forecast_in_phase() -> None:
    """F110: with 180 s steps the phase error of the whole chain is at most one step."""
    day, windows = 480, 480 * 4
    truth = 10 + 5 * np.sin(2 * np.pi * np.arange(windows + day) / day)
    history = History(("a",), truth[None, :windows], 180.0, windows * 180.0)
    settings = ForecastSettings(horizon_steps=day, near_steps=20, origin_every_steps=60, refit_every_steps=day)
    rules = (Persistence(), SeasonalNaive(), ExponentialSmoothing())
    made = forecast(history, settings, [ResidualForecaster(rule, settings.levels, day) for rule in rules])
    median = made.quantiles[0, :, made.levels.index(0.5)]
    errors = [np.abs(median - truth[windows + shift : windows + day + shift][:day][: len(median)]).mean()
              if shift <= 0 else np.abs(median[:-shift] - truth[windows + shift : windows + day]).mean()
              for shift in range(-5, 6)]  # fmt: skip
    assert abs(int(np.argmin(errors)) - 5) <= 1
    assert made.used[0] != ("persistence", "persistence")


def test_same_seed_same_forecast() -> None:
    rng = np.random.default_rng(5)
    history = History(("a", "b"), rng.poisson(20, (2, 300)) / 1.0, 600.0, 180_000.0)
    settings = ForecastSettings(horizon_steps=8, refit_every_steps=40, season_s=43_200.0)
    first, second = (forecast(history, settings) for _ in range(2))
    assert (first.quantiles == second.quantiles).all()
    assert first.used == second.used


def test_a_target_that_is_not_known_yet_does_not_count() -> None:
    test = backtest(wave(), [LAST, SEASON], [], SHORT, [60, 80, 100])
    early = choose(test, SHORT.bands, 100, 80)
    spoiled = test.losses.copy()
    later = test.origins[:, None] + 1 + np.arange(4)[None, :] >= 100
    spoiled[:, :, later] = 1e9
    again = choose(type(test)(test.names, test.series, test.origins, test.fitted, spoiled, test.observed),
                   SHORT.bands, 100, 80)  # fmt: skip
    assert early.winner == again.winner
    assert np.array_equal(early.loss, again.loss)
    assert np.array_equal(early.held_out, again.held_out)


def test_fit_times_leave_room() -> None:
    assert fit_times(120, SHORT) == (40, 60, 80, 100)
    assert fit_times(10, SHORT) == ()
    assert len(fit_times(60, SHORT)) == 4


def test_losses() -> None:
    quantiles = np.array([[1.0, 2.0, 4.0]])
    assert pinball(np.array([2.0]), quantiles, LEVELS)[0] == pytest.approx(2 * (0.2 * 1 + 0 + 0.2 * 2) / 3)


def test_cleaning_orders_and_refuses() -> None:
    clean, clamped = clean_quantiles(np.array([[3.0, -1.0, 2.0]]))
    assert clean.tolist() == [[0.0, 2.0, 3.0]]
    assert clamped == 1
    with pytest.raises(ModelError, match="not finite"):
        clean_quantiles(np.array([[np.nan]]))
