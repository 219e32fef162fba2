"""Forests as leaf masks: the same sums to the last bit as the walk and as LightGBM."""

from __future__ import annotations

import lightgbm
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.errors import ModelError
from models.compiled import Forest
from models.forest_text import forest_from_text
from models.leaf_masks import LeafMasks, leaf_masks, quickest

ODD = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-35, 1e300)


def fitted(leaves: int, trees: int = 30, seed: int = 0, constant: bool = False) -> list[lightgbm.Booster]:
    """Two boosters over six columns, one of which was missing at times."""
    random = np.random.default_rng(seed)
    rows = random.normal(size=(2000, 6))
    rows[::3, 2] = np.nan
    rows[:, 4] = random.integers(0, 5, 2000)
    target = np.nan_to_num(rows).sum(axis=1) ** 2 if not constant else np.full(2000, 1.5)
    params = {"num_leaves": leaves, "verbosity": -1, "num_threads": 1, "min_data_in_leaf": 3}
    return [lightgbm.train(params, lightgbm.Dataset(rows, target + shift), trees) for shift in (0.0, 1.0)]


def masks_of(forest: Forest) -> LeafMasks:
    masks = leaf_masks(forest)
    assert masks is not None
    return masks


@pytest.mark.parametrize("leaves", [2, 15, 16, 17, 31, 33, 64])
def test_bit_equal_to_the_walk_and_to_lightgbm(leaves: int) -> None:
    boosters = fitted(leaves)
    forest = forest_from_text([booster.model_to_string() for booster in boosters])
    masks = masks_of(forest)
    asked = np.random.default_rng(1).normal(size=(101, 6))
    asked[::5, 0], asked[::7, 2], asked[::11] = np.nan, np.nan, np.nan
    np.testing.assert_array_equal(masks.predict(asked), forest.predict(asked))
    for sums, booster in zip(masks.predict(asked), boosters, strict=True):
        np.testing.assert_array_equal(sums, booster.predict(asked, num_threads=1))


FOREST = forest_from_text([booster.model_to_string() for booster in fitted(15)])
MASKS = masks_of(FOREST)
EDGES = [float(t) for t in np.unique(FOREST.threshold[np.isfinite(FOREST.threshold)])]
VALUES = st.sampled_from(
    [*EDGES, *np.nextafter(EDGES, np.inf).tolist(), *np.nextafter(EDGES, -np.inf).tolist(), *ODD]
)


@settings(deadline=None)
@given(st.lists(st.lists(VALUES, min_size=6, max_size=6), min_size=0, max_size=70))
def test_equal_on_and_beside_every_threshold(rows: list[list[float]]) -> None:
    asked = np.array(rows, dtype=np.float64).reshape(len(rows), 6)
    np.testing.assert_array_equal(MASKS.predict(asked), FOREST.predict(asked))


def test_what_masks_cannot_hold_is_walked() -> None:
    wide = forest_from_text([booster.model_to_string() for booster in fitted(90, trees=5)])
    assert leaf_masks(wide) is None
    assert quickest(wide) is wide
    assert leaf_masks(FOREST, most_bytes=1000) is None
    assert isinstance(quickest(FOREST), LeafMasks)


def chain_of(tests: int) -> Forest:
    """One tree that goes deeper with each test: node ``2i`` tests, node ``2i + 1`` is the leaf on its left."""
    nodes = np.arange(2 * tests + 1, dtype=np.int32)
    inner = (nodes % 2 == 0) & (nodes < 2 * tests)
    return Forest(
        feature=np.zeros(len(nodes), dtype=np.int32),
        threshold=np.where(inner, nodes / 2.0, np.inf),
        nan_left=np.zeros(len(nodes), dtype=np.bool_),
        left=np.where(inner, nodes + 1, nodes).astype(np.int32),
        right=np.where(inner, nodes + 2, nodes).astype(np.int32),
        value=np.where(inner, 0.0, nodes.astype(float)),
        root=np.zeros(1, dtype=np.int32),
        depth=np.array([tests], dtype=np.int32),
        output=np.zeros(1, dtype=np.int32),
        outputs=1,
        features=1,
    )


def test_trees_as_deep_as_they_are_wide() -> None:
    asked = np.append(np.linspace(-2.0, 70.0, 200), np.nan)[:, None]
    np.testing.assert_array_equal(masks_of(chain_of(63)).predict(asked), chain_of(63).predict(asked))
    for tests in (64, 5000):
        assert leaf_masks(chain_of(tests)) is None


def test_trees_without_any_test() -> None:
    boosters = fitted(15, trees=3, constant=True)
    forest = forest_from_text([booster.model_to_string() for booster in boosters])
    asked = np.zeros((3, 6))
    np.testing.assert_array_equal(masks_of(forest).predict(asked), forest.predict(asked))


def test_too_narrow_a_matrix_is_refused() -> None:
    with pytest.raises(ModelError, match="6 features"):
        MASKS.predict(np.zeros((2, 5)))
