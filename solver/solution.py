"""What a placement solver gives back, in the problem's own indices and units (tokens/s)."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from data.types import FloatArray, IntArray
from solver.matrix import FLOW_UNIT, PlacementMatrix
from solver.problem import PlacementProblem

MISS_TOLERANCE = 1e-4
"""A promise missed by less than this (replicas, or share of the promised rate) counts as kept."""


class Origin(StrEnum):
    """Which rung of the ladder the placement came from."""

    SOLVER = "solver"
    GREEDY = "greedy"
    KEPT = "kept"
    CONSTRUCTED = "model by model"
    BLOCKS = "block search"


@dataclass(frozen=True, slots=True)
class Misses:
    """How far each promise is missed: replicas, tokens/s, tokens/s; one entry a promise."""

    replicas: FloatArray
    flows: FloatArray
    covers: FloatArray

    def any(self, problem: PlacementProblem) -> bool:
        """Whether any promise is missed by more than the tolerance."""
        rates = np.array([p.tokens_per_s for p in problem.flow_promises])
        covers = np.array([c.tokens_per_s for c in problem.covers])
        return bool(
            (self.replicas > MISS_TOLERANCE).any()
            or (self.flows > MISS_TOLERANCE * rates).any()
            or (self.covers > MISS_TOLERANCE * covers).any()
        )

    def penalty(self, problem: PlacementProblem) -> float:
        """Value-weighted tokens/s that the misses cost."""
        return float(
            self.replicas @ np.array([p.penalty for p in problem.replica_promises])
            + self.flows @ np.array([p.penalty for p in problem.flow_promises])
            + self.covers @ np.array([c.penalty for c in problem.covers])
        )


@dataclass(frozen=True, slots=True)
class PlacementSolution:
    """One placement.

    Attributes:
        replicas, prewarmed: Shape (P,).
        loads: Shape (P, C): output tokens/s of each class that each placement carries (x).
        flows: Shape (J, S): output tokens/s of each commodity sent to each site (y).
        misses: Promises missed.
        value: Value-weighted tokens/s: served demand and burst cover less starts, routes and GPUs; penalties
            of missed promises are not in it.
        bound: The most that any placement with no costlier misses could be worth; ``inf`` if nothing is proved.
        bound_name: Where the bound comes from.
        proved: Whether the search proved the value within its gap.
        unavoidable: Whether the misses are proved to be unavoidable.
        origin: Which rung of the ladder it came from.
        note: What happened on the way: limits, crashes, why the running plan was kept.
    """

    replicas: IntArray
    prewarmed: IntArray
    loads: FloatArray
    flows: FloatArray
    misses: Misses
    value: float
    bound: float
    bound_name: str
    proved: bool
    unavoidable: bool
    origin: Origin
    solve_s: float = 0.0
    note: tuple[str, ...] = field(default=())

    def served(self) -> FloatArray:
        """Planned output tokens/s of each commodity, shape (J,)."""
        total: FloatArray = self.flows.sum(axis=1)
        return total

    def net(self, problem: PlacementProblem) -> float:
        """Value less the penalties of missed promises: what placements are compared by."""
        return self.value - self.misses.penalty(problem)


def assemble_values(
    problem: PlacementProblem,
    built: PlacementMatrix,
    replicas: IntArray,
    prewarmed: IntArray,
    loads: FloatArray,
    flows: FloatArray,
) -> FloatArray:
    """The column vector of the model for a placement built without a solver: dependent variables filled in."""
    columns, places, jobs = built.columns, problem.placements, problem.commodities
    values = np.zeros(columns.count)
    values[columns.replicas] = replicas
    values[columns.starts] = np.maximum(replicas - places.current, 0)
    values[columns.prewarmed] = prewarmed[columns.warm_place]
    values[columns.loads] = loads[columns.load_place, columns.load_class] / FLOW_UNIT
    values[columns.flows] = flows[columns.flow_job, columns.flow_site] / FLOW_UNIT
    before = np.cumsum(jobs.width, axis=1) - jobs.width
    served = np.clip(flows.sum(axis=1, keepdims=True) - before, 0.0, jobs.width)
    values[columns.served] = served.ravel() / FLOW_UNIT
    warm_zone = problem.sites.zone[places.site]
    values[columns.bursts] = [
        min(
            b.tokens_per_s,
            float((places.mix_rate * prewarmed)[(places.model == b.model) & (warm_zone == b.zone)].sum()),
        )
        / FLOW_UNIT
        for b in problem.bursts
    ]
    capacity = places.mix_rate * replicas
    values[columns.missed_replicas] = [
        max(p.replicas - float(replicas[p.placements].sum()), 0.0) for p in problem.replica_promises
    ]
    values[columns.missed_flows] = [
        max(p.tokens_per_s - float(flows[p.commodities][:, p.sites].sum()), 0.0) / FLOW_UNIT
        for p in problem.flow_promises
    ]
    for k, cover in enumerate(problem.covers):
        mine = places.model == cover.model
        total = float(capacity[mine].sum())
        by_site = np.bincount(places.site[mine], capacity[mine], len(problem.sites.names))
        hosts = np.unique(places.site[mine])
        worst = total - float(by_site[hosts].max(initial=0.0))
        values[columns.totals.start + k] = total / FLOW_UNIT
        values[columns.missed_covers.start + k] = (
            max(cover.tokens_per_s - worst, 0.0) / FLOW_UNIT if len(hosts) else 0.0
        )
    return values


def solution_values(problem: PlacementProblem, built: PlacementMatrix, solution: PlacementSolution) -> FloatArray:
    """The column vector of the model for a solution."""
    return assemble_values(problem, built, solution.replicas, solution.prewarmed, solution.loads, solution.flows)


def read_solution(
    problem: PlacementProblem, built: PlacementMatrix, values: FloatArray, origin: Origin
) -> PlacementSolution:
    """The solution that a column vector of the model stands for, without a bound yet."""
    columns = built.columns
    loads = np.zeros_like(problem.placements.rate)
    loads[columns.load_place, columns.load_class] = values[columns.loads] * FLOW_UNIT
    flows = np.zeros(problem.commodities.allowed.shape)
    flows[columns.flow_job, columns.flow_site] = values[columns.flows] * FLOW_UNIT
    prewarmed = np.zeros(len(problem.placements), dtype=np.int64)
    prewarmed[columns.warm_place] = np.round(values[columns.prewarmed]).astype(np.int64)
    misses = Misses(
        values[columns.missed_replicas],
        values[columns.missed_flows] * FLOW_UNIT,
        values[columns.missed_covers] * FLOW_UNIT,
    )
    return PlacementSolution(
        replicas=np.round(values[columns.replicas]).astype(np.int64),
        prewarmed=prewarmed,
        loads=loads,
        flows=flows,
        misses=misses,
        value=built.model.value(values) * FLOW_UNIT + misses.penalty(problem),
        bound=float("inf"),
        bound_name="none",
        proved=False,
        unavoidable=False,
        origin=origin,
    )
