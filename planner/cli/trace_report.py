"""Tables about a trace that was read: where its rows went, and progress while it is read."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

import click
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from data.traces.registry import TraceReader
from data.traces.report import ReadReport, Tally
from data.types import TraceBatch

LINE_EVERY_S = 5.0


def watched(reader: TraceReader) -> Iterator[TraceBatch]:
    """The reader's batches, with a progress bar on a terminal's stderr and a line every 5 s elsewhere."""
    total = reader.progress[1]
    if sys.stderr.isatty():
        columns = (TextColumn("reading"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("reading", total=total)
            for batch in reader.batches():
                bar.update(task, completed=reader.progress[0])
                yield batch
        return
    told = time.monotonic()
    for batch in reader.batches():
        if time.monotonic() - told >= LINE_EVERY_S:
            told = time.monotonic()
            done = reader.progress[0] / max(1, total)
            click.echo(f"reading: {done:.0%}, {reader.report.accepted} rows accepted", err=True)
        yield batch


def show_report(report: ReadReport, console: Console) -> None:
    """Counts of rows, every reason and rule, how time and blocks were understood."""
    table = Table(title=f"{escape(report.source)} ({report.format})", title_justify="left", show_header=False)
    table.add_row("rows read", f"{report.rows:,}")
    table.add_row("accepted", f"{report.accepted:,}")
    table.add_row("rejected", f"{report.rejected_rows:,}")
    for reason, tally in sorted(report.rejected.items()):
        table.add_row(f"  {reason}", _told(tally), style="red")
    for rule, tally in sorted(report.repaired.items()):
        table.add_row(f"  {rule} (kept)", _told(tally), style="yellow")
    if report.time_unit:
        table.add_row("time unit", escape(f"{report.time_unit}: {report.time_unit_reason}"))
    for reading in report.clock_readings:
        table.add_row(f"  read as {reading.unit}", f"{reading.span_s:,.6g} s, {reading.rate_per_s:,.4g} req/s")
    if report.tick_s:
        table.add_row("tick", f"{report.tick_s:.6g} s, arrivals spread inside it")
    if report.block_tokens:
        table.add_row("block size", escape(f"{report.block_tokens} tokens: {report.block_reason}"))
    for note in report.notes:
        table.add_row("note", escape(note))
    console.print(table)


def _told(tally: Tally) -> str:
    places = f", first at line {', '.join(map(str, tally.lines))}" if tally.lines else ""
    return escape(f"{tally.count:,}{places}" + (f": {tally.detail}" if tally.detail else ""))
