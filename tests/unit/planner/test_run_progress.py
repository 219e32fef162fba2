"""Progress away from a terminal: a first line at once, then no more than one in a while; nothing when quiet."""

from __future__ import annotations

import pytest

from planner.cli import run_progress
from planner.cli.run_progress import RunProgress


def test_lines_are_few_and_go_to_stderr(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([0.0, *(0.1 * step for step in range(1, 100)), 30.0])
    monkeypatch.setattr(run_progress.time, "monotonic", lambda: next(clock))
    with RunProgress("comparing", 100) as progress:
        for step in range(100):
            progress.advance(f"step {step}")
    seen = capsys.readouterr()
    assert seen.out == ""
    assert seen.err.splitlines() == [
        "comparing: 0 of 100",
        "comparing: 50 of 100: step 49",
        "comparing: 100 of 100: step 99",
    ]


def test_quiet_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with RunProgress("comparing", 1, quiet=True) as progress:
        progress.at(1, "done")
    assert capsys.readouterr() == ("", "")
