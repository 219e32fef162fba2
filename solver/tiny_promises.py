"""Names promises of throughput so small that a replica stands nearly idle for them."""

from __future__ import annotations

import numpy as np

from solver.problem import FlowPromise, PlacementProblem
from solver.solution import PlacementSolution

TINY_SHARE = 0.1
"""A promise below this share of a replica's rate is tiny; it is told where the replica is used no more either."""


def tiny_promise_notes(problem: PlacementProblem, solution: PlacementSolution) -> tuple[str, ...]:
    """One sentence for each tiny promise that holds a whole replica at a site, in the order of the promises."""
    found: list[str] = []
    for promise in problem.flow_promises:
        for site in np.flatnonzero(promise.sites & (solution.flows[promise.commodities].sum(axis=0) > 0)).tolist():
            used = _use_if_tiny(problem, solution, promise, site)
            if used is not None:
                found.append(
                    f"promise '{promise.label}' of {promise.tokens_per_s:.3g} tokens/s holds a whole replica at "
                    f"{problem.sites.names[site]}, used to {used:.1%}: merge it with others or let it go"
                )
    return tuple(found)


def _use_if_tiny(
    problem: PlacementProblem, solution: PlacementSolution, promise: FlowPromise, site: int
) -> float | None:
    """Share of the only replica of the promise's model at a site that is used, if promise and use are tiny."""
    places, jobs = problem.placements, problem.commodities
    models = np.unique(jobs.model[promise.commodities])
    here = np.flatnonzero((places.site == site) & np.isin(places.model, models) & (solution.replicas > 0))
    if solution.replicas[here].sum() != 1:
        return None
    rate = places.rate[here[0]]
    kinds = jobs.workload_class[promise.commodities]
    able = rate > 0
    used = float((solution.loads[here[0], able] / rate[able]).sum())
    small = promise.tokens_per_s < TINY_SHARE * float(rate[kinds].max(initial=0.0))
    return used if small and used <= TINY_SHARE else None
