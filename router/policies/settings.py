"""Checked settings of policies: a frozen dataclass for each, built from plain values by name."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, TypeVar

from data.errors import SettingError

Setting = float | int | str | bool


@dataclasses.dataclass(frozen=True, slots=True)
class Checked:
    """Base of all policy settings: each field is checked against the limits it was declared with."""

    def __post_init__(self) -> None:
        for each in dataclasses.fields(self):
            value = getattr(self, each.name)
            if not _fits(each.metadata, value):
                raise SettingError(
                    "setting out of range", field=each.name, value=value, expected=each.metadata["expected"]
                )


@dataclasses.dataclass(frozen=True, slots=True)
class NoSettings(Checked):
    """For rules without anything to set."""


CheckedT = TypeVar("CheckedT", bound=Checked)


def at_least(least: float, default: float) -> Any:
    """A number of at least ``least``."""
    limits = {"least": least, "expected": f"a number, {least:g} or more"}
    return dataclasses.field(default=default, metadata=limits)


def between(least: float, most: float, default: float) -> Any:
    """A number from ``least`` to ``most``."""
    limits = {"least": least, "most": most, "expected": f"a number from {least:g} to {most:g}"}
    return dataclasses.field(default=default, metadata=limits)


def above(floor: float, default: float) -> Any:
    """A number above ``floor``."""
    limits = {"above": floor, "expected": f"a number above {floor:g}"}
    return dataclasses.field(default=default, metadata=limits)


def whole(least: int, default: int) -> Any:
    """A whole number of at least ``least``."""
    limits = {"whole": True, "least": least, "expected": f"a whole number, {least} or more"}
    return dataclasses.field(default=default, metadata=limits)


def one_of(*choices: str) -> Any:
    """One of the words; the first is the default."""
    limits = {"choices": choices, "expected": "one of " + ", ".join(choices)}
    return dataclasses.field(default=choices[0], metadata=limits)


def flag(default: bool) -> Any:
    """True or false."""
    return dataclasses.field(default=default, metadata={"flag": True, "expected": "true or false"})


def settings_from(kind: type[CheckedT], given: Mapping[str, Setting], policy: str) -> CheckedT:
    """Settings of class ``kind`` from plain values, for example of a fleet file or a command line.

    Raises:
        SettingError: For an unknown name, or a value of the wrong type or out of its range.
    """
    names = [each.name for each in dataclasses.fields(kind)]
    for name, value in given.items():
        if name not in names:
            expected = "one of " + ", ".join(names) if names else "no settings"
            raise SettingError("unknown setting", source=policy, field=name, value=value, expected=expected)
    return kind(**given)


def _fits(limits: Mapping[str, Any], value: object) -> bool:
    if limits.get("flag"):
        return isinstance(value, bool)
    if "choices" in limits:
        return value in limits["choices"]
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return False
    if limits.get("whole") and not isinstance(value, int):
        return False
    if "above" in limits:
        return bool(value > limits["above"])
    return bool(limits["least"] <= value <= limits.get("most", float("inf")))
