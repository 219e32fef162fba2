"""Azure LLM inference traces: ``TIMESTAMP,ContextTokens,GeneratedTokens`` with wall times of 0 to 9 decimals.

No session, prefix or model is recorded. The clock is a date; numeric stamps (seconds) are taken too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from data.traces.assemble import Habits, assemble
from data.traces.chunk import Chunk, ChunkBuilder
from data.traces.clock import parse_stamp
from data.traces.csv_lines import count_of, csv_blocks
from data.traces.formats import Head, TraceFormat
from data.traces.options import TraceOptions
from data.traces.report import ReadReport, Reject
from data.traces.source import TextSource
from data.types import TraceBatch

COLUMNS = ("timestamp", "contexttokens", "generatedtokens")


def read(source: TextSource, options: TraceOptions, report: ReadReport) -> Iterator[TraceBatch]:
    """Batches of one file in order of arrival."""
    return assemble(_chunks(source, options, report), Habits(), options, report)


def _chunks(source: TextSource, options: TraceOptions, report: ReadReport) -> Iterator[Chunk]:
    is_date: bool | None = None
    for block in csv_blocks(source, report, COLUMNS, (), options.max_rows):
        builder = ChunkBuilder()
        builder.is_date = is_date
        for number, (stamp, n_in, n_out) in block.rows:
            add_csv_row(builder, number, stamp, n_in, n_out, report)
        if len(builder):
            is_date = builder.is_date
            yield builder.build()


def add_csv_row(
    builder: ChunkBuilder,
    number: int,
    stamp: bytes,
    n_in: bytes,
    n_out: bytes,
    report: ReadReport,
    service_s: float = math.nan,
    texts: Mapping[str, str] | None = None,
) -> bool:
    """Append one row of stamp, two token counts and perhaps a service time, or count it as bad."""
    try:
        at, is_date = parse_stamp(stamp)
    except ValueError as error:
        report.reject(Reject.BAD_STAMP, number, str(error))
        return False
    if builder.is_date is None:
        builder.is_date = is_date
    if builder.is_date != is_date:
        report.reject(Reject.MIXED_CLOCKS, number, "dates and numbers in one file")
        return False
    try:
        builder.add(number, at, count_of(n_in), count_of(n_out), think_time_s=service_s, texts=texts)
    except ValueError as error:
        report.reject(Reject.BAD_FIELD, number, str(error))
        return False
    return True


def sniff(head: Head) -> str | None:
    """Why this looks like an Azure trace, or ``None``."""
    if set(COLUMNS) <= set(head.csv_names):
        return "CSV with TIMESTAMP, ContextTokens and GeneratedTokens"
    return None


FORMAT = TraceFormat(
    name="azure",
    description="Azure LLM inference CSV: wall time, prompt and output tokens",
    sniff=sniff,
    read=read,
)
