"""``tokenfleet train``: latency models from the decision and outcome log."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from data.errors import SettingError
from planner.cli.command_line import command_line
from planner.cli.output_file import output_file
from planner.cli.ray_option import ray_option, training_backend
from planner.cli.run_progress import RunProgress
from planner.priority import PRIORITIES, Priority, lowered_priority

if TYPE_CHECKING:
    from planner.retrain import Retrained, RetrainJob


@click.command()
@click.option("--log", "logs", multiple=True, metavar="DIR", help="Log folder; repeat it, one for each run.")
@click.option(
    "--public", "public", multiple=True, metavar="SOURCE=PATH", help="Public latency log instead; may be repeated."
)
@click.option("--store", required=True, metavar="DIR", help="Model store; made when missing.")
@click.option(
    "--fleet", "fleets", multiple=True, metavar="NAME|FILE", help="Fleet of the log. Default: the built-in ones."
)
@click.option("--since", "since_s", type=float, default=0.0, help="First decision, seconds on the log's clock.")
@click.option("--until", "until_s", type=float, default=math.inf, help="Decisions before this, seconds.")
@click.option("--quantiles", default="0.5,0.9", show_default=True, help="Levels to fit, 0.5 among them.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of all draws.")
@click.option("--threads", type=click.IntRange(min=1), default=1, show_default=True, help="OpenMP threads.")
@click.option(
    "--priority",
    type=click.Choice(PRIORITIES),
    default="low",
    show_default=True,
    help="Of this process: 'low' and 'idle' leave the processor to those who serve.",
)
@ray_option
@click.option("--promote/--no-promote", default=True, help="Let the model serve if it wins.  [default: promote]")
@click.option(
    "--report", "html", metavar="FILE", help="Page with plots.  [default: reports/VERSION.html in the store]"
)
@click.option("--json", "as_json", is_flag=True, help="Machine output on stdout.")
def train(
    logs: tuple[str, ...], public: tuple[str, ...], store: str, fleets: tuple[str, ...], since_s: float,
    until_s: float, quantiles: str, seed: int, threads: int, priority: Priority, ray: str | None, promote: bool,
    html: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Train TTFT and TPOT models from logged runs, check and publish them.

    The new version serves (is promoted) only if it passes the release checks and beats both the closed-form prior
    and the model that serves now on the newest part of the log.
    """
    from models.store import ModelStore
    from planner.cli.model_tables import print_report
    from planner.report.machine import to_json
    from planner.report.train_tables import gate_reason
    from planner.retrain import retrain, steps_of

    if Path(store).exists() and not Path(store).is_dir():
        raise SettingError("not a folder", field="--store", value=store, expected="a model store, or a new folder")
    if not since_s < until_s:
        raise SettingError("no window", field="--since", value=since_s, expected=f"seconds before {until_s:g}")
    job = _job(logs, fleets, (since_s, until_s), _levels(quantiles), (seed, threads), promote)
    job = replace(job, public=_sources(public, logs))
    if ray is not None and public:
        raise click.UsageError("--ray reads --log only; public logs are small enough for this machine")
    page = output_file(html)
    with (
        lowered_priority(priority),
        training_backend(ray, Path(store)) as backend,
        RunProgress("training", steps_of(job)) as progress,
    ):
        done = retrain(job, ModelStore(Path(store)), progress.advance, backend)
    card = done.trained.card
    page = _write_page(done, page or Path(store) / "reports" / f"{done.version}.html", (*logs, *public))
    if as_json:
        values: dict[str, Any] = {
            "version": done.version,
            "promoted": done.promoted,
            "reasons": list(done.verdict.reasons),
            "data": card.data,
            "report": card.report,
            "checks": card.checks,
            "importance": card.importance,
            "skipped_files": done.skipped_files,
            "page": str(page),
        }
        click.echo(to_json(values))
        return
    for name, reason in done.skipped_files.items():
        click.echo(f"skipped {name}: {reason}", err=True)
    print_report(card)
    state = "promoted" if done.promoted else "published, not promoted"
    click.echo(f"{done.version}: {state}")
    click.echo(f"  {gate_reason(card)}")
    click.echo(f"report: {page}")


def _write_page(done: Retrained, path: Path, sources: Sequence[str]) -> Path:
    """Write the training's report and give its path."""
    from planner.report.train_data import TrainReport, target_views
    from planner.report.train_html import write_train_report

    path.parent.mkdir(exist_ok=True)
    report = TrainReport(
        card=replace(done.trained.card, version=done.version),
        promoted=done.promoted,
        views=target_views(done.trained.predictor, done.trained.test),
        sources=tuple(sources),
        skipped=tuple(done.skipped_files.items()),
        command=command_line(),
    )
    write_train_report(report, path)
    return path


def _job(
    logs: tuple[str, ...],
    fleets: tuple[str, ...],
    window_s: tuple[float, float],
    quantiles: tuple[float, ...],
    seed_threads: tuple[int, int],
    promote: bool,
) -> RetrainJob:
    from data.catalog.load import load_catalog
    from data.fleet.reference import REFERENCE_FLEETS, resolve_fleet
    from models.gbm import BoostSettings
    from models.hardware import fleet_kinds
    from models.training import TrainingSettings
    from planner.retrain import RetrainJob

    known = [resolve_fleet(name) for name in fleets or REFERENCE_FLEETS]
    seed, threads = seed_threads
    return RetrainJob(
        logs=[Path(log) for log in logs],
        kinds=fleet_kinds(known, load_catalog()),
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        since_s=window_s[0],
        until_s=window_s[1],
        promote=promote,
        settings=TrainingSettings(quantiles=quantiles, boost=BoostSettings(seed=seed, threads=threads)),
    )


def _sources(public: tuple[str, ...], logs: tuple[str, ...]) -> list[tuple[str, Path]]:
    """Source and path of each public log; a usage error unless there is exactly one kind of log."""
    if bool(public) == bool(logs):
        raise click.UsageError("give --log or --public, one of the two")
    pairs = [text.partition("=") for text in public]
    for source, _, path in pairs:
        if not (source and path):
            raise SettingError(
                "not SOURCE=PATH", field="--public", value=source, expected="such as vtc=runs.csv.gz"
            )
    return [(source, Path(path)) for source, _, path in pairs]


def _levels(text: str) -> tuple[float, ...]:
    try:
        return tuple(sorted(float(part) for part in text.split(",")))
    except ValueError as error:
        expected = "levels such as 0.5,0.9"
        raise SettingError("not a list of numbers", field="--quantiles", value=text, expected=expected) from error
