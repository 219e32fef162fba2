"""``tokenfleet trace stats``: what a trace is like, in one pass."""

from __future__ import annotations

import json
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from data.errors import TraceError
from data.traces.stats import Spread, TraceStats, describe
from planner.cli.trace_options import open_reading, reading_options
from planner.cli.trace_report import show_report, watched


@click.command()
@reading_options
def stats(**reading: Any) -> None:
    """Describe the trace INPUT: rate, burstiness, lengths, ideal prefix reuse, sessions, tenants.

    Reads in one pass and bounded memory. Every refused row is counted by reason.
    """
    opened = open_reading(reading)
    found = describe(watched(opened.reader))
    report = opened.reader.report
    if opened.as_json:
        click.echo(json.dumps({"stats": found.as_dict(), "report": report.as_dict()}, indent=2))
    else:
        console = Console()
        show_report(report, console)
        if found.rows:
            console.print(_table(found))
    if not found.rows:
        raise TraceError("no usable row", source=report.source)


def _table(found: TraceStats) -> Table:
    table = Table(title="statistics", title_justify="left", show_header=False)
    table.add_row("requests", f"{found.rows:,}")
    table.add_row("span", f"{found.span_s:,.1f} s")
    table.add_row("rate", f"{found.rate_per_s:,.4g} req/s")
    gaps = "gap CV of session starts" if found.closed_loop_turns else "gap CV"
    table.add_row(gaps, f"{found.gap_cv:.3g}")
    table.add_row("busiest minute over mean", f"{found.busiest_minute_ratio:.3g}")
    table.add_row("input tokens", _spread(found.input_tokens))
    table.add_row("output tokens", _spread(found.output_tokens))
    if found.ideal_hit_share is not None:
        bound = "at least " if found.ideal_hit_is_bound else ""
        blocks = f"{found.blocks:,} blocks of {found.block_tokens} tokens"
        table.add_row("ideal prefix hit", f"{bound}{found.ideal_hit_share:.1%} of prompt tokens, {bound}{blocks}")
    at_least = "at least " if found.names_are_bound else ""
    if found.sessions is not None:
        table.add_row("sessions", f"{at_least}{found.sessions:,}")
    if found.tenants is not None:
        table.add_row("tenants", f"{at_least}{found.tenants:,}")
    if found.think_time_p50_s is not None:
        table.add_row("closed-loop turns", f"{found.closed_loop_turns:,}")
        table.add_row("think time p50", f"{found.think_time_p50_s:.3g} s")
    return table


def _spread(spread: Spread) -> str:
    return (
        f"p50 {spread.p50:,.0f}, p90 {spread.p90:,.0f}, p99 {spread.p99:,.0f}, "
        f"mean {spread.mean:,.1f}, most {spread.most:,.0f}"
    )
