"""Law of the log: everything written is read exactly once, whatever the cut into files, hours and windows."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from data.log.reader import LogReader
from data.log.settings import LogSettings
from data.log.writer import LogWriter

TIMES = st.floats(min_value=0.0, max_value=20_000.0, allow_nan=False)
ROWS = st.lists(st.tuples(TIMES, st.one_of(st.none(), st.floats(min_value=0.0, max_value=3000.0))), max_size=40)


@settings(max_examples=60, deadline=None)
@given(rows=ROWS, rotate_rows=st.integers(1, 20), step_s=st.floats(min_value=50.0, max_value=30_000.0))
def test_everything_written_is_read_exactly_once(
    rows: list[tuple[float, float | None]], rotate_rows: int, step_s: float
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        with LogWriter(root, LogSettings(rotate_rows=rotate_rows, rotate_age_s=None)) as log:
            for request_id, (decided_s, took_s) in enumerate(rows):
                log.decision({"request_id": request_id, "attempt": 0, "decided_s": decided_s})
                if took_s is not None:
                    finished_s = decided_s + took_s
                    log.outcome({"request_id": request_id, "attempt": 0, "finished_s": finished_s, "status": 0})
        reader = LogReader(root)
        read = [row for window in reader.iter_windows(step_s) for row in window.to_pylist()]
    assert [row["decided_s"] for row in read] == sorted(decided_s for decided_s, _ in rows)
    expected = {k: None if took is None else at + took for k, (at, took) in enumerate(rows)}
    assert {row["request_id"]: row["finished_s"] for row in read} == expected
    assert reader.report.decisions == len(rows)
    assert reader.report.without_outcome == sum(took is None for _, took in rows)
