"""Placements that start nothing: the running replicas and copies, with the best routing for them."""

from __future__ import annotations

import numpy as np

from data.types import IntArray
from solver.greedy import kept_placement, running_that_fits
from solver.linear import ModelSolver, SolveLimits
from solver.matrix import PlacementMatrix
from solver.problem import PlacementProblem
from solver.redirect import redirect_flows
from solver.solution import Origin, PlacementSolution, assemble_values, read_solution

DUST = 1e-9


def keep_running(
    problem: PlacementProblem, built: PlacementMatrix, solve: ModelSolver, limits: SolveLimits
) -> PlacementSolution:
    """The running replicas (as many as still fit) and copies; routed greedily without a linear program in time."""
    replicas = running_that_fits(problem)
    if not replicas.any():
        return _unrouted(problem, built, replicas)
    routed = routed_placement(problem, built, replicas, solve, limits, Origin.KEPT)
    return routed if routed is not None else kept_placement(problem, built)


def frozen_placement(problem: PlacementProblem, built: PlacementMatrix) -> PlacementSolution:
    """Only what must stand: frozen replicas, no traffic."""
    return _unrouted(problem, built, np.minimum(problem.placements.lower, running_that_fits(problem)))


def routed_placement(
    problem: PlacementProblem,
    built: PlacementMatrix,
    replicas: IntArray,
    solve: ModelSolver,
    limits: SolveLimits,
    origin: Origin,
) -> PlacementSolution | None:
    """Given replicas with the running copies that fit beside them and the best routing; ``None`` without one."""
    redirect = redirect_flows(problem, replicas, solve, limits)
    if redirect is None:
        return None
    copies = standing_copies(problem, replicas)
    values = assemble_values(problem, built, replicas, copies, redirect.loads, redirect.flows)
    return read_solution(problem, built, values, origin)


def standing_copies(problem: PlacementProblem, replicas: IntArray) -> IntArray:
    """Prewarmed copies that stand now and still fit: allowed there, GPU claim and host memory free."""
    places, sites = problem.placements, problem.sites
    room = problem.pools.gpus - np.bincount(
        places.pool, (replicas * places.gpus).astype(np.float64), len(problem.pools.gpus)
    )
    memory = sites.host_memory_gb.copy()
    copies = np.zeros(len(places), dtype=np.int64)
    wanted = np.minimum(places.prewarm_current, places.prewarm_limit)
    for i in np.flatnonzero(wanted).tolist():
        claim = problem.prewarm_gpu_share * float(places.gpus[i])
        pool, site = int(places.pool[i]), int(places.site[i])
        for _ in range(int(wanted[i])):
            if room[pool] < claim - DUST or memory[site] < places.weights_gb[i] - DUST:
                break
            copies[i] += 1
            room[pool] -= claim
            memory[site] -= places.weights_gb[i]
    return copies


def _unrouted(problem: PlacementProblem, built: PlacementMatrix, replicas: IntArray) -> PlacementSolution:
    none = np.zeros(len(problem.placements), dtype=np.int64)
    flows = np.zeros(problem.commodities.allowed.shape)
    values = assemble_values(problem, built, replicas, none, np.zeros_like(problem.placements.rate), flows)
    return read_solution(problem, built, values, Origin.KEPT)
