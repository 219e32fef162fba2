"""``tokenfleet models drift``: whether the serving model still holds on a log. Imports little until it runs."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from planner.cli.store_folder import store_folder

if TYPE_CHECKING:
    import pyarrow as pa

    from data.log.reader import LogReader
    from models.drift import GroupDrift
    from models.drift_watch import DriftWatch

STEP_S = 600.0
"""The log is read in windows of this length, so that memory does not grow with it."""


@click.command()
@click.option("--log", "log", required=True, metavar="DIR", help="Log folder.")
@click.option("--store", "folder", required=True, metavar="DIR", help="Model store.")
@click.option("--version", metavar="VERSION", help="Model to judge. Default: the serving one.")
@click.option(
    "--fleet", "fleets", multiple=True, metavar="NAME|FILE", help="Fleet of the log. Default: the built-in ones."
)
@click.option(
    "--since", "since_s", type=float, default=-math.inf, help="First decision, seconds on the log's clock."
)
@click.option("--until", "until_s", type=float, default=math.inf, help="Decisions before this, seconds.")
@click.option("--json", "as_json", is_flag=True, help="Machine output on stdout.")
def drift(
    log: str,
    folder: str,
    version: str | None,
    fleets: tuple[str, ...],
    since_s: float,
    until_s: float,
    as_json: bool,
) -> None:
    """Errors of a model by GPU type and load band at the end of the log; exit code 1 if any group has drifted."""
    from data.log.reader import LogReader
    from models.drift import DriftState

    watch = _watch(folder, version, fleets)
    reader = LogReader(Path(log))
    for table in _windows(reader, since_s, until_s):
        watch.take(table)
    groups = watch.monitor.groups()
    if as_json:
        click.echo(json.dumps(_values(watch, groups, reader), indent=2))
    else:
        for name, reason in reader.report.skipped.items():
            click.echo(f"skipped {name}: {reason}", err=True)
        _print(watch, groups)
    if any(group.state is DriftState.DRIFTED for group in groups):
        sys.exit(1)


def _watch(folder: str, version: str | None, fleets: tuple[str, ...]) -> DriftWatch:
    from data.catalog.load import load_catalog
    from data.fleet.reference import REFERENCE_FLEETS, resolve_fleet
    from models.drift import DriftMonitor
    from models.drift_watch import DriftWatch
    from models.hardware import fleet_kinds
    from models.store import ModelStore

    predictor = ModelStore(store_folder(folder)).load(version)
    kinds = fleet_kinds([resolve_fleet(name) for name in fleets or REFERENCE_FLEETS], load_catalog())
    level = 0.9 if 0.9 in predictor.quantiles else predictor.quantiles[-1]
    monitor = DriftMonitor(level=level)
    monitor.follow(predictor.version, predictor.codes)
    return DriftWatch(predictor, monitor, kinds)


def _windows(reader: LogReader, since_s: float, until_s: float) -> Iterator[pa.Table]:
    """Joined rows of the asked window, in order, a part at a time."""
    import pyarrow.compute as pc

    for table in reader.iter_windows(STEP_S):
        clock = table.column("decided_s")
        rows = table.filter(pc.and_(pc.greater_equal(clock, since_s), pc.less(clock, until_s)))
        if len(rows):
            yield rows


def _values(watch: DriftWatch, groups: list[GroupDrift], reader: LogReader) -> dict[str, Any]:
    monitor = watch.monitor
    return {
        "version": monitor.version,
        "alarms": monitor.alarms,
        "recoveries": monitor.recoveries,
        "left_out": dict(watch.left_out),
        "skipped_files": reader.report.skipped,
        "groups": [
            {
                "gpu_type": group.gpu_type,
                "band": group.band,
                "target": group.target,
                "state": str(group.state),
                "outcomes": group.outcomes,
                "bias": _finite(group.bias),
                "coverage": _finite(group.coverage),
                "since_s": _finite(group.since_s),
            }
            for group in groups
        ],
    }


def _print(watch: DriftWatch, groups: list[GroupDrift]) -> None:
    from rich.console import Console
    from rich.table import Table

    monitor = watch.monitor
    table = Table(title=f"{monitor.version}: newest outcomes by GPU type and load band")
    for name in ("GPU type", "load", "target", "outcomes", "observed/predicted", "covered", "state", "since"):
        table.add_column(name, justify="left" if name in ("GPU type", "load", "target", "state") else "right")
    for group in groups:
        table.add_row(
            group.gpu_type,
            group.band,
            group.target.removesuffix("_s").upper(),
            f"{group.outcomes:,}",
            _shown(group.bias, "{:.2f}"),
            _shown(group.coverage, "{:.0%}"),
            str(group.state),
            _shown(group.since_s, "{:.0f} s"),
        )
    Console(width=max(Console().width, 100)).print(table)
    left_out = ", ".join(f"{reason} {count:,}" for reason, count in sorted(watch.left_out.items())) or "none"
    click.echo(f"alarms raised {monitor.alarms}, back by themselves {monitor.recoveries}; left out: {left_out}")


def _shown(value: float, form: str) -> str:
    return form.format(value) if math.isfinite(value) else "–"


def _finite(value: float) -> float | None:
    """JSON knows no NaN."""
    return value if math.isfinite(value) else None
