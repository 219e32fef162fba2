"""The log reader: windows, the join, bad files, schema versions, retention."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data.errors import LogError
from data.log.join import JOINED
from data.log.partitions import list_partitions, parse_partition_name, partition_name, prune
from data.log.reader import LogReader
from data.log.schema import DECISIONS, SCHEMA_VERSION
from data.log.settings import LogSettings
from data.log.versions import SINCE_VERSION_2, SINCE_VERSION_3, VERSION_KEY, upgrade
from data.log.writer import LogWriter

HOUR = "hour=1970010100"


def write(
    root: Path,
    decisions: Iterable[tuple[int, float]],
    outcomes: Iterable[tuple[int, float]] = (),
    rotate_rows: int = 1000,
    **more: Any,
) -> None:
    settings = LogSettings(rotate_rows=rotate_rows, rotate_age_s=None)
    with LogWriter(root, settings) as log:
        for request_id, time_s in decisions:
            log.decision({"request_id": request_id, "attempt": 0, "decided_s": time_s, **more})
        for request_id, time_s in outcomes:
            row = {"request_id": request_id, "attempt": 0, "finished_s": time_s, "status": 0}
            log.outcome({**row, "output_tokens": request_id * 10, "reason": f"r{request_id % 3}"})


def a_file(root: Path, table: str = "decisions") -> Path:
    return min((root / table).glob("hour=*/part-*.parquet"))


def test_window_joins_each_decision_with_its_outcome_in_time_order(tmp_path: Path) -> None:
    write(tmp_path, [(2, 20.0), (1, 10.0), (3, 30.0), (4, 40.0)], [(3, 33.0), (1, 15.0)])
    reader = LogReader(tmp_path)
    rows = reader.window(0.0, 40.0)
    assert rows.schema.equals(JOINED)
    assert rows.column("request_id").to_pylist() == [1, 2, 3]
    assert rows.column("output_tokens").to_pylist() == [10, None, 30]
    assert rows.column("reason").to_pylist() == ["r1", None, "r0"]
    assert rows.column("status").to_pylist() == [0, None, 0]
    assert (reader.report.decisions, reader.report.without_outcome) == (3, 1)


def test_attempts_of_one_request_are_joined_apart(tmp_path: Path) -> None:
    with LogWriter(tmp_path) as log:
        for attempt, status in ((0, 1), (1, 0)):
            log.decision({"request_id": 7, "attempt": attempt, "decided_s": 1.0 + attempt})
            log.outcome({"request_id": 7, "attempt": attempt, "finished_s": 5.0, "status": status})
    rows = LogReader(tmp_path).window(0.0, 10.0)
    assert list(zip(rows["attempt"].to_pylist(), rows["status"].to_pylist(), strict=True)) == [(0, 1), (1, 0)]


def test_outcome_in_a_later_partition_is_found_within_the_look_ahead(tmp_path: Path) -> None:
    write(tmp_path, [(1, 3590.0), (2, 3595.0)], [(1, 3700.0), (2, 9000.0)])
    near = LogReader(tmp_path, look_ahead_s=600.0)
    assert near.window(3000.0, 3600.0)["finished_s"].to_pylist() == [3700.0, None]
    assert near.report.without_outcome == 1
    far = LogReader(tmp_path, look_ahead_s=6000.0)
    assert far.window(3000.0, 3600.0)["finished_s"].to_pylist() == [3700.0, 9000.0]


def test_a_repeated_outcome_counts_once_and_is_reported(tmp_path: Path) -> None:
    write(tmp_path, [(1, 1.0)], [(1, 9.0), (1, 2.0), (1, 5.0)])
    reader = LogReader(tmp_path)
    assert reader.window(0.0, 10.0)["finished_s"].to_pylist() == [2.0]
    assert reader.report.repeated_outcomes == 2


def test_an_id_that_comes_back_after_a_restart_finds_its_own_outcome(tmp_path: Path) -> None:
    write(tmp_path, [(1, 1.0), (1, 100.0)], [(1, 101.0), (1, 3.0)])
    assert LogReader(tmp_path).window(0.0, 200.0)["finished_s"].to_pylist() == [3.0, 101.0]


def test_window_bounds_are_closed_below_and_open_above(tmp_path: Path) -> None:
    write(tmp_path, [(1, 10.0), (2, 20.0)])
    reader = LogReader(tmp_path)
    assert reader.window(10.0, 20.0)["request_id"].to_pylist() == [1]
    assert len(reader.window(500.0, 600.0)) == 0


@pytest.mark.parametrize("step_s", [61.0, 600.0, 5000.0, 100_000.0])
def test_windows_of_any_width_give_every_decision_once(tmp_path: Path, step_s: float) -> None:
    times = [0.0, 60.9, 61.0, 3599.9, 3600.0, 4999.0, 5000.0, 500_000.5]
    write(tmp_path, list(enumerate(times)), rotate_rows=3)
    windows = [rows["decided_s"].to_pylist() for rows in LogReader(tmp_path).iter_windows(step_s)]
    assert [time_s for window in windows for time_s in window] == times
    assert all(window[0] // step_s == window[-1] // step_s for window in windows)


def test_many_dictionaries_are_joined_across_files(tmp_path: Path) -> None:
    for k in range(5):
        write(tmp_path, [(k, float(k))], [(k, k + 0.5)], tenant=f"t{k}")
    rows = LogReader(tmp_path).window(0.0, 10.0)
    assert rows["tenant"].to_pylist() == [f"t{k}" for k in range(5)]
    assert rows["reason"].to_pylist() == ["r0", "r1", "r2", "r0", "r1"]


def test_corrupt_and_foreign_files_are_skipped_and_named(tmp_path: Path) -> None:
    write(tmp_path, [(1, 1.0), (2, 2.0)])
    hour = tmp_path / "decisions" / HOUR
    whole = a_file(tmp_path).read_bytes()
    (hour / "part-cut-000000.parquet").write_bytes(whole[: len(whole) // 2])
    (hour / "part-empty-000000.parquet").write_bytes(b"")
    pq.write_table(pa.table({"a": [1]}), hour / "part-foreign-000000.parquet")
    stamped = DECISIONS.remove(5).empty_table()
    pq.write_table(stamped, hour / "part-columns-000000.parquet")
    (hour / "notes.txt").write_text("left alone")
    (tmp_path / "decisions" / "hour=tomorrow").mkdir()
    reader = LogReader(tmp_path)
    for _ in range(2):
        assert reader.window(0.0, 10.0)["request_id"].to_pylist() == [1, 2]
    reasons = {Path(name).name.split("-")[1]: reason for name, reason in reader.report.skipped.items()}
    assert sorted(reasons) == ["columns", "cut", "empty", "foreign"]
    assert "no decisions table" in reasons["foreign"]
    assert "columns differ: tenant" in reasons["columns"]


def test_a_window_whose_files_are_all_unreadable_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, [(1, 1.0)], [(1, 2.0)])
    a_file(tmp_path, "outcomes").write_bytes(b"nonsense")
    reader = LogReader(tmp_path)
    with pytest.raises(LogError, match="none of 1 outcomes files"):
        reader.window(0.0, 10.0)
    assert len(reader.window(50_000.0, 60_000.0)) == 0


def test_an_outcome_file_is_not_taken_for_decisions(tmp_path: Path) -> None:
    write(tmp_path, [(1, 1.0)], [(1, 2.0)])
    shutil.copy(a_file(tmp_path, "outcomes"), tmp_path / "decisions" / HOUR / "part-moved-000000.parquet")
    reader = LogReader(tmp_path)
    assert len(reader.window(0.0, 10.0)) == 1
    assert list(reader.report.skipped.values()) == ["no decisions table of a log"]


def restamp(file: Path, version: str, drop: str | None = None) -> None:
    table = pq.ParquetFile(file).read()
    metadata = {**table.schema.metadata, VERSION_KEY: version.encode()}
    if drop:
        table = table.drop_columns([drop])
    pq.write_table(table.replace_schema_metadata(metadata), file)


def test_newer_schema_is_refused_with_its_version(tmp_path: Path) -> None:
    write(tmp_path, [(1, 1.0)])
    restamp(a_file(tmp_path), str(SCHEMA_VERSION + 1))
    with pytest.raises(LogError, match=f"newer than this program .got {SCHEMA_VERSION + 1}"):
        LogReader(tmp_path).window(0.0, 10.0)


def test_older_schema_is_upgraded_by_the_table(tmp_path: Path) -> None:
    def add_degraded(data: pa.Table, table: str) -> pa.Table:
        return data.append_column("degraded", pa.nulls(len(data), pa.string())) if table == "decisions" else data

    def as_it_is(data: pa.Table, _: str) -> pa.Table:
        return data

    write(tmp_path, [(1, 1.0)])
    restamp(a_file(tmp_path), "0", drop="degraded")
    rows = LogReader(tmp_path, upgrades={0: add_degraded, 1: as_it_is, 2: as_it_is}).window(0.0, 10.0)
    assert rows["degraded"].to_pylist() == [None]
    with pytest.raises(LogError, match="no upgrade"):
        LogReader(tmp_path, upgrades={}).window(0.0, 10.0)


def test_a_file_without_version_is_foreign(tmp_path: Path) -> None:
    write(tmp_path, [(1, 1.0)])
    write(tmp_path, [(2, 1.0)])
    restamp(a_file(tmp_path), "one")
    reader = LogReader(tmp_path)
    assert len(reader.window(0.0, 10.0)) == 1
    assert list(reader.report.skipped.values()) == ["no schema version"]


def test_upgrade_of_the_present_version_changes_nothing() -> None:
    table = DECISIONS.empty_table()
    assert upgrade(table, "decisions", SCHEMA_VERSION, "x").equals(table)


def test_a_file_that_vanished_between_listing_and_opening_is_no_fault(tmp_path: Path) -> None:
    write(tmp_path, [(1, 1.0)])
    reader = LogReader(tmp_path)
    file = a_file(tmp_path)
    file.with_name("part-gone-000000.parquet").symlink_to(tmp_path / "pruned")
    assert len(reader.window(0.0, 10.0)) == 1
    file.unlink()
    assert len(reader.window(0.0, 10.0)) == 0
    assert reader.report.skipped == {}


def test_a_folder_without_log_and_bad_arguments_are_refused(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="no log here"):
        LogReader(tmp_path)
    write(tmp_path, [(1, 1.0)])
    with pytest.raises(LogError, match="look-ahead"):
        LogReader(tmp_path, look_ahead_s=-1.0)
    with pytest.raises(LogError, match="step_s"):
        next(LogReader(tmp_path).iter_windows(0.0))


def test_partition_names_go_both_ways() -> None:
    for hour in (0, 1, 23, 24, 500_000):
        assert parse_partition_name(partition_name(hour)) == hour
    assert parse_partition_name("hour=1970019900") is None
    assert parse_partition_name("day=19700101") is None
    with pytest.raises(LogError, match="hour out of range"):
        partition_name(-1)


def hours_left(root: Path, table: str = "decisions") -> list[int]:
    return [partition.hour for partition in list_partitions(root, table)]


def test_prune_by_age_keeps_whole_recent_hours_of_both_tables(tmp_path: Path) -> None:
    write(tmp_path, [(k, k * 3600.0) for k in range(6)], [(k, k * 3600.0) for k in range(6)])
    report = prune(tmp_path, keep_s=2 * 3600.0)
    assert hours_left(tmp_path) == hours_left(tmp_path, "outcomes") == [4, 5]
    assert (report.partitions, report.files) == (8, 8)
    assert report.bytes > 0


def test_prune_by_size_always_keeps_the_newest_hour(tmp_path: Path) -> None:
    write(tmp_path, [(k, k * 3600.0) for k in range(4)])
    one = a_file(tmp_path).stat().st_size
    prune(tmp_path, keep_bytes=2 * one + one // 2)
    assert hours_left(tmp_path) == [2, 3]
    prune(tmp_path, keep_bytes=1)
    assert hours_left(tmp_path) == [3]


def test_prune_removes_what_dead_writers_left_aside(tmp_path: Path) -> None:
    write(tmp_path, [(1, 1.0)])
    fresh = tmp_path / "decisions" / HOUR / ".part-a-000000.parquet.aside"
    stale = tmp_path / "decisions" / HOUR / ".part-b-000000.parquet.aside"
    for file in (fresh, stale):
        file.write_bytes(b"half")
    newest = a_file(tmp_path).stat().st_mtime
    os.utime(stale, (newest - 4000.0, newest - 4000.0))
    assert prune(tmp_path, keep_s=1.0).unfinished == 1
    assert fresh.exists()
    assert not stale.exists()


def test_prune_needs_a_limit_above_zero(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="nothing to prune by"):
        prune(tmp_path)
    with pytest.raises(LogError, match="keep_s"):
        prune(tmp_path, keep_s=0.0)
    assert prune(tmp_path, keep_s=1.0).partitions == 0


def test_an_hour_pruned_while_reading_is_no_fault(tmp_path: Path) -> None:
    write(tmp_path, [(k, k * 3600.0) for k in range(3)])
    reader = LogReader(tmp_path)
    windows = reader.iter_windows(3600.0)
    assert next(windows)["request_id"].to_pylist() == [0]
    shutil.rmtree(tmp_path / "decisions" / "hour=1970010101")
    assert [rows["request_id"].to_pylist() for rows in windows] == [[2]]
    assert reader.report.skipped == {}


@pytest.mark.parametrize(
    ("version", "missing"), [("1", [*SINCE_VERSION_2, SINCE_VERSION_3]), ("2", [SINCE_VERSION_3])]
)
def test_a_log_of_an_older_version_is_read_with_its_missing_columns_unknown(
    tmp_path: Path, version: str, missing: list[str]
) -> None:
    write(tmp_path, [(1, 1.0)], [(1, 2.0)])
    for table in ("decisions", "outcomes"):
        restamp(a_file(tmp_path, table), version)
    file = a_file(tmp_path)
    pq.write_table(pq.ParquetFile(file).read().drop_columns(missing), file)
    reader = LogReader(tmp_path)
    rows = reader.window(0.0, 10.0)
    assert [rows[name].to_pylist() for name in missing] == [[None]] * len(missing)
    assert rows["status"].to_pylist() != [None]
    assert reader.report.skipped == {}


def test_a_file_whose_columns_are_not_those_of_its_version_is_left_out(tmp_path: Path) -> None:
    write(tmp_path, [(1, 1.0)])
    write(tmp_path, [(2, 2.0)])
    restamp(a_file(tmp_path), "2")
    reader = LogReader(tmp_path)
    assert len(reader.window(0.0, 10.0)) == 1
    assert list(reader.report.skipped.values()) == [f"columns differ: {SINCE_VERSION_3}"]
