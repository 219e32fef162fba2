"""Mooncake traces: one JSON object a line with stamp, lengths and the prefix ids of 512-token blocks.

``{"timestamp": ms, "input_length": n, "output_length": n, "hash_ids": [...]}``; equal ids mean equal prefixes
within one file, the last block may be partial. Several replay tools write the same fields with seconds or with
other block sizes, so both are inferred and reported. Rows without ``hash_ids`` are rows without known prefix.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from data.traces.assemble import READ_ROWS, Habits, assemble
from data.traces.atomic import replacing_trace
from data.traces.chunk import Chunk, ChunkBuilder, as_counts, as_stamps, opaque_ids
from data.traces.clock import checked_stamp, parse_stamp
from data.traces.formats import Head, TraceFormat
from data.traces.jsonl import decode_line, row_blocks
from data.traces.options import TraceOptions
from data.traces.order import repeated
from data.traces.report import ReadReport, Reject, Repair
from data.traces.source import LineBlock, TextSource
from data.types import TraceBatch


class _Row(msgspec.Struct, gc=False):
    timestamp: int | float
    input_length: int
    output_length: int
    hash_ids: list[int]


class _LooseRow(msgspec.Struct, gc=False):
    timestamp: int | float | str
    input_length: int
    output_length: int
    hash_ids: list[int | str] | None = None


_decode = msgspec.json.Decoder(_Row).decode
_decode_loose = msgspec.json.Decoder(_LooseRow).decode


def read(source: TextSource, options: TraceOptions, report: ReadReport) -> Iterator[TraceBatch]:
    """Batches of one file in order of arrival."""
    return assemble(_chunks(source, options, report), Habits(time_unit="ms"), options, report)


def _chunks(source: TextSource, options: TraceOptions, report: ReadReport) -> Iterator[Chunk]:
    before: set[bytes] = set()
    is_date: bool | None = None
    for block in row_blocks(source, report, READ_ROWS, options.max_rows):
        equal = repeated(block.lines, before)
        before = set(block.lines)
        if len(equal):
            block = _equal_rows(block, equal, options, report)
        chunk = _fast(block) if not is_date else None
        if chunk is None:
            chunk = _careful(block, is_date, report)
        if len(chunk):
            is_date = chunk.is_date
            yield chunk


def _equal_rows(block: LineBlock, equal: Any, options: TraceOptions, report: ReadReport) -> LineBlock:
    if not options.drop_equal_rows:
        report.repair(Repair.EQUAL_ROWS, block.numbers[equal])
        return block
    report.reject_lines(Reject.DUPLICATE, block.numbers[equal], "equal in every field")
    kept = np.setdiff1d(np.arange(len(block.lines)), equal)
    return LineBlock([block.lines[place] for place in kept.tolist()], block.numbers[kept])


def _fast(block: LineBlock) -> Chunk | None:
    """The whole block as columns; ``None`` if any of its lines is unusual."""
    try:
        rows = [_decode(line) for line in block.lines]
        ids = [row.hash_ids for row in rows]
        flat = array("Q")
        for one in ids:
            flat.fromlist(one)
        output = as_counts([row.output_length for row in rows])
        stamps = as_stamps([row.timestamp for row in rows])
        n_in = as_counts([row.input_length for row in rows])
    except (msgspec.MsgspecError, OverflowError, TypeError, ValueError, RecursionError):
        return None
    offsets = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum([len(one) for one in ids], out=offsets[1:])
    return Chunk(
        lines=block.numbers,
        stamps=stamps,
        is_date=False,
        rows=TraceBatch(
            request_id=np.full(len(rows), -1, dtype=np.int64),
            arrival_s=np.zeros(len(rows)),
            input_tokens=n_in,
            output_tokens=output,
            output_budget=output,
            hash_offsets=offsets,
            hashes=np.frombuffer(flat, dtype=np.uint64) if flat else np.zeros(0, dtype=np.uint64),
        ),
        has_ids=np.ones(len(rows), dtype=np.bool_),
    )


def _careful(block: LineBlock, is_date: bool | None, report: ReadReport) -> Chunk:
    """The usable rows of a block, one by one."""
    builder = ChunkBuilder()
    builder.is_date = is_date
    for line, number in zip(block.lines, block.numbers.tolist(), strict=True):
        row = decode_line(line, number, _decode_loose, report)
        if row is not None:
            add_row(builder, number, row, report)
    return builder.build()


def add_row(builder: ChunkBuilder, number: int, row: Any, report: ReadReport, **more: Any) -> bool:
    """Append a row with ``timestamp``, both lengths and ``hash_ids``; if it is bad, count it and say False."""
    try:
        stamp, is_date = row.timestamp, False
        if isinstance(stamp, str):
            stamp, is_date = parse_stamp(stamp.encode())
        checked_stamp(stamp)
    except ValueError as error:
        report.reject(Reject.BAD_STAMP, number, str(error))
        return False
    if builder.is_date is None:
        builder.is_date = is_date
    if builder.is_date != is_date:
        report.reject(Reject.MIXED_CLOCKS, number, "dates and numbers in one file")
        return False
    ids, hashed = (None, False) if row.hash_ids is None else opaque_ids(row.hash_ids)
    try:
        builder.add(number, stamp, row.input_length, row.output_length, ids, **more)
    except ValueError as error:
        report.reject(Reject.BAD_FIELD, number, str(error))
        return False
    if hashed:
        report.repair(Repair.BLOCK_IDS_HASHED, [number])
    return True


def sniff(head: Head) -> str | None:
    """Why this looks like a Mooncake trace, or ``None``."""
    row = head.first_object()
    if {"timestamp", "input_length", "output_length"} <= row.keys() and "chat_id" not in row:
        return "JSON lines with timestamp, input_length and output_length"
    return None


def write_mooncake(batches: Iterable[TraceBatch], path: Path) -> int:
    """Write a Mooncake trace (stamps in whole milliseconds); returns the rows written.

    The format knows no model, tenant, class, session or budget: they are lost, and so is what lies below 1 ms.
    """
    count = 0
    with replacing_trace(path) as aside, aside.open("wb") as file:
        for batch in batches:
            file.write(b"".join(_lines(batch)))
            count += len(batch)
    return count


_encode = msgspec.json.Encoder().encode


def _lines(batch: TraceBatch) -> Iterator[bytes]:
    """One line a request; a request without block ids has no ``hash_ids``, for its prefix is not known."""
    stamps = np.rint(batch.arrival_s * 1e3).astype(np.int64).tolist()
    offsets, hashes = batch.hash_offsets.tolist(), batch.hashes.tolist()
    columns = zip(stamps, batch.input_tokens.tolist(), batch.output_tokens.tolist(), strict=True)
    for row, (at, n_in, n_out) in enumerate(columns):
        fields = {"timestamp": at, "input_length": n_in, "output_length": n_out}
        ids = hashes[offsets[row] : offsets[row + 1]]
        yield _encode({**fields, "hash_ids": ids} if ids else fields) + b"\n"


FORMAT = TraceFormat(
    name="mooncake",
    description="Mooncake JSON lines: stamp, lengths, prefix ids of 512-token blocks",
    sniff=sniff,
    read=read,
)
