"""The stages that turn the raw chunks of a format into batches: check, clock, order, tick, number, cut."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from data.traces import batches
from data.traces.checks import RowChecks
from data.traces.chunk import Chunk
from data.traces.clock import Clock
from data.traces.hashing import are_prefix_ids, chain
from data.traces.options import TimeUnit, TraceOptions
from data.traces.order import Reorder, TickSpread
from data.traces.report import ReadReport
from data.types import TraceBatch

READ_ROWS = 8192
"""Lines that are parsed together, whatever the size of the batches given out."""


@dataclass(frozen=True, slots=True)
class Habits:
    """What a format documents about itself, taken unless the options or the data say otherwise.

    Attributes:
        time_unit: Unit of its numeric stamps.
        block_tokens: Tokens of one prefix block.
        content_ids: Its block ids name block contents, so equal ids do not yet mean equal prefixes.
        own_ids: Its rows carry request ids.
    """

    time_unit: TimeUnit = "s"
    block_tokens: int = 512
    content_ids: bool = False
    own_ids: bool = False


def assemble(
    chunks: Iterator[Chunk],
    habits: Habits,
    options: TraceOptions,
    report: ReadReport,
    link: Callable[[Chunk], Chunk] | None = None,
) -> Iterator[TraceBatch]:
    """Batches in order of arrival from the chunks of one file.

    Args:
        chunks: What the format read.
        habits: What the format documents.
        options: What the caller wants.
        report: Gets counts and findings.
        link: Fills in sessions and parents; sees each row once, in order of arrival.

    Raises:
        TraceError: The time unit is in doubt.
    """
    clock = Clock(habits.time_unit, options.time_unit, report)
    finish = Finish(options, report, own_ids=habits.own_ids)
    spread = TickSpread(
        options.tick_s if options.spread_ticks else 0.0, np.random.default_rng(options.seed), report
    )
    for ordered in _in_order(chunks, clock, habits, options, report):
        linked = link(ordered) if link else ordered
        for ready in spread.push(finish.rebase(linked, clock.origin_s)):
            yield from finish.push(ready.rows)
    for ready in spread.flush():
        yield from finish.push(ready.rows)
    clock.finish()


def _in_order(
    chunks: Iterator[Chunk], clock: Clock, habits: Habits, options: TraceOptions, report: ReadReport
) -> Iterator[Chunk]:
    """The good rows with their arrival on the clock and prefix ids, sorted."""
    checks = RowChecks(habits.block_tokens, options, report)
    chained = _Chained(habits.content_ids, options.chain_block_ids, report)
    reorder = Reorder(options.reorder_rows, report)
    for raw in chunks:
        chunk = checks.apply(raw)
        if len(chunk):
            clock.is_date = chunk.is_date
            yield from reorder.push(chained.apply(chunk.with_rows(arrival_s=clock.seconds(chunk.stamps))))
    yield from reorder.flush()


class _Chained:
    """Makes prefix ids of content ids, where they are that."""

    def __init__(self, habit: bool, asked: bool | None, report: ReadReport) -> None:
        self._habit, self._chain, self._report = habit, asked, report

    def apply(self, chunk: Chunk) -> Chunk:
        """The chunk with prefix ids; the first ids of the file decide."""
        rows = chunk.rows
        if not len(rows.hashes):
            return chunk
        if self._chain is None:
            self._chain = self._habit or not are_prefix_ids(rows.hash_offsets, rows.hashes)
            if self._chain:
                why = (
                    "the format's block ids name contents" if self._habit else "block ids repeat behind other ids"
                )
                self._report.notes.append(f"{why}: chained into prefix ids")
        return chunk.with_rows(hashes=chain(rows.hash_offsets, rows.hashes)) if self._chain else chunk


class Finish:
    """Numbers the rows where the trace has no ids, keeps arrivals from falling, cuts batches, counts what left."""

    def __init__(self, options: TraceOptions, report: ReadReport, *, own_ids: bool, in_order: bool = True) -> None:
        self._options = options
        self._report = report
        self._own_ids = own_ids
        self._in_order = in_order
        self._shift_s: float | None = None
        self._latest_s = -np.inf

    def rebase(self, chunk: Chunk, origin_s: float) -> Chunk:
        """Arrivals from 0, or back on the file's own clock."""
        if self._shift_s is None:
            self._shift_s = -float(chunk.rows.arrival_s[0]) if self._options.rebase is not False else origin_s
        return chunk.with_rows(arrival_s=chunk.rows.arrival_s + self._shift_s)

    def push(self, batch: TraceBatch) -> Iterator[TraceBatch]:
        """Batches of at most ``batch_rows`` rows."""
        if not len(batch):
            return
        report, first = self._report, self._report.accepted
        arrival = batch.arrival_s
        if self._in_order:
            arrival = np.maximum(np.maximum.accumulate(arrival), self._latest_s)
        self._latest_s = max(self._latest_s, float(arrival.max()))
        if not first:
            report.first_s = float(arrival[0])
        report.last_s = self._latest_s
        report.accepted += len(batch)
        ids = batch.request_id if self._own_ids else np.arange(first, first + len(batch), dtype=np.int64)
        yield from cut_up(batches.with_columns(batch, arrival_s=arrival, request_id=ids), self._options.batch_rows)


def cut_up(batch: TraceBatch, rows: int) -> Iterator[TraceBatch]:
    """The same rows in batches of at most ``rows``."""
    for start in range(0, len(batch), rows):
        yield batches.cut(batch, start, start + rows)
