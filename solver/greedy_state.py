"""What a constructive placement has placed and what is left, with the rules of what may be added."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from data.types import FloatArray, IntArray
from solver.problem import PlacementProblem

DUST = 1e-9


@dataclass(slots=True)
class GreedyState:
    """Changed in place; every hard rule holds after each step."""

    problem: PlacementProblem
    replicas: IntArray
    used: FloatArray
    """Replicas' worth of load at each placement."""
    loads: FloatArray
    flows: FloatArray
    gpus_left: FloatArray
    power_left: FloatArray
    ingress_left: FloatArray
    starts_left: FloatArray
    places_of: list[IntArray]
    """Placements of each model."""
    jobs_of: list[IntArray]
    """Commodities of each model."""


def fresh_state(problem: PlacementProblem) -> GreedyState:
    """Nothing placed."""
    places, sites = problem.placements, problem.sites
    return GreedyState(
        problem=problem,
        replicas=np.zeros(len(places), dtype=np.int64),
        used=np.zeros(len(places)),
        loads=np.zeros_like(places.rate),
        flows=np.zeros(problem.commodities.allowed.shape),
        gpus_left=problem.pools.gpus.copy(),
        power_left=sites.power_kw.copy(),
        ingress_left=sites.ingress_tokens_per_s.copy(),
        starts_left=sites.start_budget_gpus.copy(),
        places_of=_members(places.model, len(problem.models)),
        jobs_of=_members(problem.commodities.model, len(problem.models)),
    )


def _members(model: IntArray, count: int) -> list[IntArray]:
    """Numbers of the entries of each model, rising."""
    order = np.argsort(model, kind="stable")
    return np.split(order, np.searchsorted(model[order], np.arange(1, count)))


def fits(state: GreedyState, i: int) -> bool:
    """Whether one more replica may stand at placement ``i``."""
    places = state.problem.placements
    starts = state.replicas[i] >= places.current[i]
    return bool(
        state.replicas[i] < places.upper[i]
        and state.gpus_left[places.pool[i]] >= places.gpus[i] - DUST
        and state.power_left[places.site[i]] >= places.power_kw[i] - DUST
        and (not starts or state.starts_left[places.site[i]] >= places.gpus[i] - DUST)
    )


def add_replicas(state: GreedyState, i: int, count: int) -> None:
    """Place ``count`` more replicas at ``i``; the caller has checked that they fit."""
    places = state.problem.placements
    started = max(state.replicas[i] + count - max(places.current[i], state.replicas[i]), 0)
    state.replicas[i] += count
    state.gpus_left[places.pool[i]] -= count * places.gpus[i]
    state.power_left[places.site[i]] -= count * places.power_kw[i]
    state.starts_left[places.site[i]] -= started * places.gpus[i]
