"""What the drift guard is worth: Goodput of TokenPilot with a trained model, with the guard and without.

Three GPU types, nine replicas. At the middle of the run every step of half the replicas of one GPU type (or of all
replicas) begins to take 60 % longer. Seed by seed the same requests, with and without the guard; the guard is the
service's own code: slot, watch on the records, prior in place of drifted groups.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from data.catalog.load import load_catalog
from data.fleet.reference import reference_fleet
from data.log.reader import LogReader
from data.log.settings import LogSettings
from data.log.writer import LogWriter
from data.synth.profiles import PROFILES
from models.guarded import guarded_model
from models.hardware import fleet_kinds
from models.predictor import ResidualPredictor
from models.samples import samples_from_tables
from models.training import TrainingSettings, train
from planner.fleet_streams import fleet_streams
from planner.intervals import estimate
from planner.scenario import Scenario
from planner.sim.run import simulate
from planner.sim.settings import FailureEvent, SimSettings
from planner.trace_source import Shaped, SynthTrace
from router.build import endpoint_specs
from router.endpoints import EndpointTable
from router.registry import make_policy

FLEET = reference_fleet("mixed-pool")
KINDS = fleet_kinds([FLEET], load_catalog())
SPECS = endpoint_specs(FLEET, load_catalog(), FLEET.placement)
FACTOR = 1.6
SLOWED_TYPE = "H100"
FOREVER_S = 1e6


def scenario(rate: float, length_s: float) -> Scenario:
    """Synthetic conversations at ``rate`` sessions a second on the mixed pool."""
    streams = fleet_streams(FLEET, PROFILES["conversation"], rate)
    return Scenario(FLEET, Shaped(SynthTrace(streams, length_s, "synthetic conversation")))


def slowed(which: str) -> list[int]:
    """Row numbers that become slow: half of one GPU type, or all."""
    if which == "all":
        return list(range(len(SPECS)))
    mine = [row for row, spec in enumerate(SPECS) if spec.gpu_type == SLOWED_TYPE]
    return mine[: (len(mine) + 1) // 2]


def trained_model(base: Scenario) -> ResidualPredictor:
    """A model of two earlier runs of TokenPilot with the prior, in the memory of this process."""
    tables = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in (101, 102):
            place = Path(folder) / str(seed)
            with LogWriter(place, LogSettings(rotate_age_s=None), writer_id="run") as log:
                _run(base, seed, None, (), log)
            tables.append(LogReader(place).window(0.0, FOREVER_S))
    made = "1970-01-01T00:00:00+00:00"
    return train(samples_from_tables(tables, KINDS), TrainingSettings(), made).predictor


def _run(base: Scenario, seed: int, predictor: Any, failures: Sequence[FailureEvent], sink: Any) -> Any:
    table = EndpointTable(SPECS)
    policy = make_policy("tokenpilot", {}, table, seed, predictor)
    settings = replace(SimSettings(seed=seed), failures=tuple(failures))
    return simulate(FLEET, SPECS, base.requests(seed), policy, settings, table=table, sink=sink)


def pair(
    base: Scenario, seed: int, model: ResidualPredictor, failures: Sequence[FailureEvent]
) -> tuple[float, float, int]:
    """Goodput with and without the guard, and rows that the prior answered."""
    guarded = guarded_model(model, KINDS)
    with_guard = _run(base, seed, guarded.guard, failures, guarded.watch)
    without = _run(base, seed, model, failures, None)
    return with_guard.total.goodput_tokens_per_s, without.total.goodput_tokens_per_s, guarded.guard.rows_by_prior


def rows(quick: bool) -> list[dict[str, Any]]:
    """Relative gain of the guard; ``quick`` takes two seeds and shorter runs."""
    length_s, seeds = (240.0, range(1, 3)) if quick else (600.0, range(1, 6))
    found = []
    for rate in (5.0,) if quick else (5.0, 7.0):
        base = scenario(rate, length_s)
        model = trained_model(base)
        for which in ("half", "all"):
            failures = [FailureEvent(length_s / 2, row, "slow", FOREVER_S, FACTOR) for row in slowed(which)]
            pairs = [pair(base, seed, model, failures) for seed in seeds]
            gain = estimate([one[0] / one[1] - 1.0 for one in pairs])
            answered = sum(one[2] for one in pairs)
            found.append(
                {
                    "id": f"drift/guard/{which}-slow/{rate:g}",
                    "area": "drift",
                    "value": gain.mean,
                    "unit": "relative",
                    "reference": f"the drifted model alone; prior answered {answered} rows",
                    "ratio": 1.0 + gain.mean,
                    "target": None,
                    "met": None,
                    "seeds": len(seeds),
                    "interval": [gain.low, gain.high],
                }
            )
    return found


if __name__ == "__main__":
    for one in rows(quick="--full" not in sys.argv):
        print(one["id"], f"{one['value']:+.4f}", one["interval"], one["reference"])
