"""What every trace format must do, whatever it reads."""

from __future__ import annotations

import gzip
import importlib
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from data.errors import TraceError
from data.traces import source
from data.traces.native import write_native
from data.traces.options import TraceOptions
from data.traces.registry import FORMATS, TraceReader, open_trace, trace_format
from data.traces.transform import stream_keys
from data.types import NO_PARENT, Request, TraceBatch

COUNT = 60


def _jsonl(rows: list[dict[str, Any]]) -> bytes:
    return b"".join(orjson.dumps(row) + b"\n" for row in rows)


def mooncake() -> bytes:
    rows = [
        {"timestamp": 700 * row, "input_length": 600, "output_length": 5, "hash_ids": [0, row]}
        for row in range(1, COUNT + 1)
    ]
    return _jsonl(rows)


def azure() -> bytes:
    rows = "".join(f"2023-11-16 18:{row:02d}:01.1234567,{row + 1},{row + 2}\r\n" for row in range(COUNT))
    return ("TIMESTAMP,ContextTokens,GeneratedTokens\r\n" + rows).encode()


def burstgpt() -> bytes:
    header = "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    rows = "".join(f"{7 * row},s{row % 9},2,GPT-4,{row + 1},5,9,API log\n" for row in range(COUNT))
    return (header + rows).encode()


def bailian() -> bytes:
    rows = [
        {
            "chat_id": row,
            "parent_chat_id": row - 7 if row > 7 else -1,
            "timestamp": 1.5 * row,
            "input_length": 40,
            "output_length": 5,
            "type": "text",
            "turn": 1,
            "hash_ids": [1, 2, row + 5],
        }
        for row in range(COUNT)
    ]
    return _jsonl(rows)


def agentic() -> bytes:
    rows = []
    for number in range(COUNT // 3):
        calls = [
            {"t": 10.0 * turn, "type": "n", "in": 130, "out": 5, "hash_ids": [1, turn + 2], "api_time": 2.0}
            for turn in range(3)
        ]
        head = {
            "id": f"s{number}",
            "block_size": 64,
            "hash_id_scope": "local",
            "tool_tokens": 64,
            "system_tokens": 0,
        }
        rows.append({**head, "requests": calls})
    return _jsonl(rows)


def vllm_bench() -> bytes:
    return orjson.dumps(
        {
            "model_id": "m",
            "input_lens": list(range(1, COUNT + 1)),
            "output_lens": [5] * COUNT,
            "start_times": [100 + row / 3 for row in range(COUNT)],
            "errors": [""] * COUNT,
        }
    )


def servegen() -> bytes:
    return b"client,start_s,rate_per_s,cv,dist,param1,param2\n3,0,0.05,1,Gamma,1,1\n3,600,0.05,1,Weibull,1,1\n"


def native(folder: Path) -> bytes:
    source = folder / "source.jsonl"
    source.write_bytes(mooncake())
    path = folder / "made.parquet"
    write_native(open_trace(source).batches(), path)
    return path.read_bytes()


SAMPLES: dict[str, Callable[[], bytes]] = {
    "agentic": agentic,
    "azure": azure,
    "bailian": bailian,
    "burstgpt": burstgpt,
    "mooncake": mooncake,
    "servegen": servegen,
    "vllm_bench": vllm_bench,
}


@pytest.fixture(params=sorted(FORMATS))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def sample(name: str, tmp_path: Path) -> Path:
    path = tmp_path / "trace"
    path.write_bytes(native(tmp_path) if name == "native" else SAMPLES[name]())
    return path


@pytest.fixture
def options(tmp_path: Path) -> dict[str, Any]:
    lengths = tmp_path / "lengths.json"
    lengths.write_text('{"3": {"0": {"input_tokens": "{9: 1.0}", "output_tokens": "{5: 1.0}"}}}')
    return {"lengths": lengths}


def drawn(path: Path, options: dict[str, Any], **more: Any) -> tuple[TraceReader, list[TraceBatch]]:
    reader = open_trace(path, options=TraceOptions(**options, **more))
    return reader, list(reader.batches())


def rows_of(batches: list[TraceBatch]) -> list[Request]:
    return [row for batch in batches for row in batch.rows()]


def test_a_format_describes_itself(name: str) -> None:
    found = trace_format(name)
    assert found.name == name
    assert found.description
    assert importlib.import_module(FORMATS[name]).__doc__


def test_it_is_recognised_by_content(name: str, sample: Path, options: dict[str, Any]) -> None:
    reader, batches = drawn(sample, options)
    assert reader.format.name == name
    assert sum(map(len, batches)) == COUNT


def test_every_row_is_accounted_for(sample: Path, options: dict[str, Any]) -> None:
    reader, batches = drawn(sample, options)
    report = reader.report
    assert report.rows == report.accepted + report.rejected_rows == sum(map(len, batches)) == COUNT
    assert report.time_unit
    assert report.time_unit_reason
    assert report.as_dict()["rows"] == COUNT
    assert orjson.dumps(report.as_dict())


@pytest.mark.parametrize("more", [{}, {"closed_loop": True}, {"closed_loop": False}])
def test_requests_are_sound_and_in_order(sample: Path, options: dict[str, Any], more: dict[str, Any]) -> None:
    _, batches = drawn(sample, options, **more)
    before = -np.inf
    for batch in batches:
        keys = stream_keys(batch)
        roots = batch.arrival_s if batch.parent_id is None else batch.arrival_s[batch.parent_id == NO_PARENT]
        assert np.all(np.diff(roots) >= 0)
        assert keys[0] >= before or np.isneginf(keys[0])
        before = max(before, float(keys[-1]))
    seen: set[int] = set()
    for row in rows_of(batches):
        assert row.request_id not in seen
        assert row.parent_id == NO_PARENT or row.parent_id in seen
        assert row.input_tokens >= 1
        assert 1 <= row.output_tokens <= row.output_budget
        assert row.arrival_s >= 0
        assert row.think_time_s >= 0
        whole = row.input_tokens // row.block_tokens
        assert not row.block_hashes or whole <= len(row.block_hashes) <= whole + 1
        seen.add(row.request_id)


@pytest.mark.parametrize("size", [1, 7])
def test_batches_are_bounded_and_their_size_changes_nothing(
    sample: Path, options: dict[str, Any], size: int
) -> None:
    _, whole = drawn(sample, options)
    _, parts = drawn(sample, options, batch_rows=size)
    assert max(map(len, parts)) <= size
    assert rows_of(parts) == rows_of(whole)


def test_the_same_seed_gives_the_same_requests(sample: Path, options: dict[str, Any]) -> None:
    assert rows_of(drawn(sample, options, seed=3)[1]) == rows_of(drawn(sample, options, seed=3)[1])


def test_gzip_changes_nothing(name: str, sample: Path, options: dict[str, Any]) -> None:
    if name == "native":
        pytest.skip("Parquet packs its own pages")
    plain = rows_of(drawn(sample, options)[1])
    sample.write_bytes(gzip.compress(sample.read_bytes()))
    assert rows_of(drawn(sample, options)[1]) == plain


def test_a_cut_file_is_an_error_never_a_traceback(name: str, sample: Path, options: dict[str, Any]) -> None:
    whole = sample.read_bytes()
    packed = whole if name == "native" else gzip.compress(whole)
    for share in (0.05, 0.5, 0.99):
        sample.write_bytes(packed[: int(len(packed) * share)])
        with pytest.raises(TraceError):
            list(open_trace(sample, name, TraceOptions(**options)).batches())


def test_an_empty_file_has_no_row(name: str, sample: Path, options: dict[str, Any]) -> None:
    sample.write_bytes(b"")
    with pytest.raises(TraceError, match="fits no trace format"):
        open_trace(sample)
    reader = open_trace(sample, name, TraceOptions(**options))
    if name in ("agentic", "bailian", "mooncake"):
        assert list(reader.batches()) == []
        return
    with pytest.raises(TraceError, match=str(sample)):
        list(reader.batches())


def test_max_rows_bounds_the_rows_read(name: str, sample: Path, options: dict[str, Any]) -> None:
    if name == "servegen":
        pytest.skip("its rows are windows, not requests")
    reader, batches = drawn(sample, options, max_rows=9)
    assert reader.report.rows == reader.report.accepted == sum(map(len, batches)) == 9


def test_unknown_and_ambiguous_formats(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_text("one,two\n1,2\n")
    with pytest.raises(TraceError, match="fits no trace format"):
        open_trace(path)
    with pytest.raises(TraceError, match="unknown trace format"):
        open_trace(path, "nonsense")
    path.write_text("timestamp,contexttokens,generatedtokens,requesttokens,responsetokens\n1,2,3,4,5\n")
    with pytest.raises(TraceError, match=r"several trace formats: azure \(.*\); burstgpt \(.*\)"):
        open_trace(path)


@pytest.mark.parametrize("name", ["azure", "burstgpt", "mooncake"], indirect=False)
def test_memory_does_not_grow_with_the_file(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Pieces smaller than either file, so that both fill every buffer.
    monkeypatch.setattr(source, "PIECE_BYTES", 1 << 16)

    def peak_bytes(rows: int) -> int:
        path = tmp_path / f"{rows}"
        with path.open("wb") as file:
            file.write({"azure": azure, "burstgpt": burstgpt}.get(name, bytes)().partition(b"\n")[0] + b"\n")
            for row in range(rows):
                file.write(_line(name, row))
        tracemalloc.start()
        try:
            assert sum(map(len, open_trace(path, name).batches())) == rows
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert peak_bytes(60_000) < 1.1 * peak_bytes(30_000)


def _line(name: str, row: int) -> bytes:
    if name == "azure":
        return b"%d,600,5\n" % row
    if name == "burstgpt":
        return b"%d,s%d,2,GPT-4,600,5,605,API log\n" % (row, row)
    text = '{"timestamp":%d,"input_length":600,"output_length":5,"hash_ids":[0,%d]}\n'
    return (text % (100 * row, row)).encode()
