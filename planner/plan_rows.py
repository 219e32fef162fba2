"""Rows of the plan document from a placement solution: replicas, traffic shares, moves."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from data.fleet.types import Fleet
from data.plan import Move, PlannedReplicas, TrafficShare
from data.types import FloatArray
from planner.placement_input import PlacementInput
from solver.explain import blocker_text, blockers_of
from solver.explain_moves import MoveEffect
from solver.solution import PlacementSolution

SHARE_DIGITS = 9
LEAST_SHARE = 1e-6
"""Smaller shares are left out of the plan."""
EFFECT_DIGITS = 3
NO_MORE_DEMAND = "demand: one replica more would not pay"


def planned_replicas(
    fleet: Fleet, given: PlacementInput, solution: PlacementSolution
) -> tuple[PlannedReplicas, ...]:
    """Every place with a replica or a prewarmed copy, sorted by site and configuration."""
    rows = [
        PlannedReplicas(
            site=given.sites[int(given.problem.placements.site[i])].name,
            config=capacity.config.name,
            model=capacity.config.model,
            gpu_type=capacity.config.gpu_type,
            gpus_per_replica=capacity.config.tensor_parallel,
            replicas=int(solution.replicas[i]),
            prewarmed=int(solution.prewarmed[i]),
        )
        for i, capacity in enumerate(given.capacities)
        if solution.replicas[i] or solution.prewarmed[i]
    ]
    for placed in given.stock.untouched:
        config = fleet.config(placed.config)
        rows.append(
            PlannedReplicas(
                placed.site,
                config.name,
                config.model,
                config.gpu_type,
                config.tensor_parallel,
                placed.replicas,
                placed.prewarmed,
            )
        )
    return tuple(sorted(rows, key=lambda row: (row.site, row.config)))


def served_shares(given: PlacementInput, solution: PlacementSolution) -> FloatArray:
    """Shape (J,): share of each commodity's median forecast that the plan serves, at most 1."""
    planned = solution.served()
    median = np.array([job.median for job in given.jobs])
    shares: FloatArray = np.where(median > 0, np.minimum(planned / np.maximum(median, 1e-12), 1.0), 1.0)
    return np.where(planned > 0, shares, 0.0)


def traffic_shares(given: PlacementInput, solution: PlacementSolution) -> tuple[TrafficShare, ...]:
    """Shares of every tenant's commodities; members of one group are split alike."""
    served = served_shares(given, solution)
    rows: list[TrafficShare] = []
    for j, job in enumerate(given.jobs):
        total = float(solution.flows[j].sum())
        if total <= 0:
            continue
        for s in np.flatnonzero(solution.flows[j] > 0).tolist():
            exact = float(solution.flows[j, s]) / total * float(served[j])
            # Rounded down, so that the shares of one commodity never add up to more than they should.
            share = math.floor(exact * 10**SHARE_DIGITS) / 10**SHARE_DIGITS
            if share < LEAST_SHARE:
                continue
            site = given.sites[s].name
            rows += [TrafficShare(*row.key, site, share) for row in job.rows]
    rows.sort(key=lambda row: (row.model, row.workload_class, row.tenant, row.origin, row.site))
    return tuple(rows)


def planned_moves(
    given: PlacementInput,
    solution: PlacementSolution,
    period_s: float,
    effects: Mapping[int, MoveEffect] | None = None,
    hit_share: float = 0.0,
) -> tuple[Move, ...]:
    """Every start and drain against what stands; a start costs the value lost while it loads, a drain nothing.

    Args:
        given: The problem and its names.
        solution: What stands next.
        period_s: What the start costs are spread over.
        effects: What changes bring and give up, by placement, as far as that is known.
        hit_share: Share of prompts that prefix caches are expected to hold (0 to 1).
    """
    places = given.problem.placements
    change = solution.replicas - places.current
    effects = effects or {}
    rows: list[Move] = []
    for i in np.flatnonzero(change).tolist():
        count = int(change[i])
        cost = max(count, 0) * float(places.start_cost[i]) * period_s
        effect = effects.get(i)
        rows.append(
            Move(
                site=given.sites[int(places.site[i])].name,
                config=places.config[i],
                change=count,
                cost=cost,
                reason=_reason(given, solution, i, count),
                lost_cache=max(-count, 0) * _cache_worth(given, i, hit_share),
                gain=None if effect is None else round(effect.gain, EFFECT_DIGITS),
                gives_up=None if effect is None else round(effect.gives_up, EFFECT_DIGITS),
                binding=_binding(given, solution, i) if count > 0 else (),
            )
        )
    return tuple(sorted(rows, key=lambda move: (move.change > 0, move.site, move.config)))


def _cache_worth(given: PlacementInput, i: int, hit_share: float) -> float:
    """Value-weighted tokens that a replica could have made in the time that filling its cache anew takes."""
    facts = given.capacities[i].facts
    places, jobs = given.problem.placements, given.problem.commodities
    refill_s = hit_share * facts.kv_capacity_tokens * facts.times.p1
    mine = jobs.model == places.model[i]
    amount = float(jobs.width[mine].sum())
    if amount <= 0:
        return 0.0
    token = float((jobs.width[mine].sum(axis=1) * jobs.weight[mine]).sum()) / amount
    return refill_s * token * float(places.mix_rate[i])


def _binding(given: PlacementInput, solution: PlacementSolution, i: int) -> tuple[str, ...]:
    """What stops one replica more there: resources that are used up, or demand that is served already."""
    problem = given.problem
    found = tuple(blocker_text(problem, blocker) for blocker in blockers_of(problem, solution, np.array([i])))
    return found or (NO_MORE_DEMAND,)


def _reason(given: PlacementInput, solution: PlacementSolution, i: int, count: int) -> str:
    loads = {
        name: rate for name, rate in zip(given.classes, solution.loads[i].tolist(), strict=True) if rate >= 0.5
    }
    if count < 0:
        return _why_drained(given, solution, i)
    if not loads:
        return "capacity that was promised or must survive the loss of a site"
    carried = ", ".join(f"{name} {rate:.0f}" for name, rate in sorted(loads.items()))
    return f"carries {carried} tokens/s"


def _why_drained(given: PlacementInput, solution: PlacementSolution, i: int) -> str:
    """No demand, demand that goes unserved, or demand that is served with fewer replicas or elsewhere."""
    model = given.problem.placements.model
    wanted = sum(job.median for job in given.jobs if given.models.index(job.model) == model[i])
    if not wanted > 0:
        return "no demand is forecast for the model: GPUs are left free"
    if not solution.loads[model == model[i]].any():
        return "GPUs are worth more in other use: the model's demand is not served"
    if solution.replicas[i]:
        return "GPUs are worth more in other use: the rest of its load stays here"
    return "GPUs are worth more in other use: the model is served elsewhere"


def plain_goodput(given: PlacementInput, solution: PlacementSolution) -> float:
    """Expected served output tokens/s with every value at 1: planned capacity that demand is likely to reach."""
    jobs = given.problem.commodities
    before = np.cumsum(jobs.width, axis=1) - jobs.width
    by_segment = np.clip(solution.served()[:, None] - before, 0.0, jobs.width)
    chance = jobs.value / np.maximum(jobs.weight, 1e-12)[:, None]
    return float((by_segment * chance).sum())
