"""``docs/sites-deployment.md`` names every option and setting of an entry router with its default."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from planner.cli.serve_entry import entry
from router.entry.settings import EntrySettings
from router.entry.site_state import Freshness

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "sites-deployment.md").read_text()


def test_every_option_stands_there() -> None:
    for option in entry.params:
        assert f"`{option.opts[0]}" in PAGE, option.opts


def test_every_setting_stands_there_with_its_default() -> None:
    for item in dataclasses.fields(EntrySettings):
        value = item.default
        shown = f"{value:,}" if isinstance(value, int) and value >= 10_000 else f"{value:g}"
        assert f"| `entry.{item.name}` | {shown} |" in PAGE


def test_every_state_of_a_site_stands_there() -> None:
    for state in Freshness:
        assert f"| `{state.value}` |" in PAGE
