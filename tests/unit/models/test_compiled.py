"""The compiled forest against LightGBM as the oracle."""

from __future__ import annotations

import lightgbm
import numpy as np
import pytest

from data.errors import ModelError
from models.forest_text import forest_from_text

PARAMS = {"num_leaves": 31, "max_depth": 6, "verbosity": -1, "num_threads": 1, "min_data_in_leaf": 5}


def booster(rows: np.ndarray, target: np.ndarray, trees: int = 40, **params: object) -> lightgbm.Booster:
    return lightgbm.train(PARAMS | params, lightgbm.Dataset(rows, target), trees)


@pytest.fixture(scope="module")
def data() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(3)
    rows = random.normal(size=(3000, 6))
    rows[:, 4] = random.integers(0, 5, 3000)  # an ordinal code
    return rows, rows[:, 0] * 3 + rows[:, 1] ** 2 + rows[:, 4] + random.normal(size=3000)


@pytest.mark.parametrize("rows", [1, 7, 8, 9, 64, 3000])
def test_bit_equal_to_booster(data: tuple[np.ndarray, np.ndarray], rows: int) -> None:
    models = [booster(*data), booster(*data, trees=3, objective="quantile", alpha=0.9)]
    sums = forest_from_text([model.model_to_string() for model in models]).predict(data[0][:rows])
    for got, model in zip(sums, models, strict=True):
        np.testing.assert_array_equal(got, model.predict(data[0][:rows], num_threads=1))


def test_bit_equal_with_missing_values(data: tuple[np.ndarray, np.ndarray]) -> None:
    """Both kinds: a feature that was missing in training, and one that is missing only now."""
    rows, target = data
    holes = rows.copy()
    holes[::3, 0] = np.nan
    model = booster(holes, target)
    asked = holes.copy()
    asked[::5, 1:3] = np.nan
    asked[::7] = np.nan
    got = forest_from_text([model.model_to_string()]).predict(asked)[0]
    np.testing.assert_array_equal(got, model.predict(asked, num_threads=1))


def test_constant_target_and_infinite_values(data: tuple[np.ndarray, np.ndarray]) -> None:
    rows, target = data
    constant, model = booster(rows, np.full(len(rows), 2.5)), booster(rows, target)
    asked = rows[:20].copy()
    asked[::2, 0], asked[1::2, 1] = np.inf, -np.inf
    sums = forest_from_text([constant.model_to_string(), model.model_to_string()]).predict(asked)
    np.testing.assert_array_equal(sums[0], constant.predict(asked))
    np.testing.assert_array_equal(sums[1], model.predict(asked))


def test_unsupported_models_are_refused(data: tuple[np.ndarray, np.ndarray]) -> None:
    rows, target = data
    categorical = lightgbm.train(PARAMS, lightgbm.Dataset(rows, target, categorical_feature=[4]), 20)
    for model, problem in (
        (categorical, "categorical"),
        (booster(rows, target, zero_as_missing=True), "zero as missing"),
        (booster(rows, target, linear_tree=True), "linear"),
    ):
        with pytest.raises(ModelError, match=problem) as caught:
            forest_from_text([model.model_to_string()])
        assert caught.value.reason == "format"


def test_damaged_texts_are_refused(data: tuple[np.ndarray, np.ndarray]) -> None:
    text = booster(*data, trees=2).model_to_string()
    lines = text.splitlines()
    left = next(line for line in lines if line.startswith("left_child="))
    for damaged in (
        "",
        "hello",
        text[: len(text) // 2],
        text.replace("leaf_value=", "leaf_valve="),
        text.replace(left, left[: left.rindex(" ")]),
        text.replace(left, left.replace("left_child=", "left_child=9999 ", 1).rsplit(" ", 1)[0]),
        text.replace("threshold=", "threshold=x ", 1),
    ):
        with pytest.raises(ModelError):
            forest_from_text([damaged])


def test_too_narrow_matrix_is_refused(data: tuple[np.ndarray, np.ndarray]) -> None:
    forest = forest_from_text([booster(*data, trees=2).model_to_string()])
    with pytest.raises(ModelError, match="6 features"):
        forest.predict(data[0][:, :5].copy())


def test_f074_walker_does_not_import_lightgbm() -> None:
    """The hot path stays free of LightGBM and its thread team."""
    import subprocess
    import sys

    code = "import sys, models.predictor, models.store, router.tokenpilot; sys.exit('lightgbm' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
