"""``tokenfleet simulate``: one policy, one seed, one run."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from data.errors import InputError
from data.log.settings import LogSettings
from data.log.writer import LogWriter
from planner.arm import Arm, check_arm, parse_arm, parse_settings
from planner.cli.command_line import command_line
from planner.cli.output_file import output_file
from planner.cli.run_progress import RunProgress
from planner.cli.scenario_options import ScenarioChoice, build_scenario, scenario_options
from planner.cli.store_folder import store_folder
from planner.compare import ArmRuns, Comparison
from planner.plan_execution import read_plans
from planner.report.build import build_report
from planner.report.html import write_report
from planner.report.machine import run_values, to_json
from planner.report.table import print_tables
from planner.report.tables import comparison_tables
from planner.report.why import explain
from planner.scenario import Scenario
from planner.sim.result import RunResult
from planner.trace_source import TraceFacts


@click.command()
@scenario_options
@click.option(
    "--policy",
    required=True,
    metavar="NAME[+FLOW][@RULE]",
    help="Routing policy, a flow control in front of it, a choice of site.",
)
@click.option("--set", "pairs", multiple=True, metavar="KEY=VALUE", help="Setting of the policy. May be repeated.")
@click.option(
    "--plan", metavar="FILE|DIR", help="Run on this plan's placement; a folder's plans are carried out in turn."
)
@click.option("--log", "log", metavar="DIR", help="Write decisions and outcomes to this new or empty folder.")
def simulate(
    policy: str, pairs: tuple[str, ...], plan: str | None, log: str | None, seed: int, model_store: str | None,
    drift_guard: bool, html: str | None, as_json: bool, **shared: Any,
) -> None:  # fmt: skip
    """Run a trace through a fleet with one routing policy, and show what came of it.

    The same options give the same result. The log trains latency models (`tokenfleet train`).
    """
    report_path = output_file(html)
    if model_store is not None:
        store_folder(model_store)
    arm = parse_arm(policy, model_store, plan)
    arm = replace(arm, settings={**arm.settings, **parse_settings(pairs)}, drift_guard=drift_guard)
    check_arm(arm)
    scenario = build_scenario(ScenarioChoice(**shared))
    scenario.check(arm)
    facts = scenario.facts(seed)
    result = _run(scenario, arm, seed, facts, None if log is None else Path(log))
    comparison = Comparison((ArmRuns(arm, (result,)),), (seed,), arm.name)
    if report_path is not None:
        planned = None if plan is None else read_plans(plan)[0].plan
        made_at = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
        title = f"{policy} on {scenario.fleet.name}"
        write_report(
            build_report(
                title, scenario, facts, comparison, plan=planned, command=command_line(), made_at=made_at
            ),
            report_path,
        )
    if as_json:
        click.echo(to_json(run_values(result)))
        return
    print_tables(comparison_tables(comparison))
    for sentence in explain(comparison):
        click.echo(sentence)


def _run(scenario: Scenario, arm: Arm, seed: int, facts: TraceFacts, log: Path | None) -> RunResult:
    span_s = max(1, round(facts.span_s))
    with RunProgress(f"simulating {arm.name}, s", span_s) as progress, _new_log(log) as sink:
        return scenario.run(arm, seed, sink, lambda now_s: progress.at(min(round(now_s), span_s), ""))


@contextmanager
def _new_log(folder: Path | None) -> Iterator[LogWriter | None]:
    """A log that appears under its name only when the run is whole; otherwise nothing stays."""
    if folder is None:
        yield None
        return
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(
            "not an empty folder", source=str(folder), field="--log", expected="a new or empty folder"
        )
    try:
        folder.absolute().parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".part", dir=folder.absolute().parent))
    except OSError as error:
        raise InputError(f"cannot be made: {error.strerror}", source=str(folder), field="--log") from error
    try:
        with LogWriter(aside, LogSettings(rotate_age_s=None), writer_id="run") as writer:
            yield writer
        aside.chmod(0o755)
        aside.replace(folder)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
