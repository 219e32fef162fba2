"""``tokenfleet check`` and ``tokenfleet schema``: validate input files, print their JSON Schemas."""

from __future__ import annotations

import json
import sys

import click

from data.fleet.reference import resolve_fleet
from planner.cli.check_targets import Verdict, check_target


@click.command()
@click.argument("targets", nargs=-1, required=True, metavar="TARGET...")
@click.option("--fleet", "fleet_name", metavar="NAME|FILE", help="Fleet that plans are checked against.")
@click.option("--strict", is_flag=True, help="Treat notices as faults.")
@click.option("--json", "as_json", is_flag=True, help="Machine output on stdout.")
def check(targets: tuple[str, ...], fleet_name: str | None, strict: bool, as_json: bool) -> None:
    """Validate fleet files, plans, traces and models: line and reason for every fault.

    A TARGET is a built-in fleet (one-pool, mixed-pool, four-sites) or the path of a fleet file (YAML), a plan
    (JSON), a trace, a model folder or a model store. Exit code 2 if any has a fault.
    """
    fleet = resolve_fleet(fleet_name) if fleet_name is not None else None
    verdicts = [check_target(target, fleet) for target in targets]
    ok = not any(verdict.problems or (strict and verdict.notices) for verdict in verdicts)
    if as_json:
        report = {"ok": ok, "targets": [verdict.as_dict() for verdict in verdicts]}
        click.echo(json.dumps(report, indent=2, ensure_ascii=False))
    else:
        for verdict in verdicts:
            _show(verdict)
    if not ok:
        sys.exit(2)


def _show(verdict: Verdict) -> None:
    count = len(verdict.problems)
    state = "ok" if count == 0 else "1 fault" if count == 1 else f"{count} faults"
    click.echo(f"{verdict.target}: {state}: {verdict.summary}")
    for problem in verdict.problems:
        click.echo(f"  {problem}")
    for notice in verdict.notices:
        click.echo(f"  notice: {notice}")


@click.command()
@click.argument("document", type=click.Choice(["fleet", "plan"]))
@click.option("--json", is_flag=True, expose_value=False, help="Machine output on stdout, as it is anyway.")
def schema(document: str) -> None:
    """Print the JSON Schema (draft 2020-12) of the fleet file or the plan document."""
    from data.fleet.schema import fleet_schema
    from data.plan_io import plan_schema

    content = fleet_schema() if document == "fleet" else plan_schema()
    click.echo(json.dumps(content, indent=2, ensure_ascii=False))
