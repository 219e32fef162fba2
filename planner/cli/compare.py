"""``tokenfleet compare``: policies side by side on the same requests, with intervals."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from data.atomic_file import write_text_atomic
from data.errors import SettingError
from planner.arm import Arm, parse_arm
from planner.attainment_level import find_load
from planner.cli.command_line import command_line
from planner.cli.output_file import output_file
from planner.cli.ray_option import ray_option, run_pool
from planner.cli.run_progress import RunProgress
from planner.cli.scenario_options import ScenarioChoice, build_scenario, scenario_options
from planner.cli.store_folder import store_folder
from planner.compare import Comparison, check_comparison
from planner.compare import compare as run_comparison
from planner.load_level import LoadLevel, LoadSearch
from planner.plan_execution import read_plans
from planner.report.build import build_report, load_text
from planner.report.html import write_report
from planner.report.machine import comparison_values, to_json
from planner.report.numbers import plain
from planner.report.table import print_tables, to_markdown
from planner.report.tables import comparison_tables, difference_summary
from planner.report.why import explain
from planner.run_pool import RunPool, default_workers
from planner.scenario import Scenario
from planner.sim.result import RunResult

RUNNING = "running"
"""What ``--plan`` calls the fleet's own placement."""


@click.command()
@scenario_options
@click.option(
    "--policies",
    required=True,
    metavar="NAME[:KEY=VALUE...][+FLOW...],...",
    help="Policies, each with its settings.",
)
@click.option("--reference", metavar="NAME", help="Policy that differences are taken against [the first].")
@click.option(
    "--seeds", type=click.IntRange(1), default=5, show_default=True, help="Seeds; 5 or more for intervals."
)
@click.option("--workers", type=click.IntRange(1), help="Processes [one a processor].")
@ray_option
@click.option(
    "--plan",
    "plans",
    multiple=True,
    metavar="FILE|DIR",
    help="Run every policy on this plan, or on a folder's in turn; 'running' = the fleet's own. May be repeated.",
)
@click.option("--attainment", type=float, help="Search the speed at which --at has this attainment (0 to 1).")
@click.option("--at", "at", metavar="NAME", help="Policy for --attainment [the reference].")
@click.option("--markdown", type=click.Path(dir_okay=False), help="Also write the tables to this Markdown file.")
def compare(
    policies: str, reference: str | None, seeds: int, workers: int | None, ray: str | None, plans: tuple[str, ...],
    attainment: float | None, at: str | None, seed: int, model_store: str | None, markdown: str | None,
    drift_guard: bool, html: str | None, as_json: bool, **shared: Any,
) -> None:  # fmt: skip
    """Run policies on the same requests and say which gave more Goodput, and how sure that is.

    Every policy runs with every seed; the same seed means the same arrivals, lengths, noise and failures, so
    differences are taken seed by seed. A policy that loses stays in the tables.
    """
    report_path, markdown_path = output_file(html), output_file(markdown)
    if model_store is not None:
        store_folder(model_store)
    arms = [replace(arm, drift_guard=drift_guard) for arm in _arms(policies, plans or (RUNNING,), model_store)]
    base = _named(arms, "--reference", reference)
    run_seeds = range(seed, seed + seeds)
    check_comparison(arms, run_seeds, base.name)
    scenario = build_scenario(ScenarioChoice(**shared))
    for arm in arms:
        scenario.check(arm)
    facts = scenario.facts(seed)
    load = None
    with run_pool(ray, workers or default_workers(len(arms) * seeds)) as pool:
        if attainment is not None:
            scenario, load = _at_load(scenario, _named(arms, "--at", at or base.name), run_seeds, attainment, pool)
            facts = scenario.facts(seed)
        result = _compare(scenario, arms, run_seeds, base.name, pool)
    if report_path is not None:
        shown = next((arm.plan_path for arm in arms if arm.plan_path is not None), None)
        write_report(
            build_report(
                f"{len(arms)} policies on {scenario.fleet.name}" if len(arms) > 1 else arms[0].name,
                scenario,
                facts,
                result,
                plan=None if shown is None else read_plans(shown)[0].plan,
                load=load,
                command=command_line(),
                made_at=f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
            ),
            report_path,
        )
    if markdown_path is not None:
        write_text_atomic(markdown_path, to_markdown(comparison_tables(result)))
    _show(result, load, as_json)


def _arms(policies: str, plans: tuple[str, ...], model_store: str | None) -> list[Arm]:
    """Every policy on every placement; the placement is named where there are several."""
    arms = []
    for text in policies.split(","):
        for plan in plans:
            arm = parse_arm(text, model_store, None if plan == RUNNING else plan)
            place = plan if plan == RUNNING else Path(plan).stem
            name = arm.name if len(plans) == 1 else f"{arm.name} on {place}"
            arms.append(replace(arm, name=name))
    return arms


def _named(arms: list[Arm], option: str, name: str | None) -> Arm:
    """The arm that an option names; the first one by default."""
    if name is None:
        return arms[0]
    for arm in arms:
        if arm.name == name:
            return arm
    listed = ", ".join(arm.name for arm in arms)
    raise SettingError("not one of the policies", field=option, value=name, expected=listed)


def _at_load(
    scenario: Scenario, arm: Arm, seeds: range, target: float, pool: RunPool
) -> tuple[Scenario, LoadLevel]:
    search = LoadSearch(target, start_speed=scenario.trace.speed)
    with RunProgress(f"speed for {target:.0%} with {arm.name}", search.max_trials) as progress:
        load = find_load(
            scenario, arm, seeds, search, pool,
            on_trial=lambda speed, value: progress.advance(f"speed {speed:.3g}: {value:.1%}"),
        )  # fmt: skip
    return scenario.at_speed(load.speed), load


def _compare(scenario: Scenario, arms: list[Arm], seeds: range, reference: str, pool: RunPool) -> Comparison:
    with RunProgress("comparing", len(arms) * len(seeds)) as progress:

        def done(arm: Arm, seed: int, run: RunResult) -> None:
            rate = plain(run.total.goodput_tokens_per_s)
            progress.advance(f"{arm.name}, seed {seed}: {rate} tokens/s")

        return run_comparison(arms, scenario.run, seeds, reference=reference, on_done=done, pool=pool)


def _show(result: Comparison, load: LoadLevel | None, as_json: bool) -> None:
    if as_json:
        values = comparison_values(result)
        if load is not None:
            values["load_level"] = {
                "speed": load.speed, "attainment": load.attainment, "reached": load.reached, "trials": load.trials
            }  # fmt: skip
        click.echo(to_json(values))
        return
    tables = comparison_tables(result)
    if len(result.arms) > 1:
        tables.insert(1, difference_summary(result))
    print_tables(tables)
    if load is not None:
        click.echo(f"Load level {load_text(load)}.")
    for sentence in explain(result):
        click.echo(sentence)
