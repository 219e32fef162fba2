"""How far the closed-form capacity table is from the simulator: one replica, Poisson arrivals, a class's targets.

The reference is the highest rate at which the simulator meets the targets for the same share of requests, found by
bisection with common random numbers; ``ratio`` is closed form / simulator.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from data.catalog.load import load_catalog
from data.catalog.memory import kv_tokens_at
from data.fleet.reference import reference_fleet
from data.fleet.types import Fleet, Placed, WorkloadClass
from data.types import Request, Slo
from models.capacity import CapacitySettings, ClassShape, ReplicaLimits, group_rate
from planner.sim.run import simulate
from planner.sim.settings import SimSettings
from router.build import endpoint_specs
from router.endpoints import EndpointTable
from router.registry import make_policy

Row = dict[str, Any]
CASES = (
    ("assistant-v1-h100", "B"),
    ("assistant-v1-a100", "B"),
    ("assistant-v1-l40s", "C"),
    ("coder-h100", "B"),
    ("analyst-h100-tp4", "B"),
)
LEAST_S = 240.0
"""Least length of a trace at the closed form's rate."""
TARGET_ERROR = 0.25
"""Median absolute error over the cases that counts as met."""


def requests(
    kind: WorkloadClass, model: str, rate: float, count: int, variation: float, context: int
) -> Iterator[Request]:
    """Poisson arrivals of lognormal lengths with the class's means; the same draws at every rate."""
    rng = np.random.default_rng(1)
    gaps = rng.exponential(1.0, count)
    sigma = math.sqrt(math.log(1 + variation**2))
    factors = rng.lognormal(-sigma * sigma / 2, sigma, (count, 2))
    at = 0.0
    for i in range(count):
        at += float(gaps[i]) / rate
        output = min(max(int(kind.expected_output_tokens * factors[i, 1]), 1), context // 2)
        prompt = min(max(int(kind.expected_input_tokens * factors[i, 0]), 1), context - output)
        yield Request(
            i, at, prompt, output, 4 * output, model=model, tenant="shop", workload_class=kind.name, origin="A"
        )


def attainment(
    fleet: Fleet, placed: Placed, kind: WorkloadClass, rate: float, count: int, variation: float
) -> float:
    """Share of offered requests that meet the targets at that rate, the warm-up included."""
    specs = endpoint_specs(fleet, load_catalog(), [placed])
    table = EndpointTable(specs)
    policy = make_policy("least_request", {}, table, 0)
    trace = requests(kind, specs[0].model, rate, count, variation, specs[0].context_limit_tokens)
    return simulate(fleet, specs, trace, policy, SimSettings(step_noise=0.0), table=table).total.attainment_offered


def simulated_rate(
    fleet: Fleet,
    placed: Placed,
    kind: WorkloadClass,
    percentile: float,
    count: int,
    variation: float,
    guess: float,
) -> float:
    """Highest rate (requests/s) that keeps the targets at the percentile, to 2 %."""
    low, high = guess / 8, guess
    while attainment(fleet, placed, kind, high, count, variation) >= percentile and high < 64 * guess:
        low, high = high, 1.6 * high
    while high / low > 1.02:
        middle = math.sqrt(low * high)
        ok = attainment(fleet, placed, kind, middle, count, variation) >= percentile
        low, high = (middle, high) if ok else (low, middle)
    return low


def _checkable(slo: Slo) -> Slo:
    """A deadline of many minutes would need hours of trace before overload shows: one minute in its place."""
    return replace(slo, deadline_s=None if slo.deadline_s is None else min(slo.deadline_s, 60.0))


def compare(replicas: int, count: int, variation: float, settings: CapacitySettings) -> list[Row]:
    """One row a (configuration, class) of the four-site fleet."""
    fleet, catalog = reference_fleet("four-sites"), load_catalog()
    fleet = replace(
        fleet,
        classes=tuple(replace(kind, client_timeout_s=None, slo=_checkable(kind.slo)) for kind in fleet.classes),
        tenants=tuple(replace(t, requests_per_s_budget=None) for t in fleet.tenants),
    )
    rows: list[Row] = []
    for name, site in CASES:
        config = fleet.config(name)
        model = fleet.model(config.model)
        facts = catalog.facts(model.catalog, config.gpu_type, config.tensor_parallel)
        room = kv_tokens_at(facts, catalog.gpu(config.gpu_type), model.engine.gpu_memory_utilization)
        limits = ReplicaLimits(room, model.engine.max_num_seqs, model.engine.max_num_batched_tokens)
        for kind in fleet.classes:
            shape = ClassShape(kind.expected_input_tokens, kind.expected_output_tokens, 0.0, variation)
            law = group_rate(facts.times, limits, shape, kind.slo, settings)
            closed = law.of(replicas)
            guess = max(closed, 1.0) / kind.expected_output_tokens
            enough = max(count, int(LEAST_S * guess))
            sim = kind.expected_output_tokens * simulated_rate(
                fleet, Placed(site, name, replicas), kind, settings.percentile, enough, variation, guess
            )
            rows.append(
                {
                    "id": f"capacity/{name}/{kind.name}/{replicas}",
                    "area": "capacity",
                    "value": round(closed, 1),
                    "unit": "output tokens/s",
                    "reference": round(sim, 1),
                    "ratio": round(closed / sim, 3),
                    "target": f"0.8 to {1 + TARGET_ERROR}",
                    "met": 0.8 <= closed / sim <= 1 + TARGET_ERROR,
                }
            )
    return rows


def rows(quick: bool) -> list[Row]:
    """Single replicas; with ``quick=False`` also groups of four, to check the pooling law."""
    settings = CapacitySettings()
    found = compare(1, 600 if quick else 2000, 0.5, settings)
    if not quick:
        found += compare(4, 4000, 0.5, settings)
    errors = [abs(row["ratio"] - 1) for row in found]
    median = float(np.median(errors))
    found.append(
        {
            "id": "capacity/median_error",
            "area": "capacity",
            "value": round(median, 3),
            "unit": "relative",
            "reference": None,
            "ratio": None,
            "target": f"<= {TARGET_ERROR}",
            "met": median <= TARGET_ERROR,
        }
    )
    return found
