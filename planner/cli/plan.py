"""``tokenfleet plan``: one planning step, and looking at plans."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from data.errors import InputError, SettingError
from data.fleet.types import Fleet
from data.plan import PlanDocument, PlanStatus
from planner.cli.output_file import output_file
from planner.cli.plan_store import history, kubernetes
from planner.cli.plan_text import print_diff, print_plan
from planner.demand import DemandTable
from planner.plan_diff import plan_diff

if TYPE_CHECKING:
    from planner.capacity_cache import CapacityCache

MAX_BINS = 1_000_000
"""Rate bins of one window at the most: two years of minutes, eight megabytes for each commodity."""


@click.group(invoke_without_command=True)
@click.option("--fleet", "fleet_name", metavar="NAME|FILE", help="Built-in fleet or fleet file.")
@click.option("--demand", "demand_file", type=click.Path(path_type=Path), help="Demand file (YAML or JSON).")
@click.option("--trace", "trace_file", type=click.Path(path_type=Path), help="Take the demand from a trace.")
@click.option(
    "--demand-log",
    "demand_log",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Forecast the demand from this log, in windows of --bin.",
)
@click.option("--format", "trace_format", metavar="NAME", help="Format of the trace; default: by content.")
@click.option(
    "--start",
    "start_s",
    type=click.FloatRange(-1e12, 1e12),
    default=0.0,
    show_default=True,
    help="Window start in the trace, s.",
)
@click.option(
    "--end", "end_s", type=click.FloatRange(-1e12, 1e12), help="Window end in the trace, s; default: its end."
)
@click.option(
    "--bin",
    "bin_s",
    type=click.FloatRange(0.1, 1e9),
    default=60.0,
    show_default=True,
    help="Width of one rate bin, s.",
)
@click.option("--model", default="", help="Model of requests that name none.")
@click.option("--class", "workload_class", default="", help="Class of requests that name none.")
@click.option("--tenant", default="", help="Tenant of requests that name none.")
@click.option("--origin", default="", help="Origin site of requests that name none; default: the entry site.")
@click.option(
    "--scale",
    type=click.FloatRange(0, 1e9, min_open=True),
    default=1.0,
    show_default=True,
    help="Factor on all demand of the trace.",
)
@click.option("--running", "running_file", type=click.Path(path_type=Path), help="Plan in force (JSON).")
@click.option("--out", type=click.Path(path_type=Path), help="Where the plan is written (JSON).")
@click.option(
    "--time-limit",
    "time_limit_s",
    type=click.FloatRange(0, 86_400, min_open=True),
    default=20.0,
    show_default=True,
    help="Solver time, s.",
)
@click.option("--protect", multiple=True, metavar="MODEL", help="Model that must survive the loss of a site.")
@click.option("--freeze", multiple=True, metavar="SITE", help="Site where nothing may move.")
@click.option(
    "--capacity-cache",
    "capacity_cache",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Measured capacities; those that are missing are measured and kept there.",
)
@click.option(
    "--capacity-limit",
    "capacity_limit_s",
    type=click.FloatRange(0, 86_400),
    default=20.0,
    show_default=True,
    help="Time to measure capacities, s; what is left is planned by the closed form.",
)
@click.option("--strict-inventory", is_flag=True, help="Refuse to plan while a GPU inventory is unknown.")
@click.option("--deterministic", is_flag=True, help="Audit mode: stop by nodes and gap, not by the clock.")
@click.option("--strict", is_flag=True, help="Exit with 3 if the plan breaks a promise.")
@click.option("--json", "as_json", is_flag=True, help="The plan as JSON on stdout.")
@click.pass_context
def plan(ctx: click.Context, /, **options: Any) -> None:
    """Solve one planning step: where replicas stand, which site serves what, how pools are split.

    A plan is always written; promises that it cannot keep stand under "unmet", and --strict makes them an error.
    """
    if ctx.invoked_subcommand is None:
        run_plan(options)


def run_plan(options: dict[str, Any]) -> None:
    """The planning step behind the command line; ends the process with its exit code."""
    from data.catalog.load import load_catalog
    from data.fleet.reference import resolve_fleet
    from data.plan_io import plan_to_json, read_plan, write_plan
    from planner.service import plan_once

    if options["fleet_name"] is None:
        raise click.UsageError("--fleet is needed")
    out = output_file(options["out"])
    fleet = resolve_fleet(options["fleet_name"])
    demand = _demand(options, fleet)
    running = read_plan(options["running_file"]) if options["running_file"] else None
    check = _capacity_check(options)
    made = plan_once(fleet, load_catalog(), demand, running, _settings(options, fleet), check=check)
    if check is not None and check.unknown:
        click.echo(f"{check.unknown} capacities are not measured yet: closed form", err=True)
    if out is not None:
        write_plan(made, out)
    if options["as_json"]:
        click.echo(plan_to_json(made), nl=False)
    else:
        print_plan(made)
    if options["strict"] and breaks_promise(made):
        click.echo("error: the plan breaks a promise (see unmet)", err=True)
        sys.exit(3)


def breaks_promise(made: PlanDocument) -> bool:
    """Whether a reservation or the cover of a site's loss is missed."""
    return made.status is PlanStatus.INFEASIBLE or any(
        row.what in ("reservation", "site_loss") for row in made.unmet
    )


def _settings(options: dict[str, Any], fleet: Fleet) -> Any:
    from planner.settings import PlannerSettings
    from solver.settings import PlacementSettings

    known = {"protect": [model.key for model in fleet.models], "freeze": [site.name for site in fleet.sites]}
    for name, names in known.items():
        for value in options[name]:
            if value not in names:
                raise InputError(
                    f"not in fleet {fleet.name}", field=f"--{name}", value=value, expected=", ".join(names)
                )
    placement = PlacementSettings(time_limit_s=options["time_limit_s"], deterministic=options["deterministic"])
    return PlannerSettings(
        placement=placement,
        protected_models=tuple(options["protect"]),
        frozen_sites=tuple(options["freeze"]),
        strict_inventory=options["strict_inventory"],
    )


def _capacity_check(options: dict[str, Any]) -> CapacityCache | None:
    if options["capacity_cache"] is None:
        return None
    from planner.capacity_cache import CapacityCache

    return CapacityCache(output_file(options["capacity_cache"]), limit_s=options["capacity_limit_s"])


def _demand(options: dict[str, Any], fleet: Fleet) -> DemandTable:
    from data.traces.registry import open_trace
    from planner.demand_file import read_demand
    from planner.demand_trace import TraceWindow, demand_from_trace

    if sum(options[name] is not None for name in ("demand_file", "trace_file", "demand_log")) != 1:
        raise click.UsageError("give exactly one of --demand, --trace and --demand-log")
    if options["demand_log"] is not None:
        return _log_demand(options, fleet)
    if options["demand_file"] is not None:
        return read_demand(options["demand_file"], fleet)
    names = ("start_s", "end_s", "bin_s", "model", "workload_class", "tenant", "origin", "scale")
    window = TraceWindow(**{name: options[name] for name in names})
    if window.end_s is not None and (window.end_s - window.start_s) / window.bin_s > MAX_BINS:
        expected = f"at most {MAX_BINS:,} bins from --start to --end"
        raise SettingError("too narrow for this window", field="--bin", value=window.bin_s, expected=expected)
    reader = open_trace(options["trace_file"], options["trace_format"])
    return demand_from_trace(reader.batches(), fleet, window)


def _log_demand(options: dict[str, Any], fleet: Fleet) -> DemandTable:
    """The forecast for the next planning period from a log's windows."""
    from data.log.reader import LogReader
    from models.demand.settings import ForecastSettings
    from planner.demand_forecast import PlanWindow, forecast_demand, known_demand
    from planner.demand_history import Naming
    from planner.demand_log import LogDemandSettings, history_from_log
    from planner.settings import PlannerSettings

    entries = [site.name for site in fleet.sites if site.role == "entry"] or [site.name for site in fleet.sites]
    names = {name: options[name] for name in ("model", "workload_class", "tenant", "scale")}
    naming = Naming(**names, origin=options["origin"] or (entries[0] if len(entries) == 1 else ""))
    since_s = options["start_s"] or None
    wanted = LogDemandSettings(options["bin_s"], since_s, options["end_s"])
    recorded = history_from_log(LogReader(options["demand_log"]), naming, wanted)
    ahead = max(1, round(PlannerSettings().period_s / options["bin_s"]))
    made = forecast_demand(recorded, ForecastSettings(horizon_steps=ahead), PlanWindow(last=ahead))
    return known_demand(made.demand, fleet)


@plan.command()
@click.argument("place", metavar="FILE|DIR[@VERSION]")
@click.option("--json", "as_json", is_flag=True, help="Machine output on stdout.")
def show(place: str, as_json: bool) -> None:
    """Show a plan: of a file, of a plan store (the one in force), or one version of a store."""
    from data.plan_io import plan_to_json
    from planner.cli.plan_place import plan_at

    found = plan_at(place)
    if as_json:
        click.echo(plan_to_json(found), nl=False)
    else:
        print_plan(found)


@plan.command()
@click.argument("old", metavar="OLD")
@click.argument("new", metavar="NEW")
@click.option("--json", "as_json", is_flag=True, help="Machine output on stdout.")
def diff(old: str, new: str, as_json: bool) -> None:
    """Show what changes from plan OLD to plan NEW, each a FILE, DIR or DIR@VERSION."""
    from planner.cli.plan_place import plan_at

    changes = plan_diff(plan_at(old), plan_at(new))
    if as_json:
        click.echo(json.dumps(changes.as_dict(), indent=2, ensure_ascii=False))
    else:
        print_diff(changes)


plan.add_command(history)
plan.add_command(kubernetes)
