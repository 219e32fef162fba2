"""The planner as a scaler: traffic of the last ticks → forecast → planning step → number of workers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.replay.workload import MOST_WORKERS, fleet
from data.catalog.load import Catalog
from models.capacity_check import CapacityCheck
from models.demand.settings import ForecastSettings
from planner.demand_forecast import PlanWindow, forecast_demand
from planner.demand_history import RecordedDemand
from planner.service import plan_once
from planner.settings import PlannerSettings
from solver.linear import ModelSolver
from solver.settings import PlacementSettings

KEY = ("assistant@v1", "interactive", "default", "main")
NO_SEASON_S = 1e8
BACKTEST_S = 100.0
"""From one fit of the back-test to the next."""


@dataclass(frozen=True, slots=True)
class ScalerSettings:
    """What is tuned.

    Attributes:
        tick_s: From one planning step to the next.
        gpu_worth_share: See ``PlannerSettings``.
        period_s: Period over which a start must pay.
        pool_replicas: See ``PlannerSettings``.
    """

    tick_s: float = 10.0
    gpu_worth_share: float = 0.2
    period_s: float = 400.0
    pool_replicas: int = 4


class PlannerScaler:
    """Remembers the traffic and plans at each tick.

    Args:
        settings: What is tuned.
        catalog: Step times.
        check: Measured capacities.
        solve: Solver of linear models, kept over the run.
        load_s: From a start to ready; the plan is for the windows up to one after it.
        season_s: Season that the forecast is told of, seconds; infinite = none.
    """

    def __init__(
        self,
        settings: ScalerSettings,
        catalog: Catalog,
        check: CapacityCheck,
        solve: ModelSolver,
        load_s: float,
        season_s: float,
    ) -> None:
        self._settings, self._catalog, self._check, self._solve = settings, catalog, check, solve
        self._lead = math.ceil(load_s / settings.tick_s)
        self._season_s = season_s
        self._requests: list[float] = []
        self._prompt, self._output = 1700.0, 200.0

    def wanted(self, message: dict[str, Any]) -> int:
        """Workers wanted from now on."""
        self._observe(message["traffic"] or {})
        running = int(message["workers"])
        s = self._settings
        settings = PlannerSettings(
            placement=PlacementSettings(time_limit_s=5.0),
            pool_replicas=s.pool_replicas,
            period_s=s.period_s,
            gpu_worth_share=s.gpu_worth_share,
            prewarm_limit=0,
        )
        demand = forecast_demand(self._recorded(), self._forecast(), self._window()).demand
        plan = plan_once(
            fleet(running), self._catalog, demand, None, settings, solve=self._solve, check=self._check
        )
        replicas = sum(row.replicas for row in plan.replicas)
        return min(max(replicas, 1), MOST_WORKERS)

    def _observe(self, traffic: dict[str, Any]) -> None:
        """Requests of the tick; lengths of those that ended, smoothed."""
        span = float(traffic.get("duration_s") or self._settings.tick_s)
        self._requests.append(float(traffic.get("num_req", 0.0)) / span)
        ended = float(traffic.get("shape_count", 0.0))
        share = ended / (ended + 100.0)
        for name, key in (("_prompt", "avg_isl"), ("_output", "avg_osl")):
            seen = float(traffic.get(key) or 0.0)
            if seen > 0:
                setattr(self, name, (1 - share) * getattr(self, name) + share * seen)

    def _recorded(self) -> RecordedDemand:
        rates, count, step = np.array([self._requests]), len(self._requests), self._settings.tick_s
        means = np.array([self._prompt]), np.array([self._output])
        outage = np.zeros(count, dtype=bool)
        return RecordedDemand(
            (KEY,), rates, rates * self._output, *means, step, count * step, outage, (), np.array([0.75])
        )

    def _forecast(self) -> ForecastSettings:
        return ForecastSettings(
            season_s=min(self._season_s, NO_SEASON_S),
            horizon_steps=self._lead + 1,
            near_steps=1,
            origin_every_steps=1,
            refit_every_steps=max(round(BACKTEST_S / self._settings.tick_s), 1),
            fits=2,
            short_term=True,
        )

    def _window(self) -> PlanWindow:
        """The busiest window until a start of the next tick is ready: a stop of now bears on the first already."""
        return PlanWindow(1, self._lead + 1, peak=True, settle_windows=1)
