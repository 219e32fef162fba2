"""A forecast of recorded demand as the planner reads it: one row a commodity over the planning window."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from data.errors import SettingError
from data.fleet.types import Fleet
from data.types import FloatArray
from models.demand.forecast import Forecast, forecast
from models.demand.settings import ForecastSettings
from planner.demand import LEVELS, DemandRow, DemandTable, demand_table
from planner.demand_history import RecordedDemand
from planner.demand_trace import unknown_name

SETTLE_WINDOWS = 3
MOST_VARIATION = 20.0
"""Variation of prompts that a demand file may give."""


@dataclass(frozen=True, slots=True)
class PlanWindow:
    """Which windows ahead the plan is for.

    Attributes:
        first, last: Leads, windows (1 or more). A start takes effect after loading, a stop at once: a plan that
            may do both looks from the next window to the one in which a start of the next step is ready.
        peak: Plan for the busiest of them rather than for their mean.
        settle_windows: While fewer windows than this are known since the last gap, models hold what runs
            (1 or more).
    """

    first: int = 1
    last: int = 6
    peak: bool = False
    settle_windows: int = SETTLE_WINDOWS

    def __post_init__(self) -> None:
        if not 1 <= self.first <= self.last:
            raise SettingError("out of order", field="first", value=self.first, expected=f"1 to {self.last}")
        if self.settle_windows < 1:
            raise SettingError(
                "out of range", field="settle_windows", value=self.settle_windows, expected="1 or more"
            )


@dataclass(frozen=True, slots=True)
class DemandForecast:
    """Forecast of both rates, and the demand that follows from it."""

    forecast: Forecast
    demand: DemandTable


def forecast_demand(
    recorded: RecordedDemand,
    settings: ForecastSettings,
    window: PlanWindow,
    progress: Callable[[str], None] | None = None,
) -> DemandForecast:
    """Forecast the rates of requests and output tokens, and take the planner's quantiles over the planning window.

    While the source is silent, or has been back for fewer than ``settle_windows``, every commodity is also listed
    as missing: the plan may grow on the forecast, and does not shrink (F115).
    """
    if window.last > settings.horizon_steps:
        raise SettingError(
            "beyond the horizon", field="last", value=window.last, expected=f"at most {settings.horizon_steps}"
        )
    levels = tuple(sorted({*settings.levels, *LEVELS}))
    made = forecast(recorded.history(), replace(settings, levels=levels), progress=progress)
    columns = [levels.index(level) for level in LEVELS]
    count = len(recorded.keys)
    tokens = made.quantiles[count:, window.first - 1 : window.last][:, :, columns]
    quantiles = tokens.max(axis=1) if window.peak else tokens.mean(axis=1)
    rows = [
        DemandRow(*key, tuple(map(float, quantiles[row])), _length(recorded.input_tokens, row),
                  _length(recorded.output_tokens, row), _variation(recorded, row))
        for row, key in enumerate(recorded.keys)
    ]  # fmt: skip
    unsettled = bool(recorded.outage[-window.settle_windows :].any())
    notes = [*recorded.notes, *made.notes]
    if unsettled:
        notes.append(f"the last {window.settle_windows} windows are not all known: models hold what runs")
    return DemandForecast(made, demand_table(rows, recorded.keys if unsettled else (), notes))


def known_demand(demand: DemandTable, fleet: Fleet) -> DemandTable:
    """Without the commodities whose names the fleet does not know; the notes count and name them."""
    problems: Counter[str] = Counter()
    for row in demand.rows:
        if problem := unknown_name(row.key, fleet):
            problems[problem] += 1
    notes = [f"{count} commodities left out: {what}" for what, count in sorted(problems.items())]
    rows = [row for row in demand.rows if not unknown_name(row.key, fleet)]
    held = [key for key in demand.missing if not unknown_name(key, fleet)]
    return replace(demand, rows=tuple(rows), missing=tuple(held), notes=(*demand.notes, *notes))


def demand_file_text(made: DemandForecast) -> str:
    """The demand as a file that ``tokenfleet plan --demand`` reads."""
    held = set(made.demand.missing)
    start = made.forecast.now_s
    lines = [
        f"# Forecast made at {start:g} s. Output tokens/s at {', '.join(f'{level:.0%}' for level in LEVELS)}."
    ]
    lines += [f"# {note}" for note in made.demand.notes]
    lines.append("demand:" if made.demand.rows else "demand: []")
    for row in made.demand.rows:
        entry: dict[str, object] = dict(
            zip(("model", "workload_class", "tenant", "origin"), row.key, strict=True),
            quantiles=[float(f"{value:.7g}") for value in row.quantiles],
        )
        if row.input_tokens is not None and row.output_tokens is not None:
            entry |= {"input_tokens": round(row.input_tokens, 3), "output_tokens": round(row.output_tokens, 3)}
        if row.input_variation is not None:
            entry["input_variation"] = round(row.input_variation, 4)
        if row.key in held:
            entry["missing"] = True
        lines.append(f"  - {json.dumps(entry, ensure_ascii=False)}")
    return "\n".join(lines) + "\n"


def _length(means: FloatArray, row: int) -> float | None:
    value = float(means[row])
    return max(value, 1.0) if np.isfinite(value) else None


def _variation(recorded: RecordedDemand, row: int) -> float | None:
    if recorded.input_variation is None or not np.isfinite(recorded.input_variation[row]):
        return None
    return min(float(recorded.input_variation[row]), MOST_VARIATION)
