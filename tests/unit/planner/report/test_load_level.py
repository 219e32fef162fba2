"""The load search on curves whose answer is known."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.errors import SettingError
from planner.load_level import LoadSearch, load_level


def logistic(knee: float, steepness: float = 4.0):
    """Attainment that falls from 1 to 0 around ``knee`` on the logarithm of the speed."""
    return lambda speed: 1 / (1 + (speed / knee) ** steepness)


@given(target=st.sampled_from([0.95, 0.85, 0.65]), knee=st.floats(0.2, 20.0), steepness=st.floats(2.0, 12.0))
def test_finds_the_speed_of_a_falling_curve(target: float, knee: float, steepness: float) -> None:
    exact = knee * (1 / target - 1) ** (1 / steepness)
    level = load_level(logistic(knee, steepness), LoadSearch(target, tolerance=0.005, max_trials=24))
    assert level.reached
    assert abs(level.attainment - target) <= 0.005
    slope = target * (1 - target) * steepness
    assert abs(math.log(level.speed / exact)) <= 2 * 0.005 / slope


def test_each_speed_is_measured_once_and_trials_are_bounded() -> None:
    asked: list[float] = []

    def step(speed: float) -> float:
        asked.append(speed)
        return 0.9 if speed < 3.3 else 0.2

    level = load_level(step, LoadSearch(0.65, max_trials=9))
    assert len(asked) == len(set(asked)) == 9
    assert not level.reached, "a cliff has no speed with that attainment"
    assert level.trials == tuple((speed, 0.9 if speed < 3.3 else 0.2) for speed in asked)
    assert level.attainment == 0.9, "the nearer side of the cliff"
    assert level.speed == pytest.approx(3.3, rel=0.02)


def test_a_first_trial_on_target_ends_the_search() -> None:
    level = load_level(lambda _: 0.85, LoadSearch(0.85))
    assert len(level.trials) == 1
    assert level.reached


def test_trials_can_run_out_while_still_looking_for_the_other_side() -> None:
    level = load_level(logistic(50.0), LoadSearch(0.65, max_trials=3))
    assert len(level.trials) == 3
    assert not level.reached


@pytest.mark.parametrize(("constant", "words"), [(1.0, "stays above"), (0.1, "stays below")])
def test_out_of_reach_says_on_which_side(constant: float, words: str) -> None:
    with pytest.raises(SettingError, match=words):
        load_level(lambda _: constant, LoadSearch(0.65))


@pytest.mark.parametrize(
    ("field", "settings"),
    [
        ("target", {"target": 1.0}),
        ("target", {"target": 0.0}),
        ("tolerance", {"target": 0.5, "tolerance": 0.0}),
        ("slowest", {"target": 0.5, "slowest": 2.0, "fastest": 1.0}),
        ("start_speed", {"target": 0.5, "start_speed": 100.0}),
        ("max_trials", {"target": 0.5, "max_trials": 1}),
    ],
)
def test_settings_out_of_range(field: str, settings: dict[str, float]) -> None:
    with pytest.raises(SettingError) as caught:
        LoadSearch(**settings)
    assert caught.value.field == field
