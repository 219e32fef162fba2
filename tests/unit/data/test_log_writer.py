"""The log writer: what it stores, how it rotates, what it refuses, what survives a crash."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from data.errors import LogError, SettingError
from data.log.reader import LogReader
from data.log.schema import DECISIONS, OUTCOMES
from data.log.settings import LogSettings
from data.log.writer import LogWriter


def decision(request_id: int, decided_s: float, **more: Any) -> dict[str, Any]:
    return {
        "request_id": request_id,
        "attempt": 0,
        "decided_s": decided_s,
        "policy": "p2c",
        "tenant": "t0",
        **more,
    }


def outcome(request_id: int, finished_s: float, **more: Any) -> dict[str, Any]:
    return {"request_id": request_id, "attempt": 0, "finished_s": finished_s, "status": 0, **more}


def files(root: Path, table: str = "decisions") -> list[Path]:
    return sorted((root / table).glob("hour=*/*"))


def stored(root: Path, table: str = "decisions") -> list[dict[str, Any]]:
    return [row for file in files(root, table) for row in pq.ParquetFile(file).read().to_pylist()]


class HandClock:
    """A clock that the test moves."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_every_column_comes_back_with_its_type(tmp_path: Path) -> None:
    full = {f.name: "x" if "dictionary" in str(f.type) else 7 for f in DECISIONS}
    with LogWriter(tmp_path) as log:
        log.decision(full)
        log.outcome({f.name: "x" if "dictionary" in str(f.type) else 7 for f in OUTCOMES})
    assert stored(tmp_path) == [full]
    for table, schema in (("decisions", DECISIONS), ("outcomes", OUTCOMES)):
        read = pq.ParquetFile(files(tmp_path, table)[0]).schema_arrow
        assert read.equals(schema, check_metadata=True)


def test_missing_and_nan_values_are_null_never_zero(tmp_path: Path) -> None:
    with LogWriter(tmp_path) as log:
        log.decision(decision(1, 5.0, predicted_ttft_p50_s=math.nan))
    row = stored(tmp_path)[0]
    assert row["predicted_ttft_p50_s"] is None
    assert row["hit_tokens"] is None


def test_rows_are_copied_so_the_caller_may_reuse_its_dictionary(tmp_path: Path) -> None:
    row = decision(1, 5.0)
    with LogWriter(tmp_path) as log:
        log.decision(row)
        row["request_id"] = 2
        log.decision(row)
    assert [r["request_id"] for r in stored(tmp_path)] == [1, 2]


def test_unknown_column_is_refused_by_name_and_its_value_goes_nowhere_f150(tmp_path: Path) -> None:
    """F150: no prompt text or credential gets into the log or into an error."""
    full = dict.fromkeys(DECISIONS.names, 1)
    del full["site"]
    with LogWriter(tmp_path) as log:
        with pytest.raises(LogError, match="prompt") as error:
            log.decision(decision(1, 5.0, prompt="CANARY-7f3a"))
        assert "CANARY" not in str(error.value)
        with pytest.raises(LogError, match="siet"):
            log.decision({**full, "siet": 1})
    assert files(tmp_path) == []


def test_rows_that_do_not_fit_are_counted_by_reason_and_the_others_kept(tmp_path: Path) -> None:
    log = LogWriter(tmp_path)
    log.decision(decision(1, 5.0))
    log.decision(decision(2, 5.0, attempt=70_000))
    log.decision(decision(3, 5.0, tenant=12))
    log.decision({"request_id": None, "attempt": 0, "decided_s": 5.0})
    for time_s in (math.inf, -1.0, 1e15, math.nan, None, "noon"):
        log.decision(decision(4, time_s))  # type: ignore[arg-type]
    log.decision(decision(5, 6.0))
    log.close()
    assert [r["request_id"] for r in stored(tmp_path)] == [1, 5]
    assert log.report.rejected == {
        "attempt: value does not fit": 1,
        "tenant: value does not fit": 1,
        "request_id: value does not fit": 1,
        "decided_s: not a time from 1970 to 9999": 3,
        "decided_s: value does not fit": 3,
    }
    assert log.report.rows == 2


def test_a_buffer_without_any_good_row_makes_no_file(tmp_path: Path) -> None:
    with LogWriter(tmp_path) as log:
        log.decision(decision(1, 5.0, attempt="first"))
    assert files(tmp_path) == []
    assert log.report.rejected == {"attempt: value does not fit": 1}


def test_rotation_by_rows_writes_whole_files_at_once(tmp_path: Path) -> None:
    with LogWriter(tmp_path, LogSettings(rotate_rows=10, rotate_age_s=None), writer_id="sim") as log:
        for k in range(25):
            log.decision(decision(k, float(k)))
        assert [file.name for file in files(tmp_path)] == ["part-sim-000000.parquet", "part-sim-000001.parquet"]
    assert [pq.ParquetFile(file).metadata.num_rows for file in files(tmp_path)] == [10, 10, 5]


def test_rotation_by_age_of_the_oldest_row(tmp_path: Path) -> None:
    clock = HandClock()
    with LogWriter(tmp_path, LogSettings(rotate_age_s=30.0), clock=clock) as log:
        log.decision(decision(1, 0.0))
        clock.now_s = 29.0
        log.decision(decision(2, 0.0))
        log.rotate_if_due()
        assert files(tmp_path) == []
        clock.now_s = 30.0
        log.decision(decision(3, 0.0))
        assert len(files(tmp_path)) == 1
        log.outcome(outcome(1, 1.0))
        clock.now_s = 60.0
        log.rotate_if_due()
        assert len(files(tmp_path, "outcomes")) == 1


def test_rows_go_to_the_hour_of_their_own_clock(tmp_path: Path) -> None:
    with LogWriter(tmp_path) as log:
        for time_s in (0.0, 3599.999, 3600.0, 1_900_000_000.0):
            log.decision(decision(1, time_s))
    names = [file.parent.name for file in files(tmp_path)]
    assert names == ["hour=1970010100", "hour=1970010101", "hour=2030031717"]


def test_same_rows_give_the_same_bytes(tmp_path: Path) -> None:
    for root in (tmp_path / "a", tmp_path / "b"):
        with LogWriter(root, LogSettings(rotate_rows=7, rotate_age_s=None), writer_id="sim") as log:
            for k in range(40):
                log.decision(decision(k, k * 300.0, tenant=f"t{k % 3}"))
    pairs = list(zip(files(tmp_path / "a"), files(tmp_path / "b"), strict=True))
    assert pairs
    assert all(a.name == b.name and a.read_bytes() == b.read_bytes() for a, b in pairs)


def test_a_writer_with_a_fixed_id_never_overwrites_an_earlier_run(tmp_path: Path) -> None:
    for k in range(3):
        with LogWriter(tmp_path, writer_id="sim") as log:
            log.decision(decision(k, 1.0))
    assert [r["request_id"] for r in stored(tmp_path)] == [0, 1, 2]


def test_failed_write_keeps_the_rows_then_drops_and_counts_beyond_the_bound(tmp_path: Path) -> None:
    hour = tmp_path / "decisions" / "hour=1970010100"
    log = LogWriter(tmp_path, LogSettings(rotate_rows=5, max_buffered_rows=8, rotate_age_s=None))
    hour.write_text("a file where the folder should be")
    for k in range(12):
        log.decision(decision(k, 1.0))
    assert log.report.write_errors > 0
    assert log.report.dropped == 4
    with pytest.raises(LogError, match="cannot write the log"):
        log.flush()
    hour.unlink()
    log.close()
    assert [r["request_id"] for r in stored(tmp_path)] == list(range(8))


def test_closing_with_an_unwritable_folder_says_so_and_counts(tmp_path: Path) -> None:
    log = LogWriter(tmp_path)
    (tmp_path / "decisions" / "hour=1970010100").write_text("")
    log.decision(decision(1, 1.0))
    with pytest.raises(LogError):
        log.close()
    assert log.report.dropped == 1


def test_a_write_that_fails_half_way_leaves_nothing_behind(tmp_path: Path) -> None:
    log = LogWriter(tmp_path)
    (tmp_path / "decisions" / "hour=1970010101").write_text("")
    log.decision(decision(1, 1.0))
    log.decision(decision(2, 3601.0))
    with pytest.raises(LogError):
        log.flush()
    assert list((tmp_path / "decisions" / "hour=1970010100").iterdir()) == []
    (tmp_path / "decisions" / "hour=1970010101").unlink()
    log.close()
    assert [r["request_id"] for r in stored(tmp_path)] == [1, 2]


def test_closed_writer_refuses_rows_and_closes_twice(tmp_path: Path) -> None:
    log = LogWriter(tmp_path)
    log.close()
    log.close()
    with pytest.raises(LogError, match="closed"):
        log.outcome(outcome(1, 1.0))


def test_root_and_id_are_checked(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LogError, match="cannot make"):
        LogWriter(tmp_path / "file")
    with pytest.raises(LogError, match="writer id"):
        LogWriter(tmp_path / "log", writer_id="../evil")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("rotate_rows", 0),
        ("rotate_age_s", 0.0),
        ("max_buffered_rows", 10),
        ("compression", "lzma"),
    ],
)
def test_settings_name_the_field_and_its_range(field: str, value: Any) -> None:
    with pytest.raises(SettingError, match=field):
        LogSettings(**{field: value})


def test_the_background_thread_wakes_when_the_oldest_row_is_due(tmp_path: Path) -> None:
    """A row that came just after the thread had looked does not wait for twice the age."""
    clock = HandClock()
    with LogWriter(tmp_path, LogSettings(rotate_age_s=30.0), clock=clock) as log:
        clock.now_s = 100.0
        assert log._until_aged_s() == 30.0
        log.decision(decision(1, 1.0))
        clock.now_s = 119.0
        log.outcome(outcome(1, 2.0))
        assert log._until_aged_s() == 11.0
        clock.now_s = 145.0
        assert log._until_aged_s() == 0.0
        log.rotate_if_due()
        assert log._until_aged_s() == 4.0


def test_background_writer_stores_everything(tmp_path: Path) -> None:
    settings = LogSettings(rotate_rows=50, rotate_age_s=0.01, background=True)
    with LogWriter(tmp_path, settings) as log:
        for k in range(1_000):
            log.decision(decision(k, float(k)))
            log.outcome(outcome(k, float(k)))
    assert sorted(r["request_id"] for r in stored(tmp_path)) == list(range(1_000))
    assert len(stored(tmp_path, "outcomes")) == 1_000
    assert log.report.rows == 2_000


WRITER = """
    import sys
    from pathlib import Path
    from data.log.settings import LogSettings
    from data.log.writer import LogWriter
    log = LogWriter(Path(sys.argv[1]), LogSettings(rotate_rows=2000, rotate_age_s=None))
    for k in range(int(sys.argv[2])):
        log.decision({"request_id": k, "attempt": 0, "decided_s": k * 0.5, "endpoint": f"e{k % 50}"})
        log.outcome({"request_id": k, "attempt": 0, "finished_s": k * 0.5 + 1, "status": 0})
        if k == 4000:
            print("ready", flush=True)
    sys.stdin.read()
"""


def start_writer(root: Path, rows: int) -> subprocess.Popen[str]:
    """A process that writes ``rows`` requests, then waits to be killed; returns once its first files stand."""
    command = [sys.executable, "-c", textwrap.dedent(WRITER), str(root), str(rows)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_killed_writer_leaves_only_whole_files(tmp_path: Path) -> None:
    for _ in range(3):
        process = start_writer(tmp_path, 1_000_000)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    whole = [file for file in files(tmp_path) if file.name.startswith("part-")]
    assert len(whole) >= 6
    for file in whole:
        assert pq.ParquetFile(file).read().num_rows > 0
    reader = LogReader(tmp_path)
    assert sum(len(rows) for rows in reader.iter_windows(600.0)) > 3 * 2_000
    assert reader.report.skipped == {}


def test_reader_beside_running_writers_sees_only_whole_rows(tmp_path: Path) -> None:
    writers = [start_writer(tmp_path, 40_000) for _ in range(2)]
    try:
        counts = []
        for _ in range(5):
            reader = LogReader(tmp_path)
            ids = [r for rows in reader.iter_windows(1800.0) for r in rows.column("request_id").to_pylist()]
            assert reader.report.skipped == {}
            assert max(Counter(ids).values()) <= len(writers)
            assert len(reader.window(0.0, 600.0)) == len(writers) * 1_200
            counts.append(len(ids))
    finally:
        for process in writers:
            os.kill(process.pid, signal.SIGKILL)
            process.communicate()
    assert counts == sorted(counts)
    assert counts[0] > 0
