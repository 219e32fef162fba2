"""Qwen-Bailian usage traces: JSON lines with chat ids, turns and ids of 16-token blocks.

``{"chat_id", "parent_chat_id" (-1 = first turn), "timestamp" (s), "input_length", "output_length", "type",
"turn", "hash_ids"}``. The published ids name the contents of blocks, so they are chained into prefix ids. The
session is the first chat of the conversation; ``type`` (text, search, image, file) becomes the workload class.
Turns arrive as recorded unless ``closed_loop`` is asked for; the trace has no service times, so the think time is
then the gap less an assumed service time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec

from data.traces.assemble import READ_ROWS, Habits, assemble
from data.traces.chunk import LIMIT, Chunk, ChunkBuilder
from data.traces.formats import Head, TraceFormat
from data.traces.hashing import text_hash
from data.traces.jsonl import decode_block, row_blocks
from data.traces.mooncake import add_row
from data.traces.options import TraceOptions
from data.traces.report import ReadReport, Reject
from data.traces.sessions import ParentLinks, Turn, TurnMemory
from data.traces.source import TextSource
from data.types import NO_PARENT, TraceBatch


class _Row(msgspec.Struct, gc=False):
    chat_id: int
    timestamp: int | float | str
    input_length: int
    output_length: int
    parent_chat_id: int | None = -1
    type: str = ""
    hash_ids: list[int | str] | None = None


_decode = msgspec.json.Decoder(_Row).decode


def read(source: TextSource, options: TraceOptions, report: ReadReport) -> Iterator[TraceBatch]:
    """Batches of one file in order of arrival; request ids are the chat ids."""
    habits = Habits(time_unit="s", block_tokens=16, content_ids=True, own_ids=True)
    links = ParentLinks(options, report)
    return assemble(_chunks(source, options, report), habits, options, report, link=links.link)


def _chunks(source: TextSource, options: TraceOptions, report: ReadReport) -> Iterator[Chunk]:
    known = TurnMemory()
    is_date: bool | None = None
    for block in row_blocks(source, report, READ_ROWS, options.max_rows):
        builder = ChunkBuilder(block_tokens=16)
        builder.is_date = is_date
        rows, numbers = decode_block(block, _decode, report)
        for row, number in zip(rows, numbers.tolist(), strict=True):
            _add(builder, number, row, known, report)
        if len(builder):
            is_date = builder.is_date
            yield builder.build(with_parents=True)


def _add(builder: ChunkBuilder, number: int, row: _Row, known: TurnMemory, report: ReadReport) -> None:
    """Append the row, or count it as bad: a chat id of late with the same content is a repeat of the row."""
    if not 0 <= row.chat_id < LIMIT:
        report.reject(Reject.BAD_FIELD, number, "chat_id is negative or beyond 62 bits")
        return
    digest = text_hash(repr(row))
    seen = known.find(row.chat_id)
    if seen is not None:
        same = seen.request_id == digest
        report.reject(Reject.DUPLICATE if same else Reject.ID_CONFLICT, number, f"chat_id {row.chat_id} again")
        return
    parent = NO_PARENT if row.parent_chat_id is None or not 0 <= row.parent_chat_id < LIMIT else row.parent_chat_id
    added = add_row(
        builder,
        number,
        row,
        report,
        request_id=row.chat_id,
        parent_id=parent,
        think_time_s=math.nan,
        texts={"workload_class": row.type},
    )
    if added:
        known.remember(row.chat_id, Turn(digest, "", 0.0))


def sniff(head: Head) -> str | None:
    """Why this looks like a Bailian trace, or ``None``."""
    if {"chat_id", "timestamp", "input_length", "output_length"} <= head.first_object().keys():
        return "JSON lines with chat_id, timestamp, input_length and output_length"
    return None


FORMAT = TraceFormat(
    name="bailian",
    description="Qwen-Bailian JSON lines: chats with turns and ids of 16-token blocks",
    sniff=sniff,
    read=read,
)
