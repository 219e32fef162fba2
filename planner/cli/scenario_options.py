"""Options that ``simulate`` and ``compare`` share: which fleet, which requests, which run settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from data.errors import InputError, SettingError
from data.fleet.reference import resolve_fleet
from data.fleet.types import Fleet
from data.traces.options import TraceOptions
from planner.arm import parse_settings
from planner.cli.specs import failure_event, length_classes, name_rule, site_failure, synth_trace
from planner.scenario import Scenario, sim_settings
from planner.sim.settings import SimSettings
from planner.trace_source import FileTrace, Shaped, TraceSource

Command = TypeVar("Command", bound=Callable[..., Any])

OPTIONS = (
    click.option("--fleet", "fleet", required=True, metavar="NAME|FILE", help="Built-in fleet or fleet file."),
    click.option("--trace", "trace", metavar="FILE", help="Trace file; its format is recognised by content."),
    click.option("--from", "format_", metavar="FORMAT", help="Format of the trace file [by content]."),
    click.option("--max-rows", type=click.IntRange(1), help="Read at most so many rows of the trace file."),
    click.option(
        "--synth", multiple=True, metavar="PROFILE:RATE:DURATION[:CLASS]",
        help="Synthetic requests instead of a trace: mean requests/s over so many seconds. May be repeated.",
    ),
    click.option(
        "--assign", multiple=True, metavar="COLUMN=NAME:WEIGHT,...",
        help="Fill a column (model, tenant, class, origin) that the trace leaves blank. May be repeated.",
    ),
    click.option(
        "--class-by-length", "class_by_length", metavar="NAME:TOKENS,...,NAME",
        help="Give requests a class by prompt length, such as interactive:8000,long_context.",
    ),
    click.option(
        "--sample", type=float, default=1.0, show_default=True,
        help="Share of the sessions that take part, drawn by the seed.",
    ),
    click.option(
        "--within-context", "within_context", type=click.IntRange(1), metavar="TOKENS",
        help="Leave out requests whose prompt and output are longer, and the turns that follow them.",
    ),
    click.option("--speed", type=float, default=1.0, show_default=True, help="Factor on the arrival rate."),
    click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed (of the first run)."),
    click.option(
        "--sim", "sim", multiple=True, metavar="KEY=VALUE",
        help="Run setting, such as retries=2 or scrape_period_s=1. May be repeated.",
    ),
    click.option(
        "--failure", multiple=True, metavar="KIND:ENDPOINT:AT:DURATION[:FACTOR]",
        help="Crash, slow or hang one endpoint (row number) at a moment, for so many seconds. May be repeated.",
    ),
    click.option(
        "--site-failure", "site_failure", multiple=True, metavar="KIND:SITE[/PEER]:AT:DURATION[:FACTOR]",
        help="Lose or slow a site, or cut a link (link_cut:A/B:...), for so many seconds. May be repeated.",
    ),
    click.option("--model-store", metavar="DIR", help="Latency models for policies that predict; else the prior."),
    click.option(
        "--drift-guard/--no-drift-guard", default=False, show_default=True,
        help="Where the latency model drifts during the run, the prior answers.",
    ),
    click.option("--html", "html", type=click.Path(dir_okay=False), help="Also write the report to this file."),
    click.option("--json", "as_json", is_flag=True, help="Machine output on stdout."),
)  # fmt: skip


def scenario_options(command: Command) -> Command:
    """Add the shared options to a command, in order."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True)
class ScenarioChoice:
    """The shared options as given."""

    fleet: str
    trace: str | None
    format_: str | None
    max_rows: int | None
    synth: tuple[str, ...]
    assign: tuple[str, ...]
    class_by_length: str | None
    sample: float
    within_context: int | None
    speed: float
    sim: tuple[str, ...]
    failure: tuple[str, ...]
    site_failure: tuple[str, ...] = ()


def build_scenario(choice: ScenarioChoice) -> Scenario:
    """The scenario that the options describe.

    Raises:
        InputError: The fleet, the trace or an option is wrong; nothing was run.
    """
    fleet = resolve_fleet(choice.fleet)
    source = _source(choice, fleet)
    if not 1e-9 <= choice.speed <= 1e9:
        raise SettingError("out of range", field="--speed", value=choice.speed, expected="1e-9 to 1e9")
    if not 0 < choice.sample <= 1:
        raise SettingError("out of range", field="--sample", value=choice.sample, expected="above 0, at most 1")
    rules = tuple(name_rule(text) for text in choice.assign)
    classes = None if choice.class_by_length is None else length_classes(choice.class_by_length)
    values = parse_settings(choice.sim)
    base = SimSettings(
        failures=tuple(failure_event(text) for text in choice.failure),
        site_failures=tuple(site_failure(text) for text in choice.site_failure),
    )
    shaped = Shaped(source, choice.speed, rules, classes, choice.sample, choice.within_context)
    return Scenario(fleet, shaped, sim_settings(values, base))


def _source(choice: ScenarioChoice, fleet: Fleet) -> TraceSource:
    if (choice.trace is None) == (not choice.synth):
        raise InputError(
            "no requests, or two kinds of them", field="--trace", expected="either --trace or --synth"
        )
    if choice.trace is None:
        return synth_trace(fleet, choice.synth)
    if not Path(choice.trace).is_file():
        problem = "no plain file: it is read more than once" if Path(choice.trace).exists() else "no such file"
        raise InputError(problem, source=choice.trace, field="--trace", expected="a trace file")
    return FileTrace(choice.trace, choice.format_, TraceOptions(max_rows=choice.max_rows))
