"""TokenFleet's own trace format: Parquet, one row a request, the columns of ``TraceBatch``.

Block hashes are a list of unsigned 64-bit numbers, texts are dictionary-coded, row groups hold about 65,536 rows
(fewer where prompts have very many blocks). The file's metadata carry the schema version and the block size.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from data.errors import TraceError
from data.traces import batches
from data.traces.assemble import cut_up
from data.traces.atomic import replacing_trace
from data.traces.batches import TEXT_COLUMNS, TextColumn
from data.traces.formats import Head, TraceFormat
from data.traces.options import TraceOptions
from data.traces.report import ReadReport, Reject
from data.traces.source import TextSource
from data.types import NO_PARENT, IntArray, TraceBatch

SCHEMA_VERSION = 1
GROUP_ROWS = 65_536
GROUP_HASHES = 4 << 20
_TEXT = pa.dictionary(pa.int32(), pa.string())
_COLUMNS = [
    pa.field("request_id", pa.int64(), nullable=False),
    pa.field("arrival_s", pa.float64(), nullable=False),
    pa.field("input_tokens", pa.int64(), nullable=False),
    pa.field("output_tokens", pa.int64(), nullable=False),
    pa.field("output_budget", pa.int64(), nullable=False),
    pa.field("block_hashes", pa.list_(pa.field("item", pa.uint64(), nullable=False)), nullable=False),
    pa.field("parent_id", pa.int64()),
    pa.field("think_time_s", pa.float64()),
    *(pa.field(name, _TEXT) for name in TEXT_COLUMNS),
]


def schema(block_tokens: int) -> Any:
    """The Arrow schema of a trace with this block size."""
    facts = {"table": "trace", "schema": str(SCHEMA_VERSION), "block_tokens": str(block_tokens)}
    return pa.schema(_COLUMNS, metadata={f"tokenfleet_{name}": value for name, value in facts.items()})


class NativeWriter:
    """Writes batches to one file that appears complete or not at all. Memory: one row group.

    Use as a context manager; leaving it by an exception leaves no file behind.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._replacing = replacing_trace(path)
        self._writer: Any = None
        self._held: list[TraceBatch] = []
        self._block_tokens = 0
        self.rows = 0

    def __enter__(self) -> NativeWriter:
        self._aside = self._replacing.__enter__()
        return self

    def write(self, batch: TraceBatch) -> None:
        """Append rows.

        Raises:
            TraceError: Another block size than in the batches before.
        """
        if not len(batch):
            return
        self._open(batch.block_tokens)
        if batch.block_tokens != self._block_tokens:
            raise TraceError(
                "a trace has one block size",
                source=str(self._path),
                value=batch.block_tokens,
                expected=str(self._block_tokens),
            )
        self._held.append(batch)
        rows, hashes = sum(map(len, self._held)), sum(len(one.hashes) for one in self._held)
        if rows >= GROUP_ROWS or hashes >= GROUP_HASHES:
            self._flush()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        try:
            if kind is None:
                self._open(512)
                self._flush()
            if self._writer is not None:
                self._writer.close()
        except BaseException as failed:  # the disk may be full by now: the file aside goes, the reason is told
            self._replacing.__exit__(type(failed), failed, failed.__traceback__)
            raise
        return self._replacing.__exit__(kind, error, trace)

    def _open(self, block_tokens: int) -> None:
        if self._writer is None:
            self._block_tokens = block_tokens
            # Hashes look random, so a dictionary would only cost; lz4 unpacks at memory speed.
            self._writer = pq.ParquetWriter(
                self._aside,
                schema(block_tokens),
                compression="lz4",
                use_dictionary=list(TEXT_COLUMNS),
                write_statistics=["arrival_s"],
            )

    def _flush(self) -> None:
        if self._held:
            joined = batches.join(self._held)
            self._writer.write_table(_table(joined), row_group_size=len(joined))
            self.rows += len(joined)
            self._held = []


def write_native(rows: Iterable[TraceBatch], path: Path) -> int:
    """Write all batches to one file; returns the rows written."""
    with NativeWriter(path) as writer:
        for batch in rows:
            writer.write(batch)
    return writer.rows


def _table(batch: TraceBatch) -> Any:
    count = len(batch)
    lists = pa.ListArray.from_arrays(
        pa.array(batch.hash_offsets.astype(np.int32)), pa.array(batch.hashes), type=_COLUMNS[5].type
    )
    columns = [
        pa.array(batch.request_id),
        pa.array(batch.arrival_s),
        pa.array(batch.input_tokens),
        pa.array(batch.output_tokens),
        pa.array(batch.output_budget),
        lists,
        pa.nulls(count, pa.int64()) if batch.parent_id is None else pa.array(batch.parent_id),
        pa.nulls(count, pa.float64()) if batch.think_time_s is None else pa.array(batch.think_time_s),
        *(_encoded(getattr(batch, name), count) for name in TEXT_COLUMNS),
    ]
    return pa.Table.from_arrays(columns, schema=schema(batch.block_tokens))


def _encoded(column: Sequence[str], count: int) -> Any:
    if isinstance(column, TextColumn):
        return pa.DictionaryArray.from_arrays(
            pa.array(column.codes % len(column.vocabulary), pa.int32()), pa.array(column.vocabulary, pa.string())
        )
    if not len(column):
        return pa.nulls(count, _TEXT)
    return pa.array(column, pa.string()).dictionary_encode()


def read(source: TextSource, options: TraceOptions, report: ReadReport) -> Iterator[TraceBatch]:
    """Batches of one file, as views on Arrow's memory wherever rows are sound.

    Raises:
        TraceError: Not a trace of ours, of a later version, or damaged.
    """
    try:
        yield from _read(source, options, report)
    except (pa.ArrowException, OSError, KeyError, UnicodeDecodeError, ValueError) as error:
        raise TraceError(f"is damaged or no Parquet: {error}"[:300], source=str(source.path)) from error


def _read(source: TextSource, options: TraceOptions, report: ReadReport) -> Iterator[TraceBatch]:
    with pq.ParquetFile(source.path, memory_map=False) as file:
        block_tokens = _checked_block_tokens(file.schema_arrow, source.path)
        report.block_tokens, report.block_reason = block_tokens, "stands in the file"
        report.time_unit, report.time_unit_reason = "s", "the format's own"
        shift_s: float | None = None
        for group in range(file.num_row_groups):
            for record in file.iter_batches(GROUP_ROWS, row_groups=[group]):
                left = record.num_rows if options.max_rows is None else options.max_rows - report.rows
                batch = _sound(_batch(record.slice(0, max(0, left)), block_tokens), report)
                if not len(batch):
                    continue
                if shift_s is None:
                    shift_s = float(batch.arrival_s[0]) if options.rebase is True else 0.0
                    report.first_s = float(batch.arrival_s[0]) - shift_s
                if shift_s:
                    batch = batches.with_columns(batch, arrival_s=batch.arrival_s - shift_s)
                report.last_s = max(report.last_s, float(batch.arrival_s.max()))
                yield from cut_up(batch, options.batch_rows)
            source.position = int(source.size * (group + 1) / file.num_row_groups)


def _checked_block_tokens(found: Any, path: Path) -> int:
    facts = found.metadata or {}
    if facts.get(b"tokenfleet_table") != b"trace":
        raise TraceError("is Parquet, but no TokenFleet trace", source=str(path))
    version = int(facts.get(b"tokenfleet_schema", b"0"))
    if version != SCHEMA_VERSION:
        raise TraceError(
            "has another schema version", source=str(path), value=version, expected=str(SCHEMA_VERSION)
        )
    missing = [column.name for column in _COLUMNS if found.field(column.name).type != column.type]
    if missing:
        raise TraceError("has columns of a wrong type: " + ", ".join(missing), source=str(path))
    block_tokens = int(facts.get(b"tokenfleet_block_tokens", b"0"))
    if not 1 <= block_tokens <= 1_000_000:
        raise TraceError("has no usable block size", source=str(path), value=block_tokens)
    return block_tokens


def _batch(record: Any, block_tokens: int) -> TraceBatch:
    lists = record["block_hashes"]
    offsets = lists.offsets.to_numpy().astype(np.int64)
    values = lists.values.to_numpy(zero_copy_only=True)
    return TraceBatch(
        request_id=record["request_id"].to_numpy(zero_copy_only=True),
        arrival_s=record["arrival_s"].to_numpy(zero_copy_only=True),
        input_tokens=record["input_tokens"].to_numpy(zero_copy_only=True),
        output_tokens=record["output_tokens"].to_numpy(zero_copy_only=True),
        output_budget=record["output_budget"].to_numpy(zero_copy_only=True),
        hash_offsets=offsets - offsets[0],
        hashes=values[int(offsets[0]) : int(offsets[-1])],
        block_tokens=block_tokens,
        parent_id=_numbers(record["parent_id"], NO_PARENT),
        think_time_s=_numbers(record["think_time_s"], 0.0),
        **{name: _text(record[name]) for name in TEXT_COLUMNS},
    )


def _numbers(column: Any, blank: float) -> Any:
    if column.null_count == len(column):
        return None
    return (column.fill_null(blank) if column.null_count else column).to_numpy(zero_copy_only=True)


def _text(column: Any) -> Sequence[str]:
    """Codes and words; a null is code −1, the last word, which is blank."""
    if column.null_count == len(column):
        return ()
    codes = column.indices.fill_null(-1).to_numpy(zero_copy_only=True)
    return TextColumn(codes, (*column.dictionary.to_pylist(), ""))


def _sound(batch: TraceBatch, report: ReadReport) -> TraceBatch:
    """The rows that can be requests; the others are counted by their row number."""
    first = report.rows + 1
    report.rows += len(batch)
    rules = (
        (Reject.BAD_STAMP, np.isfinite(batch.arrival_s)),
        (Reject.NO_INPUT, batch.input_tokens > 0),
        (Reject.ZERO_OUTPUT, batch.output_tokens > 0),
        (Reject.BAD_FIELD, batch.output_budget >= batch.output_tokens),
    )
    good = np.ones(len(batch), dtype=np.bool_)
    for reason, rule in rules:
        report.reject_lines(reason, np.flatnonzero(good & ~rule) + first)
        good &= rule
    report.accepted += int(good.sum())
    places: IntArray = np.flatnonzero(good)
    return batch if len(places) == len(batch) else batches.take(batch, places)


def sniff(head: Head) -> str | None:
    """Why this looks like a trace of ours, or ``None``."""
    return "Parquet" if head.text.startswith(b"PAR1") else None


FORMAT = TraceFormat(
    name="native",
    description="TokenFleet's own Parquet, one row a request",
    sniff=sniff,
    read=read,
)
