"""The capacity table: measured lengths replace declared ones, and its settings reach it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from data.catalog.load import Catalog
from data.fleet.types import Fleet
from planner.capacity_table import capacity_table
from planner.demand import DemandRow, DemandTable
from planner.settings import PlannerSettings


def rates(fleet: Fleet, catalog: Catalog, demand: DemandTable, settings: PlannerSettings) -> dict[str, float]:
    table = capacity_table(fleet, catalog, demand, settings)
    return {name: config.rate("interactive") for name, config in table.configs.items()}


def test_a_larger_pool_carries_more_a_replica(fleet: Fleet, catalog: Catalog, demand: DemandTable) -> None:
    alone = rates(fleet, catalog, demand, PlannerSettings(pool_replicas=1))
    pooled = rates(fleet, catalog, demand, PlannerSettings(pool_replicas=8))
    usable = [name for name, rate in alone.items() if rate > 0]
    assert usable
    assert all(pooled[name] > alone[name] for name in usable)


def test_measured_spread_of_prompts_lowers_the_rate(fleet: Fleet, catalog: Catalog, demand: DemandTable) -> None:
    def with_spread(variation: float) -> dict[str, float]:
        rows = tuple(
            replace(row, input_tokens=2000.0, output_tokens=200.0, input_variation=variation)
            for row in demand.rows
        )
        return rates(fleet, catalog, replace(demand, rows=rows), PlannerSettings())

    narrow, wide = with_spread(0.1), with_spread(2.0)
    usable = [name for name, rate in narrow.items() if rate > 0]
    assert usable
    assert all(wide[name] < narrow[name] for name in usable)


def test_tenants_of_one_class_are_mixed_by_their_second_moment(
    fleet: Fleet, catalog: Catalog, demand: DemandTable
) -> None:
    """Two tenants without any spread of their own, one with short and one with long prompts, spread together."""
    row = next(row for row in demand.rows if row.workload_class == "interactive")

    def of(prompt: float, tenant: str) -> DemandRow:
        return replace(row, tenant=tenant, input_tokens=prompt, output_tokens=200.0, input_variation=0.0)

    even = replace(demand, rows=(of(2000.0, "a"), of(2000.0, "b")))
    mixed = replace(demand, rows=(of(200.0, "a"), of(3800.0, "b")))
    configs = [c.name for c in fleet.configs if c.model == row.model]
    same, apart = (rates(fleet, catalog, table, PlannerSettings()) for table in (even, mixed))
    assert any(same[name] > 0 for name in configs)
    for name in configs:
        assert apart[name] < same[name] or same[name] == pytest.approx(0.0)
