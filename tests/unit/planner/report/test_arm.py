"""Arms as they are written on a command line."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.errors import SettingError
from planner.arm import Arm, parse_arm, parse_settings
from router.registry import POLICIES


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_every_policy_is_an_arm(name: str) -> None:
    arm = parse_arm(name)
    assert (arm.name, arm.policy, dict(arm.settings)) == (name, name, {})
    assert pickle.loads(pickle.dumps(arm)) == arm


def test_settings_are_typed() -> None:
    pairs = ["a=3", "b=0.5", "c=true", "d=False", "e=hello", "f=1e3", "g="]
    got = parse_settings(pairs)
    assert got == {"a": 3, "b": 0.5, "c": True, "d": False, "e": "hello", "f": 1000.0, "g": ""}
    assert [type(got[key]) for key in "abc"] == [int, float, bool]


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_survive(value: float) -> None:
    assert parse_settings([f"x={value!r}"]) == {"x": value}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("no_such_policy", "unknown policy"),
        ("round_robin:speed=3", "unknown setting"),
        ("round_robin:speed", "expected key=value"),
        ("round_robin:a=1:a=2", "given twice"),
        ("", "unknown policy"),
    ],
)
def test_wrong_arms_say_what_is_right(text: str, words: str) -> None:
    with pytest.raises(SettingError, match=words):
        parse_arm(text)


def test_the_name_of_an_arm_tells_its_settings() -> None:
    entry = next(entry for entry in POLICIES.values() if entry.grid)
    key, values = next(iter(entry.grid.items()))
    arm = parse_arm(f"{entry.name}:{key}={values[0]}", predictor_path="store", plan_path="plan.json")
    assert arm == Arm(f"{entry.name}:{key}={values[0]}", entry.name, {key: values[0]}, "store", "plan.json")
