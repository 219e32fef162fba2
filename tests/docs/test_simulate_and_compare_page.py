"""Every command and script on the page about simulating and comparing runs as it stands there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from planner.cli.main import main
from planner.sim.settings import SimSettings

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "simulate-and-compare.md").read_text()
COMMANDS = [
    line
    for block in re.findall(r"```sh\n(.*?)```", PAGE, flags=re.DOTALL)
    for line in block.splitlines()
    if line.startswith("tokenfleet ")
]


@pytest.mark.parametrize("line", COMMANDS)
def test_command_runs(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    argv = shlex.split(line)[1:]
    if argv[0] == "compare":
        argv += ["--workers", "1"]
    main(argv)
    for option in ("--html", "--markdown", "--log"):
        if option in argv:
            assert (tmp_path / argv[argv.index(option) + 1]).exists()


def test_script_runs(capsys: pytest.CaptureFixture[str]) -> None:
    scripts = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    assert len(scripts) == 1
    exec(compile(scripts[0], "page", "exec"), {"__name__": "page"})
    assert "Estimate(mean=" in capsys.readouterr().out


def test_every_run_setting_stands_on_the_page() -> None:
    for name in SimSettings.__dataclass_fields__:
        if name not in ("seed", "failures", "site_failures"):
            assert f"`{name}`" in PAGE
