"""``tokenfleet forecast``: demand ahead from a trace or demand table, as a file that ``tokenfleet plan`` reads."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from planner.cli.run_progress import RunProgress

if TYPE_CHECKING:
    from models.demand.settings import ForecastSettings
    from planner.demand_forecast import DemandForecast
    from planner.demand_history import Naming, RecordedDemand


@click.command()
@click.argument("input_path", metavar="INPUT", required=False, type=click.Path(path_type=Path))
@click.option("--log", "log", type=click.Path(path_type=Path), metavar="DIR", help="Log folder instead of INPUT.")
@click.option("--since", "since_s", type=float, help="Count the log from here on its clock, s.")
@click.option("--until", "until_s", type=float, help="Count the log up to here on its clock, s.")
@click.option("--from", "format_name", metavar="NAME", help="Format of INPUT [by content].")
@click.option("--lengths", type=click.Path(path_type=Path), help="Length distributions of a demand table.")
@click.option(
    "--step", "step_s", type=float, default=600.0, show_default=True, help="Window, s; a demand table has its own."
)
@click.option("--horizon", "horizon_s", type=float, default=86_400.0, show_default=True, help="Look ahead, s.")
@click.option("--plan-for", "plan_s", type=float, default=3600.0, show_default=True, help="Planning window, s.")
@click.option("--peak", is_flag=True, help="Plan for its busiest window rather than its mean.")
@click.option("--season", "season_s", type=float, default=86_400.0, show_default=True, help="Season, s.")
@click.option("--levels", default="0.1,0.2,0.5,0.8,0.9,0.95", show_default=True, help="Quantile levels.")
@click.option("--fits", type=int, default=4, show_default=True, help="Fits of the back-test.")
@click.option("--refit", "refit_s", type=float, default=86_400.0, show_default=True, help="Time between them, s.")
@click.option("--model", default="", help="Model of requests that name none.")
@click.option("--class", "workload_class", default="", help="Class of requests that name none.")
@click.option("--tenant", default="", help="Tenant of requests that name none.")
@click.option("--one-tenant", default="", metavar="NAME", help="Count all requests as this tenant's.")
@click.option("--origin", default="", help="Origin site of requests that name none.")
@click.option("--scale", type=float, default=1.0, show_default=True, help="Factor on all rates.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of all draws.")
@click.option("--threads", type=click.IntRange(min=1), default=1, show_default=True, help="OpenMP threads.")
@click.option("--out", type=click.Path(path_type=Path), help="Where the demand file is written.")
@click.option("--json", "as_json", is_flag=True, help="Machine output on stdout.")
def forecast(**options: Any) -> None:
    """Forecast the demand of each commodity and write it as a demand file.

    INPUT is a trace or a demand table; with --log it is counted from what the router or a simulation logged.

    Forecasters compete on a back-test with a rolling origin; a series is forecast by its winner, or by its last
    value where nothing beats that on held-out windows.
    """
    from data.atomic_file import write_text_atomic
    from models.demand.catalogue import forecasters
    from planner.demand_forecast import PlanWindow, demand_file_text, forecast_demand

    recorded = _recorded(options)
    settings = _settings(options, recorded.step_s)
    window = PlanWindow(last=_steps(options["plan_s"], recorded.step_s), peak=options["peak"])
    with RunProgress("back-test", len(forecasters(settings)) * settings.fits) as progress:
        made = forecast_demand(recorded, settings, window, progress.advance)
    if options["out"] is not None:
        write_text_atomic(options["out"], demand_file_text(made))
    if options["as_json"]:
        click.echo(json.dumps(as_dict(made, recorded), indent=2, ensure_ascii=False))
    else:
        from planner.cli.forecast_text import print_forecast

        print_forecast(made)


def as_dict(made: DemandForecast, recorded: RecordedDemand) -> dict[str, Any]:
    """Plain values for JSON; a loss that is infinite or was not measured is null."""
    ahead, demand = made.forecast, made.demand
    horizon = ahead.quantiles.shape[1]
    return {
        "now_s": ahead.now_s,
        "step_s": ahead.step_s,
        "levels": list(ahead.levels),
        "target_s": [ahead.target_s(lead) for lead in range(1, horizon + 1)],
        "windows": len(recorded.outage),
        "outage_windows": int(recorded.outage.sum()),
        "clamped": ahead.clamped,
        "failures": dict(ahead.test.failures) if ahead.test else {},
        "notes": list(demand.notes),
        "bands": [list(band) for band in ahead.bands],
        "series": [
            {"name": name, "forecaster": list(used), "loss": _losses(made, row),
             "quantiles": ahead.quantiles[row].round(9).tolist()}
            for row, (name, used) in enumerate(zip(ahead.names, ahead.used, strict=True))
        ],
        "demand": [{"key": list(row.key), "quantiles": list(row.quantiles)} for row in demand.rows],
        "missing": [list(key) for key in demand.missing],
    }  # fmt: skip


def _losses(made: DemandForecast, row: int) -> dict[str, list[float | None]]:
    ahead = made.forecast
    if ahead.choice is None or ahead.test is None:
        return {}
    held_out = ahead.choice.held_out
    return {
        name: [float(value) if math.isfinite(value) else None for value in held_out[place, row]]
        for place, name in enumerate(ahead.test.names)
    }


def _steps(seconds: float, step_s: float) -> int:
    return max(1, round(seconds / step_s))


def _settings(options: dict[str, Any], step_s: float) -> ForecastSettings:
    from models.demand.settings import ForecastSettings
    from planner.cli.train import _levels

    return ForecastSettings(
        levels=_levels(options["levels"]),
        horizon_steps=max(_steps(options["horizon_s"], step_s), _steps(options["plan_s"], step_s)),
        season_s=options["season_s"],
        near_steps=_steps(3600.0, step_s),
        refit_every_steps=_steps(options["refit_s"], step_s),
        fits=options["fits"],
        seed=options["seed"],
        threads=options["threads"],
    )


def _naming(options: dict[str, Any]) -> Naming:
    from planner.demand_history import Naming

    names = ("model", "workload_class", "tenant", "origin", "one_tenant", "scale")
    return Naming(**{name: options[name] for name in names})


def _recorded(options: dict[str, Any]) -> RecordedDemand:
    if (options["input_path"] is None) == (options["log"] is None):
        raise click.UsageError("give INPUT or --log, one of the two")
    if options["log"] is not None:
        from data.log.reader import LogReader
        from planner.demand_log import LogDemandSettings, history_from_log

        wanted = LogDemandSettings(options["step_s"], options["since_s"], options["until_s"])
        return history_from_log(LogReader(options["log"]), _naming(options), wanted)
    return _recorded_file(options)


def _recorded_file(options: dict[str, Any]) -> RecordedDemand:
    """A trace or a demand table."""
    from data.traces.registry import open_trace
    from data.traces.report import ReadReport
    from data.traces.servegen_lengths import read_lengths
    from data.traces.servegen_rates import read_demand
    from data.traces.source import TextSource
    from planner.demand_history import history_from_trace, history_from_windows

    reader = open_trace(options["input_path"], options["format_name"])
    if reader.format.name != "servegen":
        found = history_from_trace(reader.batches(), _naming(options), options["step_s"])
        _tell(reader.report)
        return found
    report = ReadReport(source=str(options["input_path"]), format="servegen")
    demand = read_demand(TextSource(options["input_path"]), report)
    lengths = read_lengths(TextSource(options["lengths"]), report) if options["lengths"] is not None else None
    _tell(report)
    return history_from_windows(demand, lengths, _naming(options))


def _tell(report: Any) -> None:
    for reason, tally in sorted(report.rejected.items()):
        click.echo(f"{tally.count} rows left out: {reason} ({tally.detail})", err=True)
