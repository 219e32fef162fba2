"""Why a promise cannot be kept: the elastic relaxation names it, the amount, and the resources in its way.

A plan always exists, because promises are elastic; this module says which of them gave way and to what.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from data.types import FloatArray, IntArray
from solver.linear import ModelSolver, SolveLimits, SolveStatus
from solver.matrix import PlacementMatrix
from solver.problem import PlacementProblem
from solver.solution import Misses, Origin, PlacementSolution, read_solution

PRICE_TOLERANCE = 1e-9
SLACK_TOLERANCE = 1e-6
RESOURCE_ROWS = ("gpus", "power", "ingress", "host_memory", "start_budget")
"""Rows (5)–(7) and (9): what can block a promise."""


@dataclass(frozen=True, slots=True)
class FilterCounts:
    """Why sites were passed over: the first filter that excluded each one.

    ``allowed`` sites passed every filter; the counts and ``allowed`` add up to ``considered``.
    """

    considered: int
    allowed: int
    excluded: Mapping[str, int] = field(default_factory=dict)

    def text(self) -> str:
        """In words: ``4 sites: 1 entry, 2 residency, 1 allowed``."""
        parts = [f"{count} {name}" for name, count in self.excluded.items() if count]
        return f"{self.considered} sites: " + ", ".join([*parts, f"{self.allowed} allowed"])


@dataclass(frozen=True, slots=True)
class Blocker:
    """A resource that is used up: ``kind`` is one of ``RESOURCE_ROWS``, ``index`` a pool or a site."""

    kind: str
    index: int


@dataclass(frozen=True, slots=True)
class Explanation:
    """Least misses that fractions of replicas allow, and the resources whose prices hold them up."""

    misses: Misses
    blockers: tuple[Blocker, ...]


def explain_misses(
    problem: PlacementProblem, built: PlacementMatrix, solve: ModelSolver, limits: SolveLimits
) -> Explanation | None:
    """Minimise missed promises alone, whole replicas relaxed; ``None`` if no solver answered."""
    model, columns = built.model, built.columns
    only_misses = np.zeros_like(model.objective)
    for span in (columns.missed_replicas, columns.missed_flows, columns.missed_covers):
        only_misses[span] = model.objective[span]
    answer = solve(replace(model, objective=only_misses).relaxed(), limits)
    if answer.status is not SolveStatus.OPTIMAL:
        return None
    misses = read_solution(problem, built, answer.values, Origin.SOLVER).misses
    return Explanation(misses, _priced_rows(built, answer.row_duals))


def _priced_rows(built: PlacementMatrix, duals: FloatArray) -> tuple[Blocker, ...]:
    if not len(duals):
        return ()
    return tuple(
        Blocker(kind, int(index))
        for kind in RESOURCE_ROWS
        for index in np.flatnonzero(np.abs(duals[built.rows[kind]]) > PRICE_TOLERANCE)
    )


def blockers_of(problem: PlacementProblem, solution: PlacementSolution, options: IntArray) -> tuple[Blocker, ...]:
    """What stops one more replica at each of these placements of a finished plan, each resource once."""
    places, sites = problem.placements, problem.sites
    claims = places.gpus * (solution.replicas + problem.prewarm_gpu_share * solution.prewarmed)
    gpus_left = problem.pools.gpus - np.bincount(places.pool, claims, len(problem.pools.gpus))
    power_left = sites.power_kw - np.bincount(places.site, places.power_kw * solution.replicas, len(sites.names))
    started = places.gpus * np.maximum(solution.replicas - places.current, 0)
    starts_left = sites.start_budget_gpus - np.bincount(places.site, started, len(sites.names))
    found: dict[Blocker, None] = {}
    for i in options.tolist():
        pool, site = int(places.pool[i]), int(places.site[i])
        if gpus_left[pool] < places.gpus[i] - SLACK_TOLERANCE:
            found[Blocker("gpus", pool)] = None
        if power_left[site] < places.power_kw[i] - SLACK_TOLERANCE:
            found[Blocker("power", site)] = None
        if solution.replicas[i] >= places.current[i] and starts_left[site] < places.gpus[i] - SLACK_TOLERANCE:
            found[Blocker("start_budget", site)] = None
    return tuple(found)


def blocker_text(problem: PlacementProblem, blocker: Blocker) -> str:
    """In words: ``H100 pool of paris (64 GPUs)``."""
    sites = problem.sites
    name = sites.names[blocker.index] if blocker.kind != "gpus" else ""
    if blocker.kind == "gpus":
        pool = problem.pools
        site = sites.names[int(pool.site[blocker.index])]
        return f"{pool.gpu_type[blocker.index]} pool of {site} ({pool.gpus[blocker.index]:g} GPUs)"
    if blocker.kind == "power":
        return f"power of {name} ({sites.power_kw[blocker.index]:g} kW)"
    if blocker.kind == "ingress":
        return f"ingress of {name} ({sites.ingress_tokens_per_s[blocker.index]:g} tokens/s)"
    if blocker.kind == "host_memory":
        return f"host memory of {name} ({sites.host_memory_gb[blocker.index]:g} GB)"
    return f"start budget of {name} ({sites.start_budget_gpus[blocker.index]:g} GPUs)"
