"""Small placement problems that can be checked by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from solver.problem import Commodities, PlacementProblem, Placements, Pools, SiteLimits

ProblemMaker = Callable[..., PlacementProblem]


def _two_sites(
    gpus: tuple[float, float] = (4.0, 4.0),
    demand: float = 1000.0,
    rate: float = 300.0,
    current: tuple[int, int] = (0, 0),
    **changes: Any,
) -> PlacementProblem:
    """One model, one class, one GPU a replica, two sites; tokens are worth 1 each and the demand is certain."""
    count = 2
    sites = SiteLimits(
        names=("east", "west"),
        zone=np.array([0, 1]),
        power_kw=np.full(count, np.inf),
        ingress_tokens_per_s=np.full(count, np.inf),
        host_memory_gb=np.full(count, np.inf),
        start_budget_gpus=np.full(count, np.inf),
    )
    places = Placements(
        site=np.arange(count),
        pool=np.arange(count),
        model=np.zeros(count, dtype=np.int64),
        config=("c", "c"),
        gpus=np.ones(count, dtype=np.int64),
        power_kw=np.full(count, 0.5),
        weights_gb=np.full(count, 16.0),
        rate=np.full((count, 1), rate),
        mix_rate=np.full(count, rate),
        current=np.array(current),
        lower=np.zeros(count, dtype=np.int64),
        upper=np.array([int(g) for g in gpus]),
        start_cost=np.full(count, 1.0),
        prewarm_limit=np.zeros(count, dtype=np.int64),
        prewarm_current=np.zeros(count, dtype=np.int64),
    )
    jobs = Commodities(
        model=np.zeros(1, dtype=np.int64),
        workload_class=np.zeros(1, dtype=np.int64),
        allowed=np.ones((1, count), dtype=bool),
        entering=np.ones((1, count)),
        route_cost=np.array([[0.0, 0.01]]),
        width=np.array([[demand]]),
        value=np.ones((1, 1)),
        weight=np.ones(1),
    )
    pools = Pools(site=np.arange(count), gpu_type=("H100", "H100"), gpus=np.array(gpus))
    problem = PlacementProblem(sites, pools, places, jobs, ("m",), ("interactive",))
    for name, value in changes.items():
        part, _, field = name.partition("__")
        if field:
            problem = replace(problem, **{part: replace(getattr(problem, part), **{field: value})})
        else:
            problem = replace(problem, **{part: value})
    return problem


@pytest.fixture
def two_sites() -> ProblemMaker:
    """Makes a problem of two equal sites; keyword ``part__field`` replaces one array of one part."""
    return _two_sites
