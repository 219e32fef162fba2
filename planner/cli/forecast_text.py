"""A forecast for people: how the forecasters did, who serves, and the demand that follows."""

from __future__ import annotations

from collections import Counter

import numpy as np
from rich.console import Console
from rich.table import Table

from models.demand.forecast import Forecast
from planner.demand import LEVELS
from planner.demand_forecast import DemandForecast

ROWS = 30


def print_forecast(made: DemandForecast) -> None:
    """Tables and notes on stdout."""
    console = Console()
    ahead = made.forecast
    if ahead.test is not None:
        console.print(_competition(ahead))
    console.print(_demand(made))
    for note in made.demand.notes:
        console.print(note, markup=False)


def _competition(ahead: Forecast) -> Table:
    assert ahead.test is not None
    assert ahead.choice is not None
    table = Table(title="Weighted quantile loss on held-out windows, median over series")
    table.add_column("Forecaster")
    for first, last in ahead.bands:
        table.add_column(f"{first * ahead.step_s:g}–{last * ahead.step_s:g} s", justify="right")
        table.add_column("serves", justify="right")
    table.add_column("clamped", justify="right")
    table.add_column("seconds", justify="right")
    for place, name in enumerate(ahead.test.names):
        cells = []
        for band in range(len(ahead.bands)):
            loss = ahead.choice.held_out[place, :, band]
            known = loss[~np.isnan(loss)]
            serves = Counter(row[band] for row in ahead.used)[name]
            cells += [f"{np.median(known):.4g}" if len(known) else "–", str(serves)]
        clamped, seconds = ahead.test.clamped.get(name, 0), ahead.test.seconds.get(name, 0.0)
        table.add_row(name, *cells, str(clamped), f"{seconds:.1f}")
    return table


def _demand(made: DemandForecast) -> Table:
    title = "Demand over the planning window, output tokens/s"
    table = Table(title=title if len(made.demand.rows) <= ROWS else f"{title}: the {ROWS} largest")
    for name in ("Model", "Class", "Tenant", "Origin"):
        table.add_column(name)
    for level in LEVELS:
        table.add_column(f"{level:.0%}", justify="right")
    for row in sorted(made.demand.rows, key=lambda row: -row.median)[:ROWS]:
        table.add_row(*row.key, *(f"{value:.5g}" for value in row.quantiles))
    return table
