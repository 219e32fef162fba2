"""Agentic coding sessions: one JSON object a line, each with the model calls of one session.

Fields: ``id``, ``block_size``, ``hash_id_scope``, ``tool_tokens``, ``system_tokens``, ``requests[]`` with ``t`` (s
since the session's start), ``in``, ``out``, ``hash_ids`` (complete blocks only), ``api_time`` and ``think_time``
(s). A request of type ``subagent`` holds the nested requests of an agent that ran beside the session; its ``t`` is
when it *ended*, and ``duration_ms`` tells when it began.

The loop is closed: a call starts at the end of the one before it plus think time; a subagent's first call hangs on
the last call that the session had begun by then. With ``closed_loop=False`` calls arrive at their recorded times.
Sessions have no absolute start, so starts are drawn (Poisson, ``session_rate_per_s``, seeded).
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from data.traces import batches
from data.traces.agentic_session import Session, SessionRows, flatten
from data.traces.assemble import Finish
from data.traces.formats import Head, TraceFormat
from data.traces.jsonl import decode_line
from data.traces.options import TraceOptions
from data.traces.report import ReadReport, Reject, Repair
from data.traces.sessions import Turn, TurnMemory
from data.traces.source import TextSource
from data.types import IntArray, TraceBatch

_decode = msgspec.json.Decoder(Session).decode
HELD_HASHES = 2 << 20
"""Block ids collected before a batch is given out, whatever its rows (16 MiB)."""


def read(source: TextSource, options: TraceOptions, report: ReadReport) -> Iterator[TraceBatch]:
    """Batches in order of session starts, a session's calls together; in order of arrival if the loop is open."""
    closed = options.closed_loop is not False
    finish = Finish(options, report, own_ids=closed, in_order=not closed)
    report.time_unit, report.time_unit_reason = "s", "the format's own"
    held: list[TraceBatch] = []
    start_s = 0.0
    for start_s, batch in _sessions(source, options, report):
        full = sum(map(len, held)) >= options.batch_rows or sum(len(one.hashes) for one in held) >= HELD_HASHES
        if held and full:
            ready, held = _release(held, closed, start_s)
            yield from finish.push(ready)
        held.append(batch)
    if held:
        ready, _ = _release(held, closed, np.inf)
        yield from finish.push(ready)


def _release(held: list[TraceBatch], closed: bool, before_s: float) -> tuple[TraceBatch, list[TraceBatch]]:
    """Rows that no later session can precede, in order, and what must wait for later sessions."""
    joined = batches.join(held)
    if closed:
        return joined, []
    joined = batches.with_columns(joined, parent_id=None, think_time_s=None)
    joined = batches.take(joined, np.argsort(joined.arrival_s, kind="stable"))
    sure = int(np.searchsorted(joined.arrival_s, before_s, side="left"))
    return batches.cut(joined, 0, sure), [batches.cut(joined, sure, len(joined))]


def _sessions(source: TextSource, options: TraceOptions, report: ReadReport) -> Iterator[tuple[float, TraceBatch]]:
    """Start and rows of each session, its calls in order of their recorded time."""
    rng = np.random.default_rng(options.seed)
    known = _Known(options, report)
    start_s, next_id = 0.0, 0
    for block in source.blocks(report):
        for line, number in zip(block.lines, block.numbers.tolist(), strict=True):
            if options.max_rows is not None and report.rows >= options.max_rows:
                return
            session = decode_line(line, number, _decode, report)
            if session is None:
                report.rows += 1
                continue
            rows = flatten(session, number, options, report)
            if rows is None or not known.accept(session, rows, number):
                continue
            yield start_s, rows.batch(start_s, next_id)
            next_id += len(rows)
            start_s += rng.exponential(1.0 / options.session_rate_per_s)


class _Known:
    """Tells repeated sessions and those that differ in block size from the ones before."""

    def __init__(self, options: TraceOptions, report: ReadReport) -> None:
        self._options = options
        self._report = report
        self._by_id = TurnMemory()
        self._by_content = TurnMemory()

    def accept(self, session: Session, rows: SessionRows, number: int) -> bool:
        """Whether the session's rows may be given out; they are counted if not."""
        report = self._report
        lines: IntArray = np.full(len(rows), number, dtype=np.int64)
        key = str(session.id)
        before, twin = self._by_id.find(key), self._by_content.find(rows.digest)
        if before is not None:
            same = before.request_id == rows.digest
            reason = Reject.DUPLICATE if same else Reject.ID_CONFLICT
            report.reject_lines(reason, lines, f"session {key} again")
            return False
        if twin is not None and self._options.drop_equal_rows:
            report.reject_lines(Reject.DUPLICATE, lines, f"session {key} equals {twin.session}")
            return False
        if twin is not None:
            report.repair(Repair.EQUAL_ROWS, lines, f"session {key} equals {twin.session}")
        self._by_id.remember(key, Turn(rows.digest, key, 0.0))
        self._by_content.remember(rows.digest, Turn(rows.digest, key, 0.0))
        return True


def sniff(head: Head) -> str | None:
    """Why this looks like agentic sessions, or ``None``."""
    start = head.first_line
    told = (b'"block_size"', b'"tool_tokens"', b'"requests"')
    if start.startswith(b"{") and all(name in start for name in told):
        return "JSON lines with block_size, tool_tokens and requests"
    return None


FORMAT = TraceFormat(
    name="agentic",
    description="Agentic coding sessions: calls with think times, subagents, block ids per session",
    sniff=sniff,
    read=read,
)
