"""A question to the planner: what would it do with another demand or another fleet, and what would that bring?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from data.catalog.load import load_catalog
from data.fleet.types import Fleet, GpuPool
from data.plan import PlanDocument
from planner.demand import DemandTable
from planner.loop.settings import LoopSettings
from planner.loop.shadow import Shadow
from planner.loop.step import FixedClock, standing, try_plan
from planner.loop.window_requests import drawn_window
from planner.service import plan_once
from planner.settings import PlannerSettings


@dataclass(frozen=True, slots=True)
class WhatIfJob:
    """The question; nothing that comes of it is published.

    Attributes:
        fleet: The fleet to plan for.
        demand: The demand to plan for.
        scale: Factor on all of it (above 0).
        running: What stands; ``None`` = the fleet's placement.
        now_s: Moment, seconds since the epoch.
        planner, loop: Settings.
    """

    fleet: Fleet
    demand: DemandTable
    scale: float
    running: PlanDocument | None
    now_s: float
    planner: PlannerSettings
    loop: LoopSettings


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The answer: the plan, and what both placements would bring on that demand; ``None`` = not simulated."""

    plan: PlanDocument
    shadow: Shadow | None
    notes: tuple[str, ...]


def what_if(job: WhatIfJob) -> WhatIf:
    """Answer; raises as :func:`planner.service.plan_once`."""
    demand = scaled(job.demand, job.scale)
    plan = plan_once(job.fleet, load_catalog(), demand, job.running, job.planner, FixedClock(job.now_s))
    window = drawn_window(demand, job.fleet, job.loop.window_s, job.loop.shadow_requests, job.loop.shadow_seeds)
    tried = try_plan(job.fleet, standing(job.fleet, job.running), plan, window, job.planner, job.loop)
    return WhatIf(plan, tried, demand.notes)


def scaled(demand: DemandTable, scale: float) -> DemandTable:
    """The demand with every rate multiplied."""
    rows = tuple(replace(row, quantiles=tuple(q * scale for q in row.quantiles)) for row in demand.rows)
    return replace(demand, rows=rows)


def without_gpus(fleet: Fleet, counts: Mapping[tuple[str, str], int]) -> Fleet:
    """The fleet with other numbers of GPUs in some pools, and only those replicas that still have theirs.

    Args:
        fleet: The fleet.
        counts: (site, GPU type) to GPUs (0 or more); a pool of 0 is gone, one that the fleet lacks is added.
    """
    pools = {(pool.site, pool.gpu_type): pool for pool in fleet.pools}
    for key, count in counts.items():
        old = pools.pop(key, GpuPool(*key, 0))
        if count:
            pools[key] = replace(old, count=count, reserved_gpus=min(old.reserved_gpus, count))
    degree = {config.name: (config.gpu_type, config.tensor_parallel) for config in fleet.configs}
    needs = [(one.site, *degree[one.config], one.replicas) for one in fleet.placement]
    kept = _survivors(needs, counts)
    placed = tuple(replace(one, replicas=n) for one, n in zip(fleet.placement, kept, strict=True))
    return replace(fleet, pools=tuple(pools.values()), placement=placed)


def surviving(plan: PlanDocument, counts: Mapping[tuple[str, str], int]) -> PlanDocument:
    """The plan with only those replicas that still have GPUs; see :func:`without_gpus`."""
    kept = _survivors([(r.site, r.gpu_type, r.gpus_per_replica, r.replicas) for r in plan.replicas], counts)
    rows = tuple(replace(row, replicas=n) for row, n in zip(plan.replicas, kept, strict=True))
    return replace(plan, replicas=rows)


def _survivors(needs: Sequence[tuple[str, str, int, int]], counts: Mapping[tuple[str, str], int]) -> list[int]:
    """Replicas that stay of each (site, GPU type, GPUs a replica, replicas), earlier rows first."""
    left = dict(counts)
    kept = []
    for site, gpu_type, gpus, replicas in needs:
        fit = min(replicas, left[site, gpu_type] // gpus) if (site, gpu_type) in left else replicas
        if (site, gpu_type) in left:
            left[site, gpu_type] -= fit * gpus
        kept.append(fit)
    return kept
