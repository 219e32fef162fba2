"""Every command stands in the docs, and every module that the command line names exists."""

from __future__ import annotations

import importlib
from pathlib import Path

import click
import pytest

from planner.cli.main import COMMANDS, cli

ROOT = Path(__file__).resolve().parents[2]
PAGES = "\n".join(page.read_text() for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_command_is_documented_and_loads(name: str) -> None:
    module, attribute = COMMANDS[name].split(":")
    command = getattr(importlib.import_module(module), attribute)
    assert isinstance(command, click.Command)
    assert command.help, "a command says what it does"
    assert f"tokenfleet {name}" in PAGES


def test_no_command_module_is_imported_at_start() -> None:
    assert set(cli.list_commands(click.Context(cli))) == set(COMMANDS)
