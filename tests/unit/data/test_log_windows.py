"""Windows of a log: every decision in exactly one, none much too large."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from data.errors import LogError
from data.log.reader import LogReader
from data.log.settings import LogSettings
from data.log.windows import log_windows
from data.log.writer import LogWriter

TIMES = np.concatenate([np.linspace(100, 3500, 400), np.linspace(3700, 7100, 50), [20_000.0]])


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A busy hour, a quiet one, three without decisions, one decision."""
    with LogWriter(tmp_path / "log", LogSettings(rotate_rows=64, rotate_age_s=None), writer_id="w") as writer:
        for number, time_s in enumerate(TIMES.tolist()):
            writer.decision({"request_id": number, "attempt": 0, "decided_s": time_s})
            writer.outcome({"request_id": number, "attempt": 0, "finished_s": time_s + 1.0, "status": 0})
    return tmp_path / "log"


def counts(log: Path, windows: list[tuple[float, float]]) -> list[int]:
    reader = LogReader(log)
    return [len(reader.window(*window)) for window in windows]


def test_windows_hold_every_decision_once(log: Path) -> None:
    windows = log_windows(log, most_rows=100, least_s=60.0)
    found = counts(log, windows)
    assert sum(found) == len(TIMES)
    assert max(found) <= 110
    assert len(windows) == 6, "four for the busy hour, one for each of the others"
    assert all(first < last for first, last in windows)
    assert all(before[1] <= after[0] for before, after in pairwise(windows))


def test_windows_keep_to_the_bounds_that_are_asked_for(log: Path) -> None:
    windows = log_windows(log, 1000.0, 5000.0, most_rows=100, least_s=60.0)
    assert windows[0][0] == 1000.0
    assert windows[-1][1] == 5000.0
    assert sum(counts(log, windows)) == int(((TIMES >= 1000) & (TIMES < 5000)).sum())
    assert log_windows(log, 8000.0, 9000.0) == []


def test_windows_are_never_shorter_than_allowed(log: Path) -> None:
    windows = log_windows(log, most_rows=1, least_s=1000.0)
    assert [last - first for first, last in windows if last <= 3600.0] == pytest.approx(
        [1233.3, 1133.3, 1233.3], abs=1
    )


def test_a_file_that_cannot_be_read_stays_in_a_window(log: Path) -> None:
    """The reader names it; leaving its hour out would hide it."""
    for file in (log / "decisions").glob("hour=1970010105/*"):
        file.write_bytes(b"PAR1")
    assert len(log_windows(log)) == 3


def test_an_empty_folder_has_no_windows(tmp_path: Path) -> None:
    assert log_windows(tmp_path) == []
    with pytest.raises(LogError, match="most_rows"):
        log_windows(tmp_path, most_rows=0)
    with pytest.raises(LogError, match="least_s"):
        log_windows(tmp_path, least_s=0.0)
