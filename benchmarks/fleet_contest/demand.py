"""Eleven days of demand for the three-region fleet, driven by the ServeGen rates of two tiers.

The clients of ``m-mid`` become customers of the small models, those of ``m-large`` of the large ones. A seed
draws for each client its model, its region, whether it must be served there (a quarter), and whether its work
is batch (a fifth). A client with more than 5 % of its tier is a customer in all three regions, may be served
anywhere and is interactive. Regions live on clocks eight hours apart: their series are shifted, with the seam
in the first day.

What is taken from the tables is how each client's rate moves. The level of a model is set: over the first four
days its demand costs a fixed share of the fleet's price at its cheapest configuration, times the load. Windows
in which the collection failed keep the last known rate. Where the tables cannot be found, synthetic tiers stand
in.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.bench_forecast import tier_rates
from data.fleet.types import Fleet
from data.types import FloatArray
from models.demand.history import hold_last
from models.demand.outages import find_outages
from planner.capacity_table import CapacityTable
from planner.demand import CommodityKey

STEP_S = 600.0
DAY = 144
HOUR = 6
TUNING_DAYS = 4
SHIFT_HOURS = {"east": 0, "west": 8, "north": 16}
MODELS = {"m-mid": ("chat@v1", "search@v1"), "m-large": ("coder@v1", "analyst@v1")}
COST_SHARE = {"chat@v1": 0.25, "search@v1": 0.2, "coder@v1": 0.25, "analyst@v1": 0.3}
"""Share of the fleet's price that a model's mean demand costs at its cheapest configuration, at load 1."""
LARGE_CLIENT, BOUND, BATCH = 0.05, 0.25, 0.2
ANYWHERE = "anywhere"


@dataclass(frozen=True, slots=True)
class ContestDemand:
    """What is asked for.

    Attributes:
        keys: Commodities (model, class, tenant, origin), sorted.
        tokens_per_s: Shape (commodities, windows): output tokens/s in each window of 600 s.
        mark: "" or a mark for row ids where synthetic tiers stand in.
    """

    keys: tuple[CommodityKey, ...]
    tokens_per_s: FloatArray
    mark: str


def contest_demand(fleet: Fleet, table: CapacityTable, load: float, seed: int) -> ContestDemand:
    """The demand of one seed at a load."""
    series: dict[CommodityKey, FloatArray] = {}
    marks = set()
    for number, (tier, models) in enumerate(MODELS.items()):
        rates, mark = tier_rates(tier)
        rates = hold_last(np.where(find_outages(rates, STEP_S), np.nan, rates))
        marks.add(mark)
        rng = np.random.default_rng((seed, number))
        for client in rates:
            for key, rate in _customers(client, float(rates.sum()), models, rng):
                series[key] = series.get(key, np.zeros(rates.shape[1])) + rate
    keys = tuple(sorted(series))
    tokens = np.stack([series[key] for key in keys])
    for model, mean in mean_rates(fleet, table).items():
        mine = np.array([key[0] == model for key in keys])
        level = float(tokens[mine, : TUNING_DAYS * DAY].sum(axis=0).mean())
        tokens[mine] *= load * mean / level
    return ContestDemand(keys, tokens, max(marks))


def mean_rates(fleet: Fleet, table: CapacityTable) -> dict[str, float]:
    """Mean output tokens/s of each model at load 1."""
    price = sum(pool.count * table_price(table, pool.gpu_type) for pool in fleet.pools)
    return {model: COST_SHARE[model] * price * _tokens_for_price(table, model) for model in COST_SHARE}


def table_price(table: CapacityTable, gpu_type: str) -> float:
    """Price of a GPU an hour."""
    entries = [c for c in table.configs.values() if c.config.gpu_type == gpu_type]
    return entries[0].price_per_hour / entries[0].config.tensor_parallel


def _tokens_for_price(table: CapacityTable, model: str) -> float:
    """Interactive tokens/s for a price of 1 an hour, at the cheapest configuration."""
    return max(c.rate("interactive") / c.price_per_hour for c in table.of_model(model))


def _customers(
    client: FloatArray, tier: float, models: tuple[str, ...], rng: np.random.Generator
) -> list[tuple[CommodityKey, FloatArray]]:
    """The commodities of one client, and its rate in each."""
    model = models[int(rng.random() < 0.5)]
    region = list(SHIFT_HOURS)[int(rng.integers(len(SHIFT_HOURS)))]
    bound, batch = rng.random() < BOUND, rng.random() < BATCH
    if float(client.sum()) > LARGE_CLIENT * tier:
        part = client / len(SHIFT_HOURS)
        return [((model, "interactive", ANYWHERE, where), shifted(part, where)) for where in SHIFT_HOURS]
    tenant = f"{region}-only" if bound else ANYWHERE
    kind = "batch" if batch else "interactive"
    return [((model, kind, tenant, region), shifted(client, region))]


def shifted(rate: FloatArray, region: str) -> FloatArray:
    """The same day, so many hours later."""
    moved: FloatArray = np.roll(rate, SHIFT_HOURS[region] * HOUR)
    return moved
