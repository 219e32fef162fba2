"""Builders of options and rules of site choice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from data.fleet.types import Fleet, Link, Model, Site, Tenant
from router.sites.base import SiteContext
from router.sites.fleetmind import FleetMind
from router.sites.settings import FleetMindSettings
from router.sites.types import ReadyCapacity, SiteOption

IDLE = ReadyCapacity(
    site="B",
    model="m@1",
    ready=4,
    idle=4,
    free_slots=1024.0,
    load=0.0,
    queue_s=0.0,
    fixed_s=0.01,
    prefill_s_per_token=1e-4,
    prefill_s_per_token2=0.0,
    tpot_s=0.01,
    busy=0.0,
    at_s=0.0,
    counts_own=True,
)


def _option(site: str = "B", rtt_s: float = 0.0, local: bool = False, **capacity: Any) -> SiteOption:
    hits = capacity.pop("hit_tokens", 0.0)
    network = {name: capacity.pop(name) for name in list(capacity) if name.startswith(("price", "transfer"))}
    return SiteOption(replace(IDLE, site=site, **capacity), hits, rtt_s, local=local, **network)


def _fleet() -> Fleet:
    return Fleet(
        "f",
        (
            Site("A", "entry", "east"),
            Site("B", "compute", "east"),
            Site("C", "compute", "east"),
            Site("D", "compute", "west"),
        ),
        (
            Link("A", "B", 0.002, 100),
            Link("A", "C", 0.012, 40),
            Link("A", "D", 0.035, 20),
            Link("B", "C", 0.01, 40),
        ),
        (),
        (Model("m", "1", "x", 131_072),),
        (),
        (),
        (Tenant("t"), Tenant("east", residency_zones=("east",)), Tenant("west", residency_zones=("west",))),
    )


def _fleetmind(seed: int = 0, **settings: Any) -> FleetMind:
    return FleetMind(FleetMindSettings(**settings), SiteContext(_fleet(), seed))


@pytest.fixture
def make_option() -> Callable[..., SiteOption]:
    return _option


@pytest.fixture
def site_fleet() -> Fleet:
    """A (entry), B and C in the east, D in the west; B and D are not linked."""
    return _fleet()


@pytest.fixture
def make_fleetmind() -> Callable[..., FleetMind]:
    return _fleetmind
