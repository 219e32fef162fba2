"""``docs/sites.md`` names every setting, rule and part of the cost as the code has them, and its example runs."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from router.sites.registry import SITE_RULES
from router.sites.settings import FleetMindSettings
from router.sites.types import SiteCost

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "sites.md").read_text()
LINES = PAGE.splitlines()


@pytest.mark.parametrize("field", dataclasses.fields(FleetMindSettings), ids=lambda field: field.name)
def test_every_setting_stands_there_with_its_default_and_range(field: dataclasses.Field[object]) -> None:
    start = f"| `{field.name}` | {field.default:g} | {field.metadata['expected']} |"
    assert sum(line.startswith(start) for line in LINES) == 1
    assert FleetMindSettings.__doc__ is not None
    assert f"\n        {field.name}: " in FleetMindSettings.__doc__


@pytest.mark.parametrize("name", SITE_RULES)
def test_every_rule_stands_there(name: str) -> None:
    assert f"| `{name}` | {SITE_RULES[name].summary} |" in LINES


@pytest.mark.parametrize("part", [one.name for one in dataclasses.fields(SiteCost) if one.name.endswith("_s")])
def test_every_part_of_the_cost_stands_there(part: str) -> None:
    assert part == "total_s" or sum(line.startswith(f"| `{part}` |") for line in LINES) >= 1


def test_the_example_runs() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(example, "docs/sites.md", "exec"), {})  # our own page
