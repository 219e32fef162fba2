"""What all arms of the contest share: fleet, measured capacities, demand, forecasts, and problems made of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.fleet_contest.demand import DAY, STEP_S, ContestDemand, contest_demand
from benchmarks.fleet_contest.forecasts import rolling_forecasts
from data.catalog.load import load_catalog
from data.fleet.load import load_fleet
from data.fleet.types import Fleet, Placed
from data.types import FloatArray, IntArray
from planner.capacity_cache import CapacityCache
from planner.capacity_table import CapacityTable, capacity_table
from planner.demand import LEVELS, DemandRow, DemandTable, demand_table
from planner.load_tests import SearchSettings
from planner.placement_input import PlacementInput, placement_input
from planner.settings import PlannerSettings
from solver.problem import PlacementProblem
from solver.settings import PlacementSettings

FLEET = Path(__file__).parent / "fleet.yaml"
VARIATION = 0.8
"""Standard deviation of lengths over their mean."""
SEARCH = SearchSettings(requests=1000, target_error=0.03, most_seeds=48)
PLANNER = PlannerSettings(
    placement=PlacementSettings(time_limit_s=5.0, mip_gap=0.005, hysteresis=0.006),
    length_variation=VARIATION,
    period_s=6 * STEP_S,
    prewarm_limit=0,
)
"""The planner's settings, but for what an arm changes. Load times are short here, so nothing is prewarmed."""


@dataclass(frozen=True, slots=True)
class Contest:
    """One seed at one load.

    Attributes:
        fleet: Worth of tokens by the value policy.
        table: Capacities, measured.
        demand: What comes true.
        quantiles: Forecasts, shape (windows, commodities, leads, levels).
        template: A problem whose placements and commodities all others share.
        worth: Shape (J,): of a token by the value policy.
        price: Shape (P,): of a replica an hour.
        load_s: Shape (P,): from start to ready.
    """

    fleet: Fleet
    table: CapacityTable
    demand: ContestDemand
    quantiles: FloatArray
    template: PlacementInput
    worth: FloatArray
    price: FloatArray
    load_s: FloatArray

    def certain(self, tokens_per_s: FloatArray, running: IntArray) -> PlacementProblem:
        """The problem of a demand, shape (J,), that is taken as certain, every token worth 1."""
        problem = self.template.problem
        jobs = problem.commodities
        width = np.zeros_like(jobs.width)
        width[:, 0] = tokens_per_s
        ones = np.ones_like(jobs.value)
        commodities = replace(jobs, width=width, value=ones, weight=np.ones(len(jobs)))
        places = replace(problem.placements, current=running)
        return replace(problem, placements=places, commodities=commodities)

    def planner_problem(
        self, quantiles: FloatArray, running: IntArray, settings: PlannerSettings, plain: bool
    ) -> PlacementProblem:
        """The planner's problem of quantiles, shape (J, levels); ``plain``: every token is worth 1."""
        fleet = _plain(self.fleet) if plain else self.fleet
        table = _table(self.demand, quantiles)
        standing = self.placed(running)
        return placement_input(fleet, self.table, table, standing, settings).problem

    def placed(self, replicas: IntArray) -> tuple[Placed, ...]:
        """Replicas as a placement of the fleet."""
        places = self.template.problem.placements
        sites = self.template.problem.sites.names
        return tuple(
            Placed(sites[int(places.site[i])], places.config[i], int(replicas[i]))
            for i in np.flatnonzero(replicas)
        )


def measured_table(fleet: Fleet, measure: bool = True) -> CapacityTable:
    """Capacities by load tests of the simulated engine (some 20 s), or by the closed form."""
    check = CapacityCache(None, SEARCH) if measure else None
    return capacity_table(fleet, load_catalog(), DemandTable(()), PLANNER, check)


def make_contest(fleet: Fleet, table: CapacityTable, load: float, seed: int, days: Sequence[int]) -> Contest:
    """Demand up to the end of the last day, and forecasts for the days (2 or later), of one seed at one load."""
    whole = contest_demand(fleet, table, load, seed)
    demand = replace(whole, tokens_per_s=whole.tokens_per_s[:, : (max(days) + 1) * DAY])
    return with_forecasts(fleet, table, demand, rolling_forecasts(demand, days))


def with_forecasts(fleet: Fleet, table: CapacityTable, demand: ContestDemand, quantiles: FloatArray) -> Contest:
    """The same with forecasts that exist already."""
    mean = demand.tokens_per_s.mean(axis=1)
    rows = _table(demand, np.repeat(mean[:, None], len(LEVELS), axis=1))
    template = placement_input(fleet, table, rows, (), PLANNER)
    capacities = template.capacities
    price = np.array([c.price_per_hour for c in capacities])
    load_s = np.array([c.facts.load_s for c in capacities])
    return Contest(
        fleet, table, demand, quantiles, template, template.problem.commodities.weight.copy(), price, load_s
    )


def contest_fleet() -> Fleet:
    """The three-region fleet."""
    return load_fleet(FLEET)


def _plain(fleet: Fleet) -> Fleet:
    """Every token worth 1."""
    models = tuple(replace(model, token_value=0.5) for model in fleet.models)
    classes = tuple(replace(kind, weight=1.0) for kind in fleet.classes)
    return replace(fleet, models=models, classes=classes)


def _table(demand: ContestDemand, quantiles: FloatArray) -> DemandTable:
    return demand_table(
        DemandRow(*key, tuple(map(float, row))) for key, row in zip(demand.keys, quantiles, strict=True)
    )
