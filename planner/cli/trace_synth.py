"""``tokenfleet trace synth``: make up a trace that looks like a real one."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from data.errors import SettingError, TraceError
from data.synth.arrivals import Diurnal, HotSpell
from data.synth.assign import Assignment
from data.synth.mix import mix, tenant_streams
from data.synth.profiles import PROFILES
from data.traces.stats import StatsCollector, TraceStats
from data.types import TraceBatch
from planner.cli.trace_output import output_format, write_trace

LINE_EVERY_S = 5.0


@click.command()
@click.argument("profile", type=click.Choice(sorted(PROFILES)))
@click.argument("output_path", metavar="OUTPUT", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--rate", "rate_per_s", type=float, required=True, help="Mean requests per second.")
@click.option("--duration", "duration_s", type=float, required=True, help="Length of the trace in seconds.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of all draws.")
@click.option("--to", "target", type=click.Choice(["native", "mooncake"]), help="Format [by the suffix].")
@click.option("--model", default="", help="Model of all requests, NAME@VERSION.")
@click.option("--class", "workload_class", default="", help="Workload class of all requests.")
@click.option("--tenant", "tenants", multiple=True, help="A tenant; given more than once, they share the rate.")
@click.option(
    "--zipf", "exponent", type=float, default=1.0, show_default=True, help="Tenant k sends k^-ZIPF times as much."
)
@click.option("--origin", "origins", multiple=True, metavar="NAME[:SHARE]", help="Where requests enter.")
@click.option(
    "--hot-spell",
    "hot_spells",
    multiple=True,
    metavar="ORIGIN:START:END:FACTOR",
    help="Between these seconds sessions of ORIGIN start FACTOR times as often.",
)
@click.option("--daily-peak", type=float, help="Peak over mean of a daily curve that peaks at 14 h [flat].")
@click.option("--json", "as_json", is_flag=True, help="Machine output on stdout.")
def synth(
    profile: str,
    output_path: Path,
    rate_per_s: float,
    duration_s: float,
    seed: int,
    target: str | None,
    model: str,
    workload_class: str,
    tenants: tuple[str, ...],
    exponent: float,
    origins: tuple[str, ...],
    hot_spells: tuple[str, ...],
    daily_peak: float | None,
    as_json: bool,
) -> None:
    """Write a synthetic trace that looks like PROFILE to OUTPUT (.parquet, or .jsonl in Mooncake's format).

    The profiles are fitted to the published statistics of real traces: conversation and document (Mooncake), chat
    and code (Azure), agentic (coding agents, closed loop), batch (long documents off line). The same options give
    the same file. OUTPUT appears complete or not at all.
    """
    target = output_format(target, output_path)
    assigns = [
        Assignment(
            model=model,
            tenant=tenant,
            workload_class=workload_class,
            origins=tuple(_origin(text) for text in origins) or (("", 1.0),),
            hot_spells=tuple(_hot_spell(text) for text in hot_spells),
            diurnal=Diurnal(daily_peak) if daily_peak is not None else None,
        )
        for tenant in tenants or ("",)
    ]
    streams = tenant_streams(PROFILES[profile], rate_per_s, assigns, exponent=exponent)
    collector = StatsCollector()
    batches = _watched(mix(streams, duration_s=duration_s, seed=seed), duration_s, collector.add)
    rows = write_trace(_some(batches), target, output_path)
    _show(profile, output_path, target, rows, collector.result(), as_json)


def _some(batches: Iterator[TraceBatch]) -> Iterator[TraceBatch]:
    """The same batches; a trace without any request is an error before the output appears."""
    empty = True
    for batch in batches:
        empty = False
        yield batch
    if empty:
        raise TraceError("no request falls into this time", expected="a longer duration or a higher rate")


def _watched(
    batches: Iterator[TraceBatch], duration_s: float, note: Callable[[TraceBatch], None]
) -> Iterator[TraceBatch]:
    """The same batches, each noted; a progress bar on a terminal's stderr and a line every 5 s elsewhere."""
    on_terminal = sys.stderr.isatty()
    columns = (TextColumn("making up"), BarColumn(), TextColumn("{task.percentage:.0f} %"), TimeRemainingColumn())
    told_s = time.monotonic()
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not on_terminal) as bar:
        task = bar.add_task("making up", total=duration_s)
        for batch in batches:
            note(batch)
            until_s = float(batch.arrival_s[-1])
            bar.update(task, completed=until_s)
            if not on_terminal and time.monotonic() - told_s >= LINE_EVERY_S:
                told_s = time.monotonic()
                click.echo(f"making up: {until_s / duration_s:.0%}", err=True)
            yield batch


def _show(profile: str, path: Path, target: str, rows: int, stats: TraceStats, as_json: bool) -> None:
    if as_json:
        answer = {
            "output": str(path),
            "format": target,
            "profile": profile,
            "rows": rows,
            "stats": stats.as_dict(),
        }
        click.echo(json.dumps(answer, indent=2))
        return
    console = Console(highlight=False, markup=False)
    console.print(f"{rows:,} requests like {profile} written to {path} ({target})")
    for name, spread in (("input", stats.input_tokens), ("output", stats.output_tokens)):
        console.print(f"{name} tokens: p50 {spread.p50:,.0f}, p90 {spread.p90:,.0f}, p99 {spread.p99:,.0f}")
    console.print(
        f"rate {stats.rate_per_s:.4g} req/s, gap CV {stats.gap_cv:.3g}, "
        f"busiest minute {stats.busiest_minute_ratio:.3g} times the mean"
    )
    if stats.ideal_hit_share is not None:
        at_least = "at least " if stats.ideal_hit_is_bound else ""
        console.print(f"ideal prefix hit: {at_least}{stats.ideal_hit_share:.1%} of prompt tokens")


def _origin(text: str) -> tuple[str, float]:
    name, colon, share = text.rpartition(":")
    if not colon:
        return text, 1.0
    try:
        return name, float(share)
    except ValueError as error:
        raise SettingError("no share", field="--origin", value=text, expected="NAME or NAME:SHARE") from error


def _hot_spell(text: str) -> HotSpell:
    parts = text.rsplit(":", 3)
    try:
        origin, since_s, until_s, factor = parts[0], *map(float, parts[1:])
    except ValueError as error:
        expected = "ORIGIN:START:END:FACTOR"
        raise SettingError("no hot spell", field="--hot-spell", value=text, expected=expected) from error
    return HotSpell(origin, since_s, until_s, factor)
