"""Whatever stands in a trace file: an error of ours or counted rows, never anything else."""

from __future__ import annotations

import gzip
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from data.errors import InputError, TokenFleetError
from data.traces.batches import cut, join, take
from data.traces.clock import parse_stamp
from data.traces.hashing import chain
from data.traces.native import write_native
from data.traces.options import TraceOptions
from data.traces.registry import FORMATS, open_trace
from data.traces.report import ReadReport
from data.traces.source import TextSource
from data.types import TraceBatch

FAST = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

MOONCAKE = b'{"timestamp": 100, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]}'
BAILIAN = (
    b'{"chat_id": 7, "parent_chat_id": -1, "timestamp": 1.5, "input_length": 20, "output_length": 5, '
    b'"type": "text", "turn": 1, "hash_ids": [3, 4]}'
)
CALL = b'{"t": 1.0, "type": "n", "in": 130, "out": 5, "hash_ids": [1, 2], "api_time": 2.0, "think_time": 1.0}'
AGENT = b'{"t": 9, "type": "subagent", "duration_ms": 3000, "requests": [%b]}' % CALL
AGENTIC = (
    b'{"id": "s", "block_size": 64, "hash_id_scope": "local", "tool_tokens": 64, "system_tokens": 0, '
    b'"requests": [%b, %b]}' % (CALL, AGENT)
)
BENCH = b'{"input_lens": [1, 2], "output_lens": [3, 4], "start_times": [0.5, 0.25], "errors": ["", ""]}'
LINES: dict[str, tuple[bytes, bytes]] = {
    "agentic": (b"", AGENTIC),
    "azure": (b"TIMESTAMP,ContextTokens,GeneratedTokens\n", b"2023-11-16 18:15:46.6805900,374,44"),
    "bailian": (b"", BAILIAN),
    "burstgpt": (
        b"Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n",
        b"5.0,s,3,ChatGPT,472,18,490,Conversation log",
    ),
    "mooncake": (b"", MOONCAKE),
    "servegen": (b"client,start_s,rate_per_s,cv,dist,param1,param2\n", b"3,600,0.05,1,Gamma,0.7,1"),
    "vllm_bench": (b"", BENCH),
}
TOKENS = [
    b"",
    b"0",
    b"-1",
    b"1e400",
    b"NaN",
    b"null",
    b"true",
    b'"x"',
    b"[]",
    b"{}",
    b"18446744073709551616",
    b"99999999999999999999999999",
    b"\xff",
    b"\x00",
    b",",
    b'"',
    b"\r",
    b"\n",
    b"\xf0\x9f\x98\x80",
    b"\\ud800",
    b"2023-02-30 00:00:00",
    b"1" * 5000,
]


@st.composite
def mutated(draw: st.DrawFn, line: bytes) -> bytes:
    """The line with a few stretches replaced by troublesome texts."""
    for _ in range(draw(st.integers(0, 3))):
        start = draw(st.integers(0, len(line)))
        stop = min(len(line), start + draw(st.integers(0, 12)))
        line = line[:start] + draw(st.sampled_from(TOKENS)) + line[stop:]
    return line


def read_all(name: str, content: bytes, **options: Any) -> None:
    """Read the content as this format; check what must hold of any content."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace"
        path.write_bytes(content)
        lengths = Path(folder) / "lengths"
        lengths.write_text('{"3": {"0": {"input_tokens": "{9: 1.0}", "output_tokens": "{5: 1.0}"}}}')
        reader = open_trace(path, name, TraceOptions(lengths=lengths, rate_scale=0.1, **options))
        try:
            batches = list(reader.batches())
        except TokenFleetError:
            return
        report = reader.report
        assert report.accepted == sum(map(len, batches))
        assert report.rows == report.accepted + report.rejected_rows
        orjson.dumps(report.as_dict())
        for batch in batches:
            assert np.all(np.isfinite(batch.arrival_s))
            assert np.all(batch.input_tokens >= 1)
            assert np.all((batch.output_tokens >= 1) & (batch.output_tokens <= batch.output_budget))
            assert len(list(batch.rows())) == len(batch)


def non_blank_lines(content: bytes) -> int:
    return sum(bool(line.removesuffix(b"\r")) for line in content.split(b"\n"))


@pytest.mark.parametrize("name", sorted(FORMATS))
@FAST
@given(content=st.binary(max_size=400))
def test_any_bytes(name: str, content: bytes) -> None:
    read_all(name, content)


@pytest.mark.parametrize("name", sorted(LINES))
@FAST
@given(data=st.data(), packed=st.booleans(), closed=st.sampled_from([None, True, False]))
def test_mutated_lines(name: str, data: st.DataObject, packed: bool, closed: bool | None) -> None:
    header, line = LINES[name]
    lines = data.draw(st.lists(mutated(line), max_size=4))
    content = header + b"\n".join([line, *lines, line])
    read_all(name, gzip.compress(content) if packed else content, closed_loop=closed)


@pytest.mark.parametrize("name", ["azure", "bailian", "burstgpt", "mooncake"])
@FAST
@given(data=st.data())
def test_every_line_is_a_row(name: str, data: st.DataObject) -> None:
    header, line = LINES[name]
    lines = data.draw(st.lists(mutated(line), max_size=6))
    content = header + b"\n".join([line, *lines])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace"
        path.write_bytes(content)
        reader = open_trace(path, name)
        accepted = sum(map(len, reader.batches()))
        assert accepted + reader.report.rejected_rows == non_blank_lines(content) - bool(header)


@pytest.mark.parametrize("name", ["azure", "mooncake", "burstgpt"])
@FAST
@given(data=st.data())
def test_mutated_headers_and_beginnings(name: str, data: st.DataObject) -> None:
    header, line = LINES[name]
    content = data.draw(mutated(header or line)) + b"\n" + line
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace"
        path.write_bytes(content)
        with suppress(InputError):
            list(open_trace(path).batches())


@FAST
@given(data=st.data())
def test_a_damaged_parquet_file(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.parquet"
        source = Path(folder) / "trace.jsonl"
        source.write_bytes(b"\n".join([MOONCAKE] * 50))
        write_native(open_trace(source).batches(), path)
        content = bytearray(path.read_bytes())
        for _ in range(data.draw(st.integers(1, 4))):
            content[data.draw(st.integers(4, len(content) - 9))] = data.draw(st.integers(0, 255))
        read_all("native", bytes(content))


@FAST
@given(st.binary(max_size=40))
def test_a_stamp_parses_or_is_a_value_error(text: bytes) -> None:
    try:
        value, is_date = parse_stamp(text)
    except ValueError:
        return
    assert -(2**62) < value < 2**62
    assert isinstance(is_date, bool)


@FAST
@given(st.binary(max_size=300), st.booleans())
def test_lines_are_those_of_the_file(content: bytes, packed: bool) -> None:
    """Plain bytes (no byte order mark, no sign of UTF-16) come out as they went in."""
    content = b"#" + content
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t"
        path.write_bytes(gzip.compress(content) if packed else content)
        blocks = TextSource(path).blocks(ReadReport("x", "y"), rows=3)
        found = [
            (number, line)
            for block in blocks
            for number, line in zip(block.numbers.tolist(), block.lines, strict=True)
        ]
    lines = [line.removesuffix(b"\r") for line in content.split(b"\n")]
    if content[1:4:2] != b"\0\0":
        assert found == [(number, line) for number, line in enumerate(lines, start=1) if line]


def small(counts: list[int]) -> TraceBatch:
    rows = len(counts)
    return TraceBatch(
        request_id=np.arange(rows, dtype=np.int64),
        arrival_s=np.arange(rows, dtype=np.float64),
        input_tokens=np.ones(rows, dtype=np.int64),
        output_tokens=np.ones(rows, dtype=np.int64),
        output_budget=np.ones(rows, dtype=np.int64),
        hash_offsets=np.cumsum([0, *counts], dtype=np.int64),
        hashes=np.arange(sum(counts), dtype=np.uint64),
        tenant=[str(row) for row in range(rows)],
    )


@FAST
@given(st.lists(st.integers(0, 4), max_size=12), st.data())
def test_row_operations_agree_with_lists(counts: list[int], data: st.DataObject) -> None:
    batch = small(counts)
    rows = list(batch.rows())
    places = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=10)) if rows else []
    assert list(take(batch, np.array(places, dtype=np.int64)).rows()) == [rows[place] for place in places]
    start = data.draw(st.integers(0, len(rows)))
    stop = data.draw(st.integers(start, len(rows)))
    assert list(cut(batch, start, stop).rows()) == rows[start:stop]
    assert list(join([cut(batch, 0, start), cut(batch, start, len(rows))]).rows()) == rows


@FAST
@given(st.lists(st.lists(st.integers(0, 3), max_size=5), max_size=8))
def test_chained_ids_name_prefixes(rows: list[list[int]]) -> None:
    offsets = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    ids = np.array([one for row in rows for one in row], dtype=np.uint64)
    found = chain(offsets, ids).tolist()
    names: dict[tuple[int, ...], int] = {}
    for row, start in zip(rows, offsets.tolist(), strict=False):
        for place in range(len(row)):
            prefix = tuple(row[: place + 1])
            assert names.setdefault(prefix, found[start + place]) == found[start + place]
    assert len(set(names.values())) == len(names)
