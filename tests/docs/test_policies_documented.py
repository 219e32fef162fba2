"""``docs/policies.md`` says about every policy what the registry says; the router's examples run."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from data.types import RefusalReason
from router import filters
from router.policies.base import PolicyEntry
from router.registry import POLICIES

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "policies.md").read_text()
LINES = PAGE.splitlines()
EACH = pytest.mark.parametrize("entry", POLICIES.values(), ids=list(POLICIES))


def shown(value: object) -> str:
    if isinstance(value, bool | str):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


@EACH
def test_the_rule_stands_in_the_table(entry: PolicyEntry) -> None:
    assert f"| `{entry.name}` | {entry.summary} | {entry.sees} | {entry.source} |" in LINES


@EACH
def test_tie_breaking_stands_in_the_table(entry: PolicyEntry) -> None:
    note = f": {entry.ties_note}" if entry.ties_note else ""
    assert f"| `{entry.name}` | {entry.ties.replace('_', ' ')}{note} |" in LINES


@EACH
def test_settings_and_their_grid_stand_in_the_table(entry: PolicyEntry) -> None:
    for each in dataclasses.fields(entry.settings):
        tried = ", ".join(shown(value) for value in entry.grid.get(each.name, ())) or "–"
        expected = each.metadata["expected"]
        row = f"| `{entry.name}` | `{each.name}` | {shown(each.default)} | {expected} | {tried} |"
        assert row in LINES


def test_nothing_else_is_documented() -> None:
    named = {line.split("`")[1] for line in LINES if line.startswith("| `")}
    assert named == set(POLICIES)
    rows = [line for line in LINES if re.match(r"\| `\w+` \| `\w+` \|", line)]
    assert len(rows) == sum(len(dataclasses.fields(entry.settings)) for entry in POLICIES.values())


@pytest.mark.parametrize("page", ["policies.md", "endpoint-state.md"])
def test_the_examples_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks: list[str] = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    assert blocks
    run: Callable[..., None] = exec
    names: dict[str, object] = {}
    for block in blocks:
        run(block, names)


def test_every_refusal_of_the_filters_is_explained() -> None:
    source = inspect.getsource(filters)
    page = (DOCS / "endpoint-state.md").read_text()
    used = [reason for reason in RefusalReason if f"RefusalReason.{reason.name}" in source]
    assert len(used) == 7
    assert all(f"`{reason.value}`" in page for reason in used)
