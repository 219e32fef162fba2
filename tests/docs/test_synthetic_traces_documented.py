"""The page on synthetic traces names every profile, and its examples run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from data.synth.profiles import PROFILES
from planner.cli.main import main
from planner.cli.trace_synth import synth

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "synthetic-traces.md").read_text()
COMMANDS = re.findall(r"^tokenfleet (trace synth .*?[^\\])$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("name", sorted(PROFILES))
def test_every_profile_stands_in_the_page_and_in_the_help(name: str) -> None:
    assert f"| `{name}` |" in PAGE
    assert synth.help is not None
    assert name in synth.help


@pytest.mark.parametrize("command", COMMANDS, ids=range(len(COMMANDS)))
def test_the_commands_run(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    main(shlex.split(command.replace("\\\n", " ")))
    assert len(list(tmp_path.iterdir())) == 1


def test_the_example_runs() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(example, "synthetic-traces.md", "exec"), {})


def test_there_are_three_commands() -> None:
    assert len(COMMANDS) == 3
