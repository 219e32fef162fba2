"""Prewarmed copies are carried from period to period by site and configuration, never by position."""

from __future__ import annotations

from dataclasses import replace

from data.catalog.load import Catalog
from data.fleet.types import Fleet, Placed, ReplicaConfig
from planner.capacity_table import capacity_table
from planner.demand import DemandTable
from planner.placement_input import placement_input
from planner.settings import PlannerSettings

RUNNING = (Placed("us-1", "chat-l40s", 2, prewarmed=1), Placed("eu-1", "chat-h100", 1, prewarmed=2))


def _copies(fleet: Fleet, catalog: Catalog, demand: DemandTable) -> dict[tuple[str, str], int]:
    settings = PlannerSettings()
    table = capacity_table(fleet, catalog, demand, settings, None)
    given = placement_input(fleet, table, demand, RUNNING, settings)
    places = given.problem.placements
    return {
        (given.sites[int(s)].name, name): int(count)
        for s, name, count in zip(places.site, places.config, places.prewarm_current, strict=True)
        if count
    }


def test_copies_keep_their_place_when_the_list_of_placements_changes(
    fleet: Fleet, catalog: Catalog, demand: DemandTable
) -> None:
    expected = {("us-1", "chat-l40s"): 1, ("eu-1", "chat-h100"): 2}
    assert _copies(fleet, catalog, demand) == expected
    # A configuration that sorts first and a pool in reverse order move every position.
    first = ReplicaConfig("a-chat-h100", "chat@v1", "H100", 2)
    grown = replace(fleet, configs=(first, *fleet.configs), pools=tuple(reversed(fleet.pools)))
    assert _copies(grown, catalog, demand) == expected
