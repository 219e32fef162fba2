"""Placements carried out request by request: starts, loads and drains in the simulator, on a compressed clock.

A window of 600 s is 50 s here and load times are a twelfth of their own, so that an hour of planning is five
minutes of traffic; rates, lengths, targets and step times are not touched. Drains take as long as requests do
and so weigh twelve times as much as they would. Where a pool both stops and starts replicas, the starts wait
``DRAIN_S`` for the GPUs. Every arm meets the same requests, routed by TokenPilot behind SLOMax's admission.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.fleet_contest.demand import STEP_S
from benchmarks.fleet_contest.setting import VARIATION, Contest
from data.catalog.load import load_catalog
from data.fleet.types import Placed
from data.types import FloatArray, IntArray, Request
from planner.sim.changes import Drain, Start
from planner.sim.result import RunResult
from planner.sim.run import simulate
from planner.sim.settings import SimSettings
from router.build import endpoint_specs
from router.endpoints import EndpointTable
from router.registry import make_policy
from router.slomax.registry import flow_factory

PACE = 12.0
"""Seconds of planning in one second of traffic."""
WINDOW_S = STEP_S / PACE
DRAIN_S = 15.0
LONGEST = 16_000
"""Prompts and answers are cut here: both must fit into a context."""


def simulate_plan(contest: Contest, first: int, replicas: IntArray, seed: int) -> RunResult:
    """Run replicas, shape (windows, P), from window ``first`` on."""
    most = replicas.max(axis=0)
    placement = _slots(contest, most)
    specs = endpoint_specs(contest.fleet, load_catalog(), placement)
    starts, drains = changes(contest, replicas)
    table = EndpointTable(specs)
    return simulate(
        contest.fleet,
        specs,
        requests(contest, first, len(replicas), seed),
        make_policy("tokenpilot", {}, table, seed),
        SimSettings(seed=seed, scrape_period_s=1.0),
        table=table,
        starts=starts,
        drains=drains,
        flow=flow_factory("slomax", {}),
    )


def _slots(contest: Contest, most: IntArray) -> list[Placed]:
    """One endpoint a replica that ever stands, in the order of the placements."""
    places, sites = contest.template.problem.placements, contest.template.problem.sites.names
    return [
        Placed(sites[int(places.site[i])], places.config[i], int(most[i]), 0) for i in range(len(most)) if most[i]
    ]


def changes(contest: Contest, replicas: IntArray) -> tuple[list[Start], list[Drain]]:
    """Starts and drains of all endpoints: slot ``k`` of a placement stands while more than ``k`` replicas do."""
    pools = contest.template.problem.placements.pool
    starts: list[Start] = []
    drains: list[Drain] = []
    stops_in = np.zeros((len(replicas), int(pools.max()) + 1), dtype=bool)
    fell = np.diff(replicas, axis=0, prepend=replicas[:1]) < 0
    for i, pool in enumerate(pools.tolist()):
        stops_in[:, pool] |= fell[:, i]
    endpoint = 0
    for i, most in enumerate(replicas.max(axis=0).tolist()):
        for slot in range(most):
            stands = replicas[:, i] > slot
            for window in range(len(stands)):
                before = bool(stands[window - 1]) if window else bool(stands[0])
                at_s = window * WINDOW_S
                if stands[window] and not before:
                    wait_s = DRAIN_S if stops_in[window, pools[i]] else 0.0
                    starts.append(Start(at_s + wait_s, endpoint, float(contest.load_s[i]) / PACE))
                elif before and not stands[window]:
                    drains.append(Drain(at_s, endpoint))
            endpoint += 1
    return starts, drains


def requests(contest: Contest, first: int, windows: int, seed: int) -> Iterator[Request]:
    """Poisson arrivals at each window's rate, lognormal lengths around the class's means."""
    kinds = {kind.name: kind for kind in contest.fleet.classes}
    number = 0
    for window in range(windows):
        rng = np.random.default_rng((seed, first + window))
        tokens = contest.demand.tokens_per_s[:, first + window]
        means = np.array([kinds[key[1]].expected_output_tokens for key in contest.demand.keys], dtype=np.float64)
        counts = rng.poisson(tokens / means * WINDOW_S)
        owner = np.repeat(np.arange(len(counts)), counts)
        prompts = np.array([kinds[key[1]].expected_input_tokens for key in contest.demand.keys], dtype=np.float64)
        at_s = window * WINDOW_S + WINDOW_S * rng.random(len(owner))
        ins, outs = _lengths(rng, prompts[owner]), _lengths(rng, means[owner])
        for k in np.argsort(at_s, kind="stable").tolist():
            model, kind, tenant, origin = contest.demand.keys[int(owner[k])]
            yield Request(
                request_id=number,
                arrival_s=float(at_s[k]),
                input_tokens=int(ins[k]),
                output_tokens=int(outs[k]),
                output_budget=LONGEST,
                model=model,
                tenant=tenant,
                workload_class=kind,
                origin=origin,
            )
            number += 1


def _lengths(rng: np.random.Generator, mean: FloatArray) -> IntArray:
    """Whole lengths with these means before they are cut."""
    spread = np.sqrt(np.log(1.0 + VARIATION**2))
    drawn = mean * np.exp(spread * rng.standard_normal(len(mean)) - spread**2 / 2.0)
    lengths: IntArray = np.clip(np.rint(drawn), 1, LONGEST).astype(np.int64)
    return lengths
