"""Demand and service from counters of output tokens on a Prometheus server.

A counter that does not move is a demand of zero, one that fell was reset and counts from zero, and one without a
sample is *unknown*: its commodity is held. An empty answer is unknown as well, never zero.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from data.errors import SettingError
from data.fleet.types import Fleet
from data.types import FloatArray
from models.demand.settings import ForecastSettings
from planner.demand import CommodityKey, CounterKind, DemandTable, read_counter
from planner.demand_forecast import PlanWindow, forecast_demand, known_demand
from planner.demand_history import Naming, RecordedDemand
from planner.loop.prometheus import PrometheusError, RangeSeries, query_range
from planner.loop.service_level import ServiceLevel
from planner.loop.sources import LastWindow

TOKENS = "tokenfleet_router_output_tokens_total"
GOOD = 'tokenfleet_router_output_tokens_total{met="yes"}'
LABELS = (("model", "model"), ("workload_class", "workload_class"), ("tenant", "tenant"), ("origin", "origin"))
MOST_WINDOWS = 10_000


@dataclass(frozen=True, slots=True)
class PrometheusSource:
    """Counters of output tokens.

    Attributes:
        url: Base address of the server.
        query: Counters of the tokens that requests got, with labels that tell the commodity.
        good_query: Counters of those of them that met all targets.
        labels: Name of the commodity and of the label that tells it.
        naming: Names that the labels lack.
        step_s: Windows of the forecast, seconds (1 or more).
        history_s: How far back it looks, seconds.
        timeout_s: Deadline of a query, seconds (above 0).
        settle_windows: Windows that must be known since the last gap before models may shrink.
    """

    url: str
    query: str = TOKENS
    good_query: str = GOOD
    labels: tuple[tuple[str, str], ...] = LABELS
    naming: Naming = field(default_factory=Naming)
    step_s: float = 600.0
    history_s: float = 86_400.0
    timeout_s: float = 20.0
    settle_windows: int = 3

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise SettingError(
                "not an address", field="prometheus", value=self.url, expected="http://HOST:PORT or https://..."
            )
        if not self.timeout_s > 0:
            raise SettingError("out of range", field="timeout_s", value=self.timeout_s, expected="above 0")
        if not (self.step_s >= 1 and self.step_s <= self.history_s <= self.step_s * MOST_WINDOWS):
            expected = f"1 to {MOST_WINDOWS:,} windows of 1 s or more"
            raise SettingError(
                "out of range", field="history_s", value=(self.step_s, self.history_s), expected=expected
            )

    @property
    def label(self) -> str:
        """Its address."""
        return f"Prometheus at {self.url}"

    def demand(self, fleet: Fleet, now_s: float, period_s: float) -> DemandTable:
        """A forecast for the coming period; commodities without data in the last windows are missing."""
        times = _grid(now_s, self.step_s, self.history_s)
        series = query_range(self.url, self.query, times, self.timeout_s)
        if not series:
            raise PrometheusError("the query has no series: unknown, not zero", source=self.url, value=self.query)
        recorded = recorded_counters(series, times, self.names(fleet), dict(self.labels))
        ahead = max(1, round(period_s / self.step_s))
        window = PlanWindow(last=ahead, settle_windows=self.settle_windows)
        made = forecast_demand(recorded, ForecastSettings(horizon_steps=ahead), window).demand
        recent = np.isnan(recorded.tokens_per_s[:, -self.settle_windows :])
        held = {key for row, key in enumerate(recorded.keys) if recent[row].any()}
        made = replace(made, missing=tuple(sorted({*made.missing, *held})))
        return known_demand(made, fleet)

    def level(self, fleet: Fleet, since_s: float, now_s: float) -> ServiceLevel | None:  # noqa: ARG002
        """Good and all tokens of the window; tokens that were never made are not on the server.

        ``requests`` counts hundred tokens as one, since the counters do not tell how many requests there were.
        """
        times, window_s = np.array([since_s, now_s]), now_s - since_s
        asked = query_range(self.url, self.query, times, self.timeout_s)
        good = query_range(self.url, self.good_query, times, self.timeout_s)
        offered, made = _increase(asked), _increase(good)
        if offered is None:
            return None
        return ServiceLevel((made or 0.0) / window_s, offered / window_s, offered / 100.0, since_s, now_s)

    def requests(self, fleet: Fleet, window: LastWindow) -> None:  # noqa: ARG002
        """Counters do not know requests."""
        return

    def names(self, fleet: Fleet) -> Naming:
        """The naming with the fleet's only model, class, tenant and entry where none is given."""
        entries = [site.name for site in fleet.sites if site.role == "entry"] or [
            site.name for site in fleet.sites
        ]
        only = {
            "model": [model.key for model in fleet.models],
            "workload_class": [kind.name for kind in fleet.classes],
            "tenant": [tenant.name for tenant in fleet.tenants],
            "origin": entries,
        }
        own = self.naming
        filled = {
            name: getattr(own, name) or (found[0] if len(found) == 1 else "") for name, found in only.items()
        }
        return Naming(**filled, one_tenant=own.one_tenant, scale=own.scale)


def recorded_counters(
    series: Sequence[RangeSeries], times_s: FloatArray, naming: Naming, labels: Mapping[str, str]
) -> RecordedDemand:
    """Rates of each commodity in the windows between the moments; NaN where no series of it can tell.

    Series of one commodity (instances of a service) add up. An instance whose counter begins inside a window does
    not count there: what it held before is not known.

    Args:
        series: Counters at the moments.
        times_s: Moments, equally spaced.
        naming: Names that labels lack.
        labels: Name of the commodity to the label that tells it.
    """
    step_s = float(times_s[1] - times_s[0])
    grouped: dict[CommodityKey, list[FloatArray]] = defaultdict(list)
    resets = 0
    for one in series:
        rates = np.full(len(times_s) - 1, np.nan)
        for window in range(len(rates)):
            reading = read_counter(float(one.values[window]), float(one.values[window + 1]), step_s)
            resets += reading.kind is CounterKind.RESET
            if reading.per_s is not None:
                rates[window] = reading.per_s
        names = {name: one.labels.get(label, "") for name, label in labels.items()}
        grouped[naming.key(**names)].append(rates)
    keys = tuple(sorted(grouped))
    tokens = np.array([_sum_known(grouped[key]) for key in keys]) * naming.scale
    notes = [f"{resets} counters were reset; counted from 0"] if resets else []
    unknown = np.asarray(np.isnan(tokens).all(axis=0), dtype=np.bool_)
    blank = np.full(len(keys), np.nan)
    return RecordedDemand(
        keys, tokens.copy(), tokens, blank, blank, step_s, float(times_s[-1]), unknown, tuple(notes)
    )


def _sum_known(rates: Sequence[FloatArray]) -> FloatArray:
    """Sum over instances of those that are known; NaN where none is."""
    stacked = np.stack(rates)
    return np.where(np.isnan(stacked).all(axis=0), np.nan, np.nansum(stacked, axis=0))


def _grid(now_s: float, step_s: float, history_s: float) -> FloatArray:
    """Moments on multiples of the step, so that an unchanged history gives an unchanged forecast."""
    last = int(now_s // step_s)
    windows = max(int(history_s // step_s), 1)
    return np.arange(last - windows, last + 1, dtype=np.float64) * step_s


def _increase(series: Sequence[RangeSeries]) -> float | None:
    """Sum of the increases of the series that have both samples; ``None`` if none has."""
    found = [read_counter(float(one.values[0]), float(one.values[-1]), 1.0).per_s for one in series]
    known = [value for value in found if value is not None]
    return sum(known) if known else None
