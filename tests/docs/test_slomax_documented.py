"""``docs/slomax.md`` names every setting, reason and flow control as the code has them, and its example runs."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from router.slomax.refusals import STATUS
from router.slomax.registry import FLOWS
from router.slomax.settings import SloMaxSettings

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "slomax.md").read_text()
LINES = PAGE.splitlines()


def shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


@pytest.mark.parametrize("field", dataclasses.fields(SloMaxSettings), ids=lambda field: field.name)
def test_every_setting_stands_there_with_its_default_and_range(field: dataclasses.Field[object]) -> None:
    start = f"| `{field.name}` | {shown(field.default)} | {field.metadata['expected']} |"
    assert sum(line.startswith(start) for line in LINES) == 1


def test_every_setting_says_what_it_is() -> None:
    assert SloMaxSettings.__doc__ is not None
    for field in dataclasses.fields(SloMaxSettings):
        assert f"\n        {field.name}: " in SloMaxSettings.__doc__


@pytest.mark.parametrize(("reason", "status"), STATUS.items(), ids=lambda one: str(one))
def test_every_reason_stands_there_with_its_status(reason: str, status: int) -> None:
    assert sum(line.startswith(f"| `{reason}` | {status} |") for line in LINES) == 1


@pytest.mark.parametrize("name", FLOWS)
def test_every_flow_control_stands_there(name: str) -> None:
    assert f"| `{name}` | {FLOWS[name].summary} |" in LINES


def test_the_example_runs() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(example, "docs/slomax.md", "exec"), {})  # our own page
