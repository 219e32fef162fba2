"""Demand, service and requests from the decision and outcome log."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from data.errors import LogError
from data.fleet.types import Fleet
from data.log.reader import LogReader
from data.types import FloatArray, Slo, Status
from models.demand.settings import ForecastSettings
from planner.demand import DemandTable
from planner.demand_forecast import PlanWindow, forecast_demand, known_demand
from planner.demand_history import Naming
from planner.demand_log import LogDemandSettings, history_from_log
from planner.loop.service_level import ServiceLevel
from planner.loop.shadow import Window
from planner.loop.sources import LastWindow
from planner.loop.window_requests import logged_window

LAG_S = 120.0
"""Windows end so long before now: a router's rows reach the files within a minute, and answers take time."""


@dataclass(frozen=True, slots=True)
class LogSource:
    """A log that routers write; see ``planner.demand_log`` for what counts as known, zero and missing.

    Attributes:
        path: Folder of the log.
        naming: Names that the log lacks.
        step_s: Windows of the forecast, seconds.
        history_s: How far back the forecast looks, seconds.
        settle_windows: Windows that must be known since the last gap before models may shrink.
    """

    path: Path
    naming: Naming = field(default_factory=Naming)
    step_s: float = 600.0
    history_s: float = 14 * 86_400.0
    settle_windows: int = 3

    @property
    def label(self) -> str:
        """Its path."""
        return f"log {self.path}"

    def demand(self, fleet: Fleet, now_s: float, period_s: float) -> DemandTable:
        """A forecast for the coming period."""
        step_s = self.step_s
        # The rows of a window that ended just now are not all in the files: it would look like a fall of demand.
        until_s = math.floor((now_s - LAG_S) / step_s) * step_s
        wanted = LogDemandSettings(step_s, max(until_s - self.history_s, 0.0), until_s)
        recorded = history_from_log(LogReader(self.path), self._names(fleet), _covered(self.path, wanted))
        first = math.floor((now_s - until_s) / step_s) + 1
        last = max(first, math.ceil((now_s + period_s - until_s) / step_s))
        window = PlanWindow(first, last, settle_windows=self.settle_windows)
        made = forecast_demand(recorded, ForecastSettings(horizon_steps=last), window)
        return known_demand(made.demand, fleet)

    def level(self, fleet: Fleet, since_s: float, now_s: float) -> ServiceLevel | None:
        """Goodput and offered tokens until two minutes ago; ``None`` if there is no row."""
        until_s = now_s - LAG_S
        if until_s <= since_s:
            return None
        rows = LogReader(self.path, look_ahead_s=LAG_S).window(since_s, until_s)
        return level_of(rows, fleet, since_s, until_s) if len(rows) else None

    def requests(self, fleet: Fleet, window: LastWindow) -> Window | None:
        """First attempts of the window."""
        until_s = window.until_s - LAG_S
        since_s = until_s - window.window_s
        rows = LogReader(self.path, look_ahead_s=LAG_S).window(since_s, until_s)
        made = logged_window(
            rows, self._names(fleet), fleet, since_s, window.window_s, window.most_requests, window.seeds
        )
        return made if made.requests else None

    def _names(self, fleet: Fleet) -> Naming:
        """The naming with the fleet's only entry as the origin, where none is given."""
        entries = [site.name for site in fleet.sites if site.role == "entry"] or [
            site.name for site in fleet.sites
        ]
        names, own = self.naming, self.naming.origin
        return Naming(
            names.model,
            names.workload_class,
            names.tenant,
            own or (entries[0] if len(entries) == 1 else ""),
            names.one_tenant,
            names.scale,
        )


def _covered(path: Path, wanted: LogDemandSettings) -> LogDemandSettings:
    """The same window, beginning where the log does if that is later.

    Raises:
        LogError: The log holds no row yet.
    """
    partitions = LogReader(path).partitions()
    if not partitions:
        raise LogError("the log holds no decision yet", source=str(path))
    since_s = wanted.since_s or 0.0
    started_later = partitions[0].since_s > since_s
    return LogDemandSettings(wanted.step_s, None if started_later else since_s, wanted.until_s)


def level_of(rows: pa.Table, fleet: Fleet, since_s: float, until_s: float) -> ServiceLevel:
    """Service of joined rows of the log.

    A request counts once, with its last attempt; its times run from its first decision and include the round trip.
    An attempt without outcome was lost or hangs: it is offered and not good. Client errors do not count.
    """
    status = _numbers(rows, "status")
    requests, member = np.unique(rows.column("request_id").to_numpy(), return_inverse=True)
    decided, attempt = _numbers(rows, "decided_s"), _numbers(rows, "attempt")
    first_s = np.full(len(requests), np.inf)
    np.minimum.at(first_s, member, decided)
    order = np.lexsort((attempt, member))
    last = order[np.append(np.flatnonzero(np.diff(member[order])), len(order) - 1)]
    last = last[status[last] != Status.CLIENT_ERROR]
    done = status[last] == Status.COMPLETED
    tokens = np.nan_to_num(_numbers(rows, "output_tokens")[last])
    mean = float(tokens[done].mean()) if done.any() else 1.0
    wait_s = decided[last] - first_s[member[last]] + np.nan_to_num(_numbers(rows, "rtt_s")[last])
    ttft, e2e = _numbers(rows, "ttft_s")[last] + wait_s, _numbers(rows, "e2e_s")[last] + wait_s
    targets = {kind.name: kind.slo for kind in fleet.classes}
    kinds = rows.column("workload_class").cast(pa.string()).to_pylist()
    met = np.array(
        [
            bool(done[i]) and targets.get(kinds[row] or "", Slo()).met(ttft[i], e2e[i], int(tokens[i]))
            for i, row in enumerate(last.tolist())
        ],
        dtype=np.bool_,
    )
    span_s = until_s - since_s
    offered = float(np.where(done, tokens, np.maximum(tokens, mean)).sum())
    good = float(tokens[met].sum()) if len(last) else 0.0
    return ServiceLevel(good / span_s, offered / span_s, float(len(last)), since_s, until_s)


def _numbers(rows: pa.Table, name: str) -> FloatArray:
    return np.asarray(rows.column(name).to_numpy(zero_copy_only=False), dtype=np.float64)
