"""BurstGPT traces: CSV with stamps in seconds, model, tokens and kind of use, columns found by name.

Releases differ in their header: 6 columns (``Timestamp, Model, Request tokens, Response tokens, Total tokens, Log
Type``), 8 columns (``Session ID`` and ``Elapsed time`` as well), and re-exports with the columns in another order
or without some. Only stamp and the two token counts are needed. A row without response tokens is a failed request;
the releases "without fails" have none. The kind of use becomes the workload class.

With ``closed_loop`` a session's next request starts at the end of the one before (stamp plus elapsed time, or plus
the assumed service time) plus the rest of the gap as think time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from data.traces.assemble import Habits, assemble
from data.traces.azure import add_csv_row
from data.traces.chunk import Chunk, ChunkBuilder
from data.traces.csv_lines import csv_blocks, text_of
from data.traces.formats import Head, TraceFormat
from data.traces.options import TraceOptions
from data.traces.report import ReadReport
from data.traces.sessions import SessionLinks
from data.traces.source import TextSource
from data.types import TraceBatch

NEEDED = ("timestamp", "requesttokens", "responsetokens")
OPTIONAL = ("model", "logtype", "sessionid", "elapsedtime")


def read(source: TextSource, options: TraceOptions, report: ReadReport) -> Iterator[TraceBatch]:
    """Batches of one file in order of arrival."""
    links = SessionLinks(options, report) if options.closed_loop else None
    habits = Habits(own_ids=links is not None)
    chunks = _chunks(source, options, report)
    return assemble(chunks, habits, options, report, link=links.link if links else None)


def _chunks(source: TextSource, options: TraceOptions, report: ReadReport) -> Iterator[Chunk]:
    is_date: bool | None = None
    for block in csv_blocks(source, report, NEEDED, OPTIONAL, options.max_rows):
        builder = ChunkBuilder()
        builder.is_date = is_date
        for number, (stamp, n_in, n_out, model, kind, session, took) in block.rows:
            texts = {"model": text_of(model), "workload_class": _kind(kind), "session_id": text_of(session)}
            add_csv_row(builder, number, stamp, n_in, n_out, report, _seconds(took), texts)
        if len(builder):
            is_date = builder.is_date
            yield builder.build(with_parents=bool(options.closed_loop))


def _kind(cell: bytes) -> str:
    """``conversation`` or ``api`` for the two known kinds; others as they stand."""
    return text_of(cell).lower().removesuffix(" log")


def _seconds(cell: bytes) -> float:
    """A recorded service time; NaN if there is none."""
    try:
        value = float(cell)
    except ValueError:
        return math.nan
    return value if 0 <= value < 1e9 else math.nan


def sniff(head: Head) -> str | None:
    """Why this looks like a BurstGPT trace, or ``None``."""
    if set(NEEDED) <= set(head.csv_names):
        return f"CSV of {len(head.csv_names)} columns with Timestamp, Request tokens and Response tokens"
    return None


FORMAT = TraceFormat(
    name="burstgpt",
    description="BurstGPT CSV: stamp, tokens, model, kind of use, session where recorded",
    sniff=sniff,
    read=read,
)
