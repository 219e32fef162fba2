"""TokenFleet's own format, and results of the vLLM benchmark."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data.errors import TraceError
from data.traces import native
from data.traces.batches import TextColumn, empty_batch, join, with_columns
from data.traces.native import write_native
from data.traces.options import TraceOptions
from data.traces.registry import open_trace
from data.types import NO_PARENT, TraceBatch


def batch(rows: int = 5, first: int = 0, **more: Any) -> TraceBatch:
    ids = np.arange(first, first + rows, dtype=np.int64)
    counts = ids % 4
    return TraceBatch(
        request_id=ids,
        arrival_s=ids * 0.5,
        input_tokens=ids + 1,
        output_tokens=ids % 7 + 1,
        output_budget=np.full(rows, 4096, dtype=np.int64),
        hash_offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        hashes=np.arange(int(counts.sum()), dtype=np.uint64) + np.uint64(2**63),
        block_tokens=16,
        **more,
    )


def rows_of(batches: Iterator[TraceBatch] | list[TraceBatch]) -> list[Any]:
    return [row for one in batches for row in one.rows()]


def full(rows: int = 5, first: int = 0) -> TraceBatch:
    ids = np.arange(first, first + rows)
    return batch(
        rows,
        first,
        parent_id=np.where(ids % 2, ids - 1, NO_PARENT).astype(np.int64),
        think_time_s=ids * 0.25,
        model=["m"] * rows,
        tenant=TextColumn((ids % 2).astype(np.int32), ("ä", "b")),
        workload_class=["" if number % 2 else "chat" for number in ids],
        session_id=[f"s{number // 2}" for number in ids],
    )


@pytest.mark.parametrize(
    "made", [batch(), full(), batch(1), batch(4, first=8)], ids=["plain", "full", "one", "later"]
)
def test_what_is_written_reads_back(tmp_path: Path, made: TraceBatch) -> None:
    path = tmp_path / "t.parquet"
    assert write_native([made], path) == len(made)
    reader = open_trace(path)
    assert rows_of(reader.batches()) == rows_of([made])
    assert reader.format.name == "native"
    assert (reader.report.accepted, reader.report.block_tokens) == (len(made), 16)


def test_columns_may_come_and_go_between_batches(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    parts = [batch(3), full(3, first=3), batch(3, first=6)]
    write_native(parts, path)
    assert rows_of(open_trace(path).batches()) == rows_of(parts)


def test_many_row_groups_and_small_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "GROUP_ROWS", 10)
    path = tmp_path / "t.parquet"
    parts = [full(7, first=7 * part) for part in range(9)]
    write_native(parts, path)
    assert pq.ParquetFile(path).num_row_groups == 5
    found = list(open_trace(path, options=TraceOptions(batch_rows=3)).batches())
    assert max(map(len, found)) == 3
    assert rows_of(found) == rows_of(parts)


def test_columns_are_views_on_the_memory_that_was_read(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    write_native([full(100)], path)
    found = next(iter(open_trace(path).batches()))
    for column in (found.request_id, found.arrival_s, found.input_tokens, found.hashes):
        assert not column.flags.owndata
    assert isinstance(found.tenant, TextColumn)


def test_a_trace_without_rows(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    assert write_native([empty_batch()], path) == 0
    reader = open_trace(path)
    assert list(reader.batches()) == []
    assert reader.report.rows == 0


def test_one_block_size_a_file_and_nothing_left_behind(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    with pytest.raises(TraceError, match="one block size"):
        write_native([batch(), with_columns(batch(), block_tokens=64)], path)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(TraceError, match="cannot be written"):
        write_native([batch()], tmp_path / "no" / "t.parquet")


def test_an_interrupted_write_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    write_native([batch(2)], path)

    def interrupted() -> Iterator[TraceBatch]:
        yield batch()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_native(interrupted(), path)
    assert len(rows_of(open_trace(path).batches())) == 2
    assert [one.name for one in tmp_path.iterdir()] == ["t.parquet"]


def test_unsound_rows_are_counted(tmp_path: Path) -> None:
    made = batch(6)
    broken = dataclasses.replace(
        made,
        arrival_s=np.array([0, np.nan, 2, 3, 4, 5.0]),
        input_tokens=np.array([1, 1, 0, 1, 1, 1]),
        output_tokens=np.array([1, 1, 1, 0, 9000, 1]),
    )
    path = tmp_path / "t.parquet"
    write_native([broken], path)
    reader = open_trace(path)
    assert [row.request_id for row in rows_of(reader.batches())] == [0, 5]
    found = {str(reason): tally.lines for reason, tally in reader.report.rejected.items()}
    assert found == {"bad_stamp": [2], "no_input": [3], "zero_output": [4], "bad_field": [5]}
    assert reader.report.rows == reader.report.accepted + reader.report.rejected_rows


def test_rebase_and_max_rows(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    write_native([batch(6, first=10)], path)
    reader = open_trace(path, options=TraceOptions(max_rows=3, rebase=True))
    assert [row.arrival_s for row in rows_of(reader.batches())] == [0, 0.5, 1]
    assert reader.report.rows == 3


def test_foreign_and_damaged_files(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"a": [1]}), path)
    with pytest.raises(TraceError, match="no TokenFleet trace"):
        list(open_trace(path).batches())
    later = native.schema(16).with_metadata({"tokenfleet_table": "trace", "tokenfleet_schema": "2"})
    pq.write_table(native._table(batch()).cast(later), path)
    with pytest.raises(TraceError, match="another schema version"):
        list(open_trace(path).batches())
    write_native([full(2000)], path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(TraceError, match="damaged"):
        list(open_trace(path).batches())


def test_joining_and_text_columns() -> None:
    text = TextColumn(np.array([1, 0, -1], dtype=np.int32), ("a", "b", ""))
    assert list(text) == ["b", "a", ""]
    assert text[1] == "a"
    assert list(text[1:]) == ["a", ""]
    assert list(text.take(np.array([2, 0]))) == ["", "b"]
    joined = join([batch(2), full(2, first=2)])
    assert joined.parent_id is not None
    assert joined.parent_id.tolist() == [NO_PARENT, NO_PARENT, NO_PARENT, 2]
    assert list(joined.session_id) == ["", "", "s1", "s1"]


RESULT = {
    "date": "20260101-000000",
    "model_id": "m",
    "completed": 3,
    "request_throughput": 2.0,
    "input_lens": [10, 20, 30, 40],
    "output_lens": [5, 6, 0, 7],
    "ttfts": [0.1, 0.2, 0.0, 0.1],
    "itls": [[0.01] * 4, [0.01] * 5, [], [0.02] * 6],
    "start_times": [100.5, 100.0, 101.0, 102.0],
    "generated_texts": ["a", "b", "", "d"],
    "errors": ["", "", "Traceback: secret prompt", ""],
}


def read_result(path: Path, result: object) -> tuple[Any, list[Any]]:
    path.write_bytes(orjson.dumps(result))
    reader = open_trace(path)
    return reader, rows_of(reader.batches())


def test_benchmark_results_become_a_trace(tmp_path: Path) -> None:
    reader, rows = read_result(tmp_path / "r.json", RESULT)
    assert reader.format.name == "vllm_bench"
    assert [(row.arrival_s, row.input_tokens, row.output_tokens) for row in rows] == [
        (0, 20, 6),
        (0.5, 10, 5),
        (2, 40, 7),
    ]
    assert rows[0].model == "m"
    failed = reader.report.rejected["failed"]
    assert failed.lines == [3]
    assert "secret" not in failed.detail


def test_benchmark_results_with_bad_entries(tmp_path: Path) -> None:
    bad = {**RESULT, "input_lens": [10, "x", None, 40], "start_times": [100.5, 1, 2, True]}
    reader, rows = read_result(tmp_path / "r.json", bad)
    assert len(rows) == 1
    assert reader.report.rows == 4
    assert reader.report.rejected["bad_field"].lines == [2, 4]


@pytest.mark.parametrize(
    "wrong",
    [{**RESULT, "start_times": None}, {**RESULT, "output_lens": [1]}, {"input_lens": 3, "output_lens": []}],
)
def test_incomplete_benchmark_results(tmp_path: Path, wrong: object) -> None:
    with pytest.raises(TraceError, match=r"lists of|is no result"):
        read_result(tmp_path / "r.json", wrong)


def test_a_long_benchmark_result_is_recognised_by_its_beginning(tmp_path: Path) -> None:
    count = 30_000
    long = {
        "request_throughput": 10.0,
        "input_lens": list(range(1, count + 1)),
        "output_lens": [5] * count,
        "start_times": [row / 10 for row in range(count)],
    }
    reader, rows = read_result(tmp_path / "r.json", long)
    assert len(rows) == count
    assert reader.format.name == "vllm_bench"
