"""The page on training tells the settings and limits that the code has, and its example runs."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from data.log.windows import LEAST_WINDOW_S, WINDOW_ROWS
from models.training import MOST_HELD_ROWS
from planner.priority import IDLE_NICENESS, LOW_NICENESS, PRIORITIES
from planner.work_pool import WorkSettings

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "training.md").read_text()


@pytest.mark.parametrize("field", dataclasses.fields(WorkSettings), ids=lambda field: field.name)
def test_settings_of_work_stand_with_their_defaults(field: dataclasses.Field[object]) -> None:
    default = "none" if field.default is None else field.default
    assert f"| `{field.name}` | {default} |" in PAGE


def test_limits_are_told() -> None:
    for text in (
        f"{WINDOW_ROWS:,} decisions",
        f"{LEAST_WINDOW_S:g} s",
        f"{MOST_HELD_ROWS:,} rows",
        f"niceness {LOW_NICENESS} ",
        f"niceness {IDLE_NICENESS} ",
        *(f"`{priority}`" for priority in PRIORITIES if priority != "low"),
    ):
        assert text in PAGE, text


def test_the_example_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, "example", "exec"), {})
