"""Work in a process of its own: answers, errors, deadlines, crashes, and the end of the parent."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from data.errors import SettingError
from planner.apart import run_apart
from planner.priority import LOW_NICENESS
from planner.work_pool import WorkError

ROOT = Path(__file__).resolve().parents[2]


def who(base: int) -> tuple[int, int, int]:
    return base + 1, os.getpid(), os.getpriority(os.PRIO_PROCESS, 0)


def wrong() -> None:
    raise SettingError("out of range", field="x", value=5, expected="1 to 4")


def gone() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def no_answer() -> object:
    return lambda: None


def for_ever(note: str = "") -> None:
    if note:
        Path(note).write_text(str(os.getpid()))
    threading.Event().wait()


def test_the_answer_comes_from_another_process_at_low_priority() -> None:
    answer, pid, niceness = run_apart(who, 4)
    assert answer == 5
    assert pid != os.getpid()
    assert niceness >= LOW_NICENESS


def test_errors_come_back_whole() -> None:
    with pytest.raises(SettingError, match=r"x: out of range \(got 5\); expected 1 to 4") as caught:
        run_apart(wrong)
    assert caught.value.field == "x"


def test_what_cannot_be_passed_on_is_an_error() -> None:
    with pytest.raises(WorkError, match="cannot be passed on"):
        run_apart(no_answer)


def test_a_process_that_dies_is_told() -> None:
    with pytest.raises(WorkError, match="exit code -9"):
        run_apart(gone)


def test_a_deadline_holds() -> None:
    began = time.monotonic()
    with pytest.raises(WorkError, match=r"not done after 0\.5 s"):
        run_apart(for_ever, deadline_s=0.5)
    assert time.monotonic() - began < 20.0


def test_it_stops_when_it_is_told_to() -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(WorkError, match="told to stop"):
        run_apart(for_ever, stop=stop)


def test_the_process_ends_with_its_parent_however_that_ends(tmp_path: Path) -> None:
    """A planner that is killed leaves no step behind that goes on for it."""
    note = tmp_path / "note"
    code = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_apart import for_ever
from planner.apart import run_apart
if __name__ == "__main__":
    run_apart(for_ever, {str(note)!r})
"""
    script = tmp_path / "parent.py"
    script.write_text(code)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    parent = subprocess.Popen([sys.executable, str(script)], env=environment)
    until = time.monotonic() + 60.0
    while not (note.exists() and note.read_text()) and time.monotonic() < until:
        select.select([], [], [], 0.05)
    child = int(note.read_text())
    parent.kill()
    parent.wait()
    while time.monotonic() < until and Path(f"/proc/{child}").exists():
        select.select([], [], [], 0.05)
    state = Path(f"/proc/{child}/stat")
    assert not state.exists() or state.read_text().rsplit(")", 1)[1].split()[0] == "Z"
