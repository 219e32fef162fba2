"""``tokenfleet demo``: the whole loop on the built-in reference fleet, in minutes."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path

import click

from data.errors import SettingError
from planner.cli.command_line import command_line
from planner.cli.plan_text import print_plan
from planner.cli.run_progress import RunProgress
from planner.demo.loop import DemoResult, run_demo
from planner.demo.settings import DemoSettings
from planner.report.machine import comparison_values, to_json
from planner.report.table import print_tables
from planner.report.tables import comparison_tables
from planner.report.why import explain

MARKER = ".tokenfleet-demo"
"""Stands in a folder that an earlier demo made and that this one may therefore clear."""


@click.command()
@click.option("--out", default="out/demo", show_default=True, type=click.Path(path_type=Path), help="Folder.")
@click.option("--seeds", type=click.IntRange(1), default=5, show_default=True, help="Seeds of the comparison.")
@click.option("--rate", type=float, default=DemoSettings().rate_per_s, show_default=True, help="Requests/s.")
@click.option(
    "--duration", type=float, default=DemoSettings().duration_s, show_default=True, help="Simulated seconds."
)
@click.option("--json", "as_json", is_flag=True, help="Machine output on stdout.")
def demo(out: Path, seeds: int, rate: float, duration: float, as_json: bool) -> None:
    """Run the whole loop on four sites: log, train, plan, route beside the usual policies, report.

    Six tenants send a synthetic trace; the fleet is simulated. Writes logs, latency models, plan.json and
    report.html below --out.
    """
    settings = DemoSettings(rate_per_s=rate, duration_s=duration, seeds=seeds)
    prepare(out)
    made_at = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    result = run_demo(out, settings, made_at, command_line(), RunProgress)
    if as_json:
        click.echo(to_json({"comparison": comparison_values(result.comparison), "report": str(result.report)}))
    else:
        show(result)


def prepare(folder: Path) -> None:
    """An empty folder with the marker; clears one that an earlier demo made.

    Raises:
        SettingError: The folder holds something that no demo made, or is none.
        OSError: It cannot be made or written to.
    """
    if folder.exists() and not folder.is_dir():
        raise SettingError("not a folder", field="--out", value=str(folder), expected="a new folder")
    if folder.exists() and any(folder.iterdir()):
        if not (folder / MARKER).exists():
            raise SettingError(
                "folder is not empty and no demo made it",
                field="--out",
                value=str(folder),
                expected="a new folder",
            )
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARKER).touch()


def show(result: DemoResult) -> None:
    """The plan, the tables and what they mean, for people."""
    for target, name in (("ttft_s", "TTFT"), ("tpot_s", "TPOT")):
        model = result.retrained.trained.report.overall(target)
        prior = result.retrained.trained.prior_report.overall(target)
        click.echo(
            f"{name} model {result.retrained.version} on the newest window: quantile loss {model.loss:.3f}, prior"
            f" {prior.loss:.3f}; median error {model.median_error:.1%}, prior {prior.median_error:.1%}"
        )
    print_plan(result.plan)
    print_tables(comparison_tables(result.comparison))
    for sentence in explain(result.comparison):
        click.echo(sentence)
    click.echo(f"Report: {result.report}")
