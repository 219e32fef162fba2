"""How far the same request in the same state differs when only the future does: no predictor can be nearer.

A trace is cut at an arrival and goes on with other draws of the same law. Up to the cut everything is the same in
every copy, down to the noise and to output lengths that no router knows; so what differs is due to later arrivals
alone, and the figure is a floor of the median error, not an estimate of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.fleet_logs import KeptRows, scenario
from data.catalog.load import load_catalog
from data.fleet.types import Fleet
from data.types import FloatArray, Request
from planner.scenario import Scenario
from planner.sim.run import simulate
from router.build import endpoint_specs
from router.endpoints import EndpointTable
from router.registry import make_policy

NEWEST = 4
"""Requests before a cut that are watched: all but a moment of their future is another one."""
AFTER_S = 40.0
"""Other arrivals last this long after a cut."""
OTHER_SEEDS = 10_000


@dataclass(frozen=True, slots=True)
class Forks:
    """How many cuts, and how many futures each (3 or more)."""

    cuts: int
    futures: int
    first_s: float = 40.0


def floor(fleet: str, level: float, forks: Forks, policy: str = "least_request") -> dict[str, float]:
    """Median relative difference of a request's time from its median over all futures, by target.

    The median knows the very futures that it is compared with, so few futures make the floor too low, never too
    high. TPOT is weighted by tokens, as in ``models.evaluate``.
    """
    errors: dict[str, list[FloatArray]] = {"ttft_s": [], "tpot_s": []}
    weights: dict[str, list[FloatArray]] = {"ttft_s": [], "tpot_s": []}
    for cut in range(forks.cuts):
        for rows in _requests(scenario(fleet, level, forks.first_s + AFTER_S), cut, forks, policy):
            for target in errors:
                times = np.array([row[target] for row in rows])
                errors[target].append(np.abs(np.median(times) / times - 1.0))
                gaps = rows[0]["output_tokens"] - 1.0 if target == "tpot_s" else 1.0
                weights[target].append(np.full(len(times), gaps))
    return {
        target: float(
            np.quantile(np.concatenate(found), 0.5, weights=np.concatenate(weights[target]), method="inverted_cdf")
        )
        for target, found in errors.items()
    }


def _requests(base: Scenario, cut: int, forks: Forks, policy: str) -> Iterator[list[dict[str, float]]]:
    """Outcomes of each watched request, one a future; only of those that completed with two tokens in all."""
    seed = 1 + cut
    past = [one for one in base.requests(seed) if one.arrival_s < forks.first_s]
    watched = [one.request_id for one in past[-NEWEST:]]
    outcomes = []
    for future in range(forks.futures):
        later = base.requests(OTHER_SEEDS + forks.futures * cut + future)
        changed = [_renamed(one) for one in later if one.arrival_s >= forks.first_s]
        outcomes.append(_outcomes(base.fleet, [*past, *changed], seed, base, policy))
    for request_id in watched:
        rows = [one.get((request_id, 0), {}) for one in outcomes]
        if all(row.get("tpot_s") for row in rows):
            yield rows


def _renamed(request: Request) -> Request:
    """Ids and sessions of another future must not meet those of the past."""
    parent = request.parent_id + OTHER_SEEDS**2 if request.parent_id >= 0 else request.parent_id
    return replace(request, request_id=request.request_id + OTHER_SEEDS**2, parent_id=parent)


def _outcomes(
    fleet: Fleet, requests: list[Request], seed: int, base: Scenario, policy: str
) -> dict[tuple[int, int], dict[str, float]]:
    specs = endpoint_specs(fleet, load_catalog(), fleet.placement)
    table, kept = EndpointTable(specs), KeptRows()
    settings = replace(base.settings, seed=seed, cancel_share=0.0)
    simulate(fleet, specs, requests, make_policy(policy, {}, table, seed), settings, table=table, sink=kept)
    return kept.outcomes
