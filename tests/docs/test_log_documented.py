"""The page on the log names every column and setting, and its example runs."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from data.log.schema import DECISIONS, OUTCOMES
from data.log.settings import LogSettings
from data.types import Status

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "log.md").read_text()


def columns(table: str) -> list[tuple[str, str]]:
    """Name and unit of every row of a table of the page."""
    text = PAGE.split(f"## Columns of `{table}`")[1].split("\n## ")[0]
    return re.findall(r"^\| `(\w+)` \| ([^|]+) \|", text, re.MULTILINE)


@pytest.mark.parametrize(("table", "schema"), [("decisions", DECISIONS), ("outcomes", OUTCOMES)])
def test_every_column_stands_in_the_page_with_its_unit(table: str, schema: object) -> None:
    documented = columns(table)
    assert [name for name, _ in documented] == schema.names  # type: ignore[attr-defined]
    for name, unit in documented:
        if name.endswith("_s"):
            assert unit == "s"
        if name.endswith("_tokens"):
            assert unit == "tokens"


def test_every_setting_stands_in_the_page_with_its_default() -> None:
    for field in dataclasses.fields(LogSettings):
        line = next(line for line in PAGE.splitlines() if line.startswith(f"| `{field.name}` |"))
        default = line.split("|")[2].strip().replace(",", "")
        assert default == str(field.default).lower().removesuffix(".0")


def test_every_status_code_stands_in_the_page() -> None:
    line = next(line for line in PAGE.splitlines() if line.startswith("| `status` |"))
    for status in Status:
        assert f"{status.value} {status.name.lower().replace('_', ' ')}" in line


def test_the_example_runs() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(example, "log.md", "exec"), {})
