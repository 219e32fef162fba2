"""``tokenfleet trace convert``: write a trace in another format, changed on the way if asked for."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, get_args

import click
from rich.console import Console

from data.errors import SettingError, TraceError
from data.traces import transform
from data.traces.batches import TEXT_COLUMNS
from data.traces.transform import Assignment, Field
from data.types import TraceBatch
from planner.cli.trace_options import Reading, open_reading, reading_options
from planner.cli.trace_output import output_format, write_trace
from planner.cli.trace_report import show_report, watched


@click.command()
@reading_options
@click.argument("output_path", metavar="OUTPUT", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--to", "target", type=click.Choice(["native", "mooncake"]), help="Format of OUTPUT [by its suffix]."
)
@click.option("--window", metavar="START:END", help="Keep arrivals of these seconds; either side may be empty.")
@click.option(
    "--sample-sessions", type=float, metavar="SHARE", help="Keep this share of the sessions, each whole."
)
@click.option("--speed", type=float, help="Make arrivals so many times as dense.")
@click.option(
    "--assign",
    "assignments",
    multiple=True,
    metavar="COLUMN=NAME:WEIGHT,...",
    help="Fill model, tenant, workload_class or origin at random in these shares; may be given more than once.",
)
def convert(
    output_path: Path,
    target: str | None,
    window: str | None,
    sample_sessions: float | None,
    speed: float | None,
    assignments: tuple[str, ...],
    **reading: Any,
) -> None:
    """Read the trace INPUT and write it to OUTPUT in TokenFleet's own format (.parquet) or Mooncake's (.jsonl).

    OUTPUT appears complete or not at all. Every refused row is counted by reason. The steps are applied in this
    order: window, sample, speed, assign.
    """
    target = output_format(target, output_path)
    opened = open_reading(reading)
    rows: Iterable[TraceBatch] = watched(opened.reader)
    if window is not None:
        rows = transform.window(rows, *_window(window), rebase=opened.options.rebase is not False)
    if sample_sessions is not None:
        rows = transform.sample_sessions(rows, sample_sessions, opened.options.seed)
    if speed is not None:
        rows = transform.scale_arrivals(rows, speed)
    if assignments:
        rows = transform.assign(rows, [_assignment(text) for text in assignments], opened.options.seed)
    lost: set[str] = set()
    some = _some(_noting(rows, lost), opened.reader.report.source)
    written = write_trace(some, target, output_path)
    _show(opened, output_path, target, written, sorted(lost) if target == "mooncake" else [])


def _some(rows: Iterable[TraceBatch], source: str) -> Iterator[TraceBatch]:
    """The same batches; a trace without any row is an error before the output appears."""
    count = 0
    for batch in rows:
        count += len(batch)
        yield batch
    if not count:
        raise TraceError("no usable row", source=source)


def _noting(rows: Iterable[TraceBatch], lost: set[str]) -> Iterator[TraceBatch]:
    """The same batches; names of filled columns that Mooncake's format has no place for go into ``lost``."""
    for batch in rows:
        lost.update(name for name in TEXT_COLUMNS if any(getattr(batch, name)))
        if batch.parent_id is not None:
            lost.add("parent_id")
        yield batch


def _show(opened: Reading, path: Path, target: str, written: int, lost: list[str]) -> None:
    report = opened.reader.report
    if opened.as_json:
        answer = {"output": str(path), "format": target, "rows": written, "lost": lost, "report": report.as_dict()}
        click.echo(json.dumps(answer, indent=2))
        return
    console = Console()
    show_report(report, console)
    console.print(f"{written:,} requests written to {path} ({target})", highlight=False, markup=False)
    if lost:
        console.print(f"not kept, the format has no place for it: {', '.join(lost)}", highlight=False)


def _window(text: str) -> tuple[float, float]:
    start, colon, end = text.partition(":")
    try:
        bounds = (float(start) if start else -math.inf, float(end) if end else math.inf)
    except ValueError:
        bounds = (math.nan, math.nan)
    if not colon or math.isnan(bounds[0]) or math.isnan(bounds[1]):
        raise SettingError("no window", field="--window", value=text, expected="START:END in seconds")
    return bounds


def _assignment(text: str) -> Assignment:
    column, equals, names = text.partition("=")
    expected = "COLUMN=NAME:WEIGHT,... with COLUMN one of " + ", ".join(get_args(Field))
    shares: dict[str, float] = {}
    try:
        for part in names.split(","):
            name, colon, weight = part.rpartition(":")
            shares[name if colon else weight] = float(weight) if colon else 1.0
    except ValueError as error:
        raise SettingError("no weight", field="--assign", value=text, expected=expected) from error
    if column not in get_args(Field) or not equals or "" in shares:
        raise SettingError("no assignment", field="--assign", value=text, expected=expected)
    return Assignment(column, shares)  # type: ignore[arg-type]
