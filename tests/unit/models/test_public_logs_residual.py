"""The residual with a log's own columns: it learns, repeats itself, and covers what it promises."""

import numpy as np
import pytest

from data.errors import ModelError, SettingError
from models.public_logs.residual import LogBoostSettings, conformal_factor, predict_held_out

SMALL = LogBoostSettings(trees=60, bags=2)


@pytest.fixture(scope="module")
def toy():
    random = np.random.default_rng(3)
    columns = random.uniform(0, 1, (1500, 3))
    prior = 0.1 + columns[:, 0]
    seconds = prior * np.exp(np.sin(4 * columns[:, 1]) + random.normal(0, 0.1, 1500))
    return columns, seconds, prior, np.arange(1500) < 1000, np.arange(1000, 1500)


def test_the_median_beats_the_prior_on_rows_left_out(toy):
    columns, seconds, prior, train, wanted = toy
    found = predict_held_out(columns, seconds, prior, train, wanted, 0.5, SMALL)
    assert np.median(np.abs(found / seconds[wanted] - 1)) < 0.12
    assert np.median(np.abs(prior[wanted] / seconds[wanted] - 1)) > 0.3


def test_held_out_times_and_unknown_rows_play_no_part_and_the_seed_decides(toy):
    columns, seconds, prior, train, wanted = toy
    base = predict_held_out(columns, seconds, prior, train, wanted, 0.5, SMALL)
    hidden = np.where(train, seconds, np.nan)
    assert np.array_equal(predict_held_out(columns, hidden, prior, train, wanted, 0.5, SMALL), base)
    other = LogBoostSettings(trees=60, bags=2, seed=5)
    assert not np.array_equal(predict_held_out(columns, seconds, prior, train, wanted, 0.5, other), base)
    with pytest.raises(ModelError, match="no time"):
        predict_held_out(columns, np.full(1500, np.nan), prior, train, wanted, 0.5, SMALL)


def test_the_conformal_factor_makes_a_quantile_cover_its_share(toy):
    columns, seconds, prior, train, wanted = toy
    held, test = wanted[:250], wanted[250:]
    upper = predict_held_out(columns, seconds, prior, train, wanted, 0.9, SMALL)
    factor = conformal_factor(seconds[held], upper[:250], 0.9)
    assert 0.84 <= np.mean(seconds[test] <= factor * upper[250:]) <= 0.96
    assert conformal_factor(seconds[held], 0.5 * upper[:250], 0.9) == pytest.approx(2 * factor)
    with pytest.raises(ModelError, match="calibrate"):
        conformal_factor(np.array([np.nan]), np.ones(1), 0.9)


@pytest.mark.parametrize("bad", [{"trees": 0}, {"bags": 0}, {"learning_rate": 0.0}, {"leaves": 1}])
def test_settings_out_of_range_are_named(bad):
    with pytest.raises(SettingError, match=next(iter(bad))):
        LogBoostSettings(**bad)
