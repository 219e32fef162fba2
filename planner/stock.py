"""What stands and what may stand: pools, placements, running replicas, and the places where nothing may move."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from data.errors import InfeasibleError
from data.fleet.types import Fleet, Placed
from data.types import IntArray
from planner.capacity_table import CapacityTable, ConfigCapacity
from planner.settings import PlannerSettings
from solver.problem import BoolArray

PoolKey = tuple[str, str]
"""Site and GPU type."""


@dataclass(frozen=True, slots=True)
class Stock:
    """One entry a placement (site × configuration), sorted by site and configuration.

    Attributes:
        pools, gpus: Pools, and the GPUs of each that the planner may use.
        sites, capacities, place_pool: Site, configuration and pool of each placement.
        current, prewarmed: What stands now.
        room: Replicas that fit into the pool if it were empty.
        lower: Replicas that must stay (frozen places, models without data), whether or not they still fit.
        frozen: Nothing may change here.
        untouched: Running replicas of configurations that the catalog does not know: they stay and take GPUs.
        notes: Frozen places and replicas that nobody can plan with, in words.
    """

    pools: tuple[PoolKey, ...]
    gpus: dict[PoolKey, int]
    sites: tuple[str, ...]
    capacities: tuple[ConfigCapacity, ...]
    place_pool: tuple[PoolKey, ...]
    current: IntArray
    prewarmed: IntArray
    room: IntArray
    lower: IntArray
    frozen: BoolArray
    untouched: tuple[Placed, ...]
    notes: tuple[str, ...]


def take_stock(
    fleet: Fleet,
    table: CapacityTable,
    running: Iterable[Placed],
    held_models: frozenset[str],
    settings: PlannerSettings,
) -> Stock:
    """Pools and placements of a fleet. A running replica without a known pool is frozen where it stands.

    Raises:
        InfeasibleError: ``strict_inventory`` is set and there is such a replica.
    """
    standing = {(p.site, p.config): p for p in running if p.replicas or p.prewarmed}
    gpus = {(pool.site, pool.gpu_type): pool.count - pool.reserved_gpus for pool in fleet.pools}
    notes = [f"configuration {name} left out: {why}" for name, why in sorted(table.unknown.items())]
    unknown = _unknown_pools(fleet, standing, gpus, notes, settings)
    untouched = tuple(placed for (_, name), placed in sorted(standing.items()) if name not in table.configs)
    for placed in untouched:
        config = fleet.config(placed.config)
        gpus[placed.site, config.gpu_type] -= placed.replicas * config.tensor_parallel
        del standing[placed.site, placed.config]
    places: list[tuple[str, str]] = []
    for site in sorted(site.name for site in fleet.sites if site.role == "compute"):
        for name, capacity in sorted(table.configs.items()):
            pool = (site, capacity.config.gpu_type)
            if gpus.get(pool, 0) >= capacity.config.tensor_parallel or (site, name) in standing:
                places.append((site, name))
    capacities = tuple(table.configs[name] for _, name in places)
    place_pool = tuple((site, c.config.gpu_type) for (site, _), c in zip(places, capacities, strict=True))
    current = np.array([standing[p].replicas if p in standing else 0 for p in places], dtype=np.int64)
    degree = np.array([c.config.tensor_parallel for c in capacities], dtype=np.int64)
    frozen = np.array(
        [
            pool in unknown or site in settings.frozen_sites
            for (site, _), pool in zip(places, place_pool, strict=True)
        ],
        dtype=bool,
    )
    room = np.array([gpus[pool] for pool in place_pool], dtype=np.int64).clip(0) // np.maximum(degree, 1)
    held = np.array([c.config.model in held_models for c in capacities], dtype=bool)
    return Stock(
        pools=tuple(sorted(gpus)),
        gpus={pool: max(count, 0) for pool, count in gpus.items()},
        sites=tuple(site for site, _ in places),
        capacities=capacities,
        place_pool=place_pool,
        current=current,
        prewarmed=np.array([standing[p].prewarmed if p in standing else 0 for p in places], dtype=np.int64),
        room=room,
        lower=np.where(frozen | held, current, 0),
        frozen=frozen,
        untouched=untouched,
        notes=(*notes, *(f"site {name} is frozen: nothing moves there" for name in settings.frozen_sites)),
    )


def _unknown_pools(
    fleet: Fleet,
    standing: dict[tuple[str, str], Placed],
    gpus: dict[PoolKey, int],
    notes: list[str],
    settings: PlannerSettings,
) -> set[PoolKey]:
    """Pools that the fleet does not state although replicas run there; they get the size of what runs."""
    used: dict[PoolKey, int] = defaultdict(int)
    for (site, name), placed in standing.items():
        config = fleet.config(name)
        if (site, config.gpu_type) not in gpus:
            used[site, config.gpu_type] += placed.replicas * config.tensor_parallel
    for (site, gpu_type), count in sorted(used.items()):
        text = f"GPU inventory of {site}/{gpu_type} is unknown"
        if settings.strict_inventory:
            raise InfeasibleError(f"{text}: refusing to plan (strict_inventory)")
        notes.append(f"{text}: its replicas stay as they are")
        gpus[site, gpu_type] = count
    return set(used)
