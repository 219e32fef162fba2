"""The interval maths against scipy, against known examples, and what common random numbers buy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from planner.intervals import estimate, paired_difference, paired_relative_difference, t_quantile

FINITE = st.floats(min_value=-1e6, max_value=1e6, allow_nan=False)


@given(st.lists(FINITE, min_size=5, max_size=40).filter(lambda values: np.std(values) > 1e-3))
def test_interval_agrees_with_scipy(values: list[float]) -> None:
    figure = estimate(values)
    low, high = stats.t.interval(0.95, len(values) - 1, loc=np.mean(values), scale=stats.sem(values))
    assert figure.low == pytest.approx(low, rel=1e-9, abs=1e-6)
    assert figure.high == pytest.approx(high, rel=1e-9, abs=1e-6)


def test_textbook_example() -> None:
    """Ten replications of a simulated queue: mean 1.34, interval 1.34 ± 0.24 at 90 %, wider at 95 %."""
    values = [1.20, 1.50, 1.68, 1.89, 0.95, 1.49, 1.58, 1.55, 0.50, 1.09]
    figure = estimate(values)
    assert figure.mean == pytest.approx(1.343)
    assert t_quantile(9, 0.90) * stats.sem(values) == pytest.approx(0.24, abs=0.005)
    assert figure.half_width == pytest.approx(2.262 * stats.sem(values), rel=1e-3)


def test_t_quantile_against_the_printed_table() -> None:
    assert [round(t_quantile(df), 3) for df in (1, 4, 9, 29)] == [12.706, 2.776, 2.262, 2.045]


@given(st.lists(st.tuples(FINITE, FINITE), min_size=5, max_size=20))
def test_paired_difference_is_the_one_sample_test_on_differences(pairs: list[tuple[float, float]]) -> None:
    ours, base = zip(*pairs, strict=True)
    figure = paired_difference(ours, base)
    assert figure.mean == pytest.approx(np.mean(np.subtract(ours, base)), rel=1e-9, abs=1e-6)
    backward = paired_difference(base, ours)
    assert backward.mean == pytest.approx(-figure.mean, abs=1e-9)
    assert backward.half_width == pytest.approx(figure.half_width, rel=1e-9, abs=1e-9)


def test_paired_test_and_interval_agree() -> None:
    rng = np.random.default_rng(5)
    for shift in np.linspace(0, 3, 31):
        ours, base = rng.normal(shift, 1, 8), rng.normal(0, 1, 8)
        p_value = float(stats.ttest_rel(ours, base).pvalue)
        assert paired_difference(ours, base).excludes_zero == (p_value < 0.05)


def test_common_random_numbers_narrow_the_interval() -> None:
    """Load varies by seed ten times as much as policies differ; pairing takes the load out."""
    rng = np.random.default_rng(1)
    load = rng.normal(1000, 100, 8)
    base, ours = load * 0.70 + rng.normal(0, 2, 8), load * 0.75 + rng.normal(0, 2, 8)
    paired = paired_difference(ours, base)
    own_load = rng.normal(1000, 100, 8) * 0.75 + rng.normal(0, 2, 8)
    unpaired = paired_difference(own_load, base)
    assert paired.half_width is not None
    assert unpaired.half_width is not None
    assert paired.half_width < unpaired.half_width / 5
    assert paired.excludes_zero


def test_coverage_of_the_interval_is_near_95_percent() -> None:
    rng = np.random.default_rng(11)
    figures = [estimate(rng.normal(3.0, 2.0, 5)) for _ in range(4000)]
    held = sum(figure.low <= 3.0 <= figure.high for figure in figures) / len(figures)
    assert held == pytest.approx(0.95, abs=0.012)


@pytest.mark.parametrize("count", [0, 1, 4])
def test_too_few_seeds_give_no_interval(count: int) -> None:
    figure = estimate([1.0] * count)
    assert figure.half_width is None
    assert figure.low is None
    assert not figure.excludes_zero
    assert figure.count == count
    assert math.isnan(figure.mean) == (count == 0)


def test_figures_that_were_not_measured_are_left_out_and_counted() -> None:
    figure = estimate([1.0, math.nan, 2.0, 3.0, 4.0, 5.0, math.inf])
    assert (figure.mean, figure.count) == (3.0, 5)


def test_relative_difference_leaves_out_seeds_without_a_base() -> None:
    figure = paired_relative_difference([11.0, 5.0, 24.0], [10.0, 0.0, 20.0], min_count=2)
    assert figure.count == 2
    assert figure.mean == pytest.approx(0.15)


def test_pairs_must_match() -> None:
    with pytest.raises(ValueError, match=r"shorter|longer"):
        paired_difference([1.0, 2.0], [1.0])
