"""Laws of every forecast: finite, at least 0, never crossing, whatever was seen."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from data.types import FloatArray
from models.demand.boosted import Boosted, BoostedSettings
from models.demand.clean import clean_quantiles
from models.demand.damped_trend import DampedTrend
from models.demand.forecast import forecast
from models.demand.history import History
from models.demand.point_rules import ExponentialSmoothing, Persistence, SeasonalNaive
from models.demand.residual_quantiles import ResidualForecaster, Scale
from models.demand.settings import ForecastSettings
from models.demand.smooth_season import SmoothSeason

LEVELS = (0.1, 0.5, 0.95)
RATES = st.one_of(st.just(0.0), st.just(float("nan")), st.floats(0, 1e9), st.sampled_from([1e-12, 3.0]))
SHORT = ForecastSettings(levels=LEVELS, horizon_steps=9, season_s=1200.0, refit_every_steps=3, fits=2)
RULES = (
    Persistence(),
    SeasonalNaive(1200.0),
    ExponentialSmoothing(1200.0),
    DampedTrend(),
    SmoothSeason(1200.0),
)


def histories() -> st.SearchStrategy[FloatArray]:
    shapes = st.tuples(st.integers(1, 3), st.integers(1, 40))
    return shapes.flatmap(lambda shape: arrays(np.float64, shape, elements=RATES))


def history(values: FloatArray) -> History:
    return History(tuple(map(str, range(len(values)))), values, 60.0, 60.0 * values.shape[1])


def check(quantiles: FloatArray) -> None:
    assert np.isfinite(quantiles).all()
    assert (quantiles >= 0).all()
    assert (np.diff(quantiles, axis=-1) >= 0).all()


@settings(max_examples=40, deadline=None)
@given(histories())
def test_any_history_gives_a_forecast_that_can_be_planned_with(values: FloatArray) -> None:
    """F109: finite, >= 0 and ordered before anything multiplies it."""
    candidates = [ResidualForecaster(rule, LEVELS, 9) for rule in RULES]
    made = forecast(history(values), SHORT, candidates)
    check(made.quantiles)
    assert made.quantiles.shape == (len(values), 9, 3)
    assert made.test is None or not made.test.failures


@settings(max_examples=25, deadline=None)
@given(histories(), st.sampled_from(list(Scale)))
def test_rules_stay_finite_by_themselves(values: FloatArray, scale: Scale) -> None:
    for rule in RULES:
        seen = history(values)
        check(clean_quantiles(ResidualForecaster(rule, LEVELS, 9, scale).fit(seen).predict(seen, 9))[0])


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 60), st.integers(0, 59))
def test_no_traffic_is_forecast_as_none(windows: int, gap: int) -> None:
    """F098: a counter that did not move is a demand of 0, also beside an unknown window."""
    values = np.zeros((2, windows))
    values[:, gap % windows] = np.nan
    assert (
        forecast(history(values), SHORT, [ResidualForecaster(r, LEVELS, 9) for r in RULES]).quantiles == 0
    ).all()


@pytest.mark.parametrize("kind", ["constant", "zero", "gaps", "spikes", "tiny", "huge"])
def test_the_boosted_model_keeps_the_laws(kind: str) -> None:
    rng = np.random.default_rng(0)
    values = {
        "constant": np.full((2, 400), 3.0),
        "zero": np.zeros((2, 400)),
        "gaps": np.where(rng.random((2, 400)) < 0.4, np.nan, rng.random((2, 400))),
        "spikes": np.where(rng.random((2, 400)) < 0.02, 1e6, 0.0),
        "tiny": rng.random((2, 400)) * 1e-9,
        "huge": rng.random((2, 400)) * 1e12,
    }[kind]
    seen = history(values)
    model = Boosted(LEVELS, 9, 1200.0, BoostedSettings(trees=15, sample_rows=3000))
    quantiles, _ = clean_quantiles(model.fit(seen).predict(seen, 9))
    check(quantiles)
    if kind == "zero":
        assert (quantiles == 0).all()
