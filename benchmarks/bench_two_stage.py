"""What the first stage loses: TokenPilot with the forest on the best K candidates only, against the forest on all.

A pool of 60 replicas of three GPU types. *Agreement* is measured at every decision of the run with all candidates:
would K have chosen the same endpoint, or one whose score is within the near-tie margin of the best? *Goodput* is
of whole runs with K, seed by seed against the run with all. *Time* is the median of a decision, K against all.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from typing import Any

import numpy as np

from data.catalog.load import load_catalog
from data.fleet.reference import reference_fleet
from data.synth.profiles import PROFILES
from data.types import IntArray
from models.base import LatencyPredictor
from models.predictor import ResidualPredictor
from planner.fleet_streams import fleet_streams
from planner.intervals import Estimate, estimate
from planner.scenario import Scenario
from planner.sim.result import RunResult
from planner.sim.run import simulate
from planner.sim.settings import SimSettings
from planner.trace_source import Shaped, SynthTrace
from router.build import endpoint_specs
from router.endpoints import EndpointTable
from router.policies.base import PolicyContext
from router.tokenpilot import TokenPilot, TokenPilotSettings
from router.types import FleetView, RouteRequest

Row = dict[str, Any]
SMALL = reference_fleet("mixed-pool")
TIMES_LARGER = 7
FLEET = replace(
    SMALL,
    placement=tuple(replace(one, replicas=one.replicas * TIMES_LARGER) for one in SMALL.placement),
)
SPECS = endpoint_specs(FLEET, load_catalog(), FLEET.placement)
KEPT = (4, 8, 16, 24, 32)
HOLDERS = 2
NO_LIMIT = 10**6
MUST = 24
"""The default: its loss has a target."""


def settings_for(kept: int) -> TokenPilotSettings:
    """The forest on ``kept`` candidates, of them ``HOLDERS`` for the longest prefixes."""
    return TokenPilotSettings(forest_candidates=kept - HOLDERS, forest_holders=HOLDERS)


class Shadowed(TokenPilot):
    """Decides with all candidates and notes what each K would have done at the same state."""

    def __init__(self, table: EndpointTable, seed: int, predictor: LatencyPredictor) -> None:
        context = PolicyContext(table, seed, predictor)
        super().__init__(settings_for(NO_LIMIT), context)
        self.shadows = {kept: TokenPilot(settings_for(kept), context) for kept in KEPT}
        self.same = dict.fromkeys(KEPT, 0)
        self.as_good = dict.fromkeys(KEPT, 0)
        self.decisions = 0
        self.seconds: dict[int, list[float]] = {kept: [] for kept in (*KEPT, NO_LIMIT)}

    def choose(self, request: RouteRequest, candidates: IntArray, view: FleetView) -> int:
        """The choice with all candidates."""
        best = self._timed(NO_LIMIT, self, request, candidates, view)
        scores = {one.endpoint: one for one in self.explain(request, candidates, view)}
        top = max(scores.values(), key=lambda one: one.score)
        margin = self.settings.near_tie * abs(top.price)
        self.decisions += 1
        for kept, policy in self.shadows.items():
            other = self._timed(kept, policy, request, candidates, view)
            self.same[kept] += other == best
            self.as_good[kept] += scores[other].score >= top.score - margin
        return best

    def _timed(self, kept: int, policy: TokenPilot, *at: Any) -> int:
        started = time.perf_counter()
        chosen = TokenPilot.choose(policy, *at)
        self.seconds[kept].append(time.perf_counter() - started)
        return chosen


def scenario(rate: float, length_s: float) -> Scenario:
    """Synthetic conversations on the large pool."""
    streams = fleet_streams(FLEET, PROFILES["conversation"], rate)
    return Scenario(FLEET, Shaped(SynthTrace(streams, length_s, "synthetic conversation")))


def run(base: Scenario, seed: int, kept: int, model: ResidualPredictor) -> RunResult:
    """One whole run with K = ``kept``."""
    table = EndpointTable(SPECS)
    policy = TokenPilot(settings_for(kept), PolicyContext(table, seed, model))
    return simulate(FLEET, SPECS, base.requests(seed), policy, SimSettings(seed=seed), table=table)


def shadowed(base: Scenario, seed: int, model: ResidualPredictor) -> Shadowed:
    """One run in which every K is asked at every decision."""
    table = EndpointTable(SPECS)
    policy = Shadowed(table, seed, model)
    simulate(FLEET, SPECS, base.requests(seed), policy, SimSettings(seed=seed), table=table)
    return policy


def rows(quick: bool) -> list[Row]:
    """Agreement, Goodput and time by K; ``quick`` takes one seed without an interval, and shorter runs."""
    from benchmarks import bench_drift

    length_s, seeds = (60.0, range(1, 2)) if quick else (180.0, range(1, 6))
    model = bench_drift.trained_model(bench_drift.scenario(5.0, 240.0))
    base = scenario(5.0 * TIMES_LARGER, length_s)
    watched = shadowed(base, 1, model)
    everything = [run(base, seed, NO_LIMIT, model).total.goodput_tokens_per_s for seed in seeds]
    found: list[Row] = []
    for kept in KEPT:
        mine = [run(base, seed, kept, model).total.goodput_tokens_per_s for seed in seeds]
        gain = estimate([a / b - 1.0 for a, b in zip(mine, everything, strict=True)])
        speed = float(np.median(watched.seconds[kept]) / np.median(watched.seconds[NO_LIMIT]))
        values = {
            "goodput_change": gain.mean,
            "same_choice": watched.same[kept] / watched.decisions,
            "as_good_choice": watched.as_good[kept] / watched.decisions,
            "time": speed,
        }
        targets = _targets(values, gain) if kept == MUST else {}
        for name, value in values.items():
            target, met = targets.get(name, (None, None))
            found.append(
                {
                    "id": f"two_stage/k{kept}/{name}",
                    "area": "decision",
                    "value": value,
                    "unit": "relative" if name in ("goodput_change", "time") else "share",
                    "reference": f"forest on all {len(SPECS)} candidates, {watched.decisions} decisions",
                    "ratio": None,
                    "target": target,
                    "met": met,
                    "seeds": len(seeds),
                    "interval": [gain.low, gain.high] if name == "goodput_change" else None,
                }
            )
    return found


def _targets(values: dict[str, float], gain: Estimate) -> dict[str, tuple[str, bool | None]]:
    """Targets of the default K: no loss that the seeds can tell, and hardly ever a worse choice."""
    return {
        "goodput_change": ("interval reaches 0", None if gain.high is None else gain.high >= 0),
        "as_good_choice": (">= 0.98", values["as_good_choice"] >= 0.98),
    }


if __name__ == "__main__":
    for one in rows(quick="--full" not in sys.argv):
        print(f"{one['id']:<32} {one['value']:+.4f} {one['interval'] or ''} {one['reference']}", flush=True)
