"""Every command stands in the docs, and every module that the command line names exists."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
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


def leaves(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    """Every command that does something, with the words that call it."""
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from leaves(command, (*path, name))
        if not isinstance(command, click.Group) or command.invoke_without_command:
            yield " ".join((*path, name)), command


@pytest.mark.parametrize(("name", "command"), sorted(leaves(cli), key=lambda pair: pair[0]))
def test_every_command_takes_json_and_explains_itself(name: str, command: click.Command) -> None:
    options = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
    assert "--json" in {flag for option in options for flag in option.opts}, f"{name}: the README promises it"
    silent = [option.name for option in options if not option.help]
    assert not silent, f"{name}: options without help"
    assert command.help
