"""Samples from logs of simulated fleets of mixed GPU types: several load levels, routed by several policies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from data.catalog.load import load_catalog
from data.fleet.reference import reference_fleet
from data.fleet.types import Fleet
from data.log.join import JOINED
from data.synth.assign import Assignment
from data.synth.mix import Stream
from data.synth.profiles import PROFILES
from models.features import INDEX
from models.hardware import fleet_kinds
from models.samples import Samples, samples_from_tables
from planner.arm import Arm
from planner.demo.workload import cut
from planner.scenario import Scenario
from planner.sim.settings import SimSettings
from planner.trace_source import Shaped, SynthTrace

POLICIES = ("least_request", "tokenpilot", "random")
"""What routes the logged runs: the random one brings features that no sensible policy would meet."""
CAPACITY_PER_S = {"mixed-pool": 13.5, "six-types": 32.0}
"""Requests/s of the traffic below at which queues begin to grow without end under least-request."""
TRAFFIC = {
    # profile: share of all requests, longest prompt, class
    "chat": (0.45, 16_000, "interactive"),
    "conversation": (0.35, 16_000, "interactive"),
    "document": (0.06, 60_000, "long_context"),
    "batch": (0.14, 60_000, "batch"),
}
SIX_TYPES = {"L40S": 3, "A100": 2, "H100": 2, "RTX-PRO-6000": 2, "H200": 1, "B200": 1}


@dataclass
class KeptRows:
    """A record sink that keeps rows in memory."""

    decisions: list[dict[str, Any]] = field(default_factory=list)
    outcomes: dict[tuple[int, int], dict[str, Any]] = field(default_factory=dict)

    def decision(self, row: dict[str, Any]) -> None:
        """Keep a decision."""
        self.decisions.append(row)

    def outcome(self, row: dict[str, Any]) -> None:
        """Keep an outcome."""
        self.outcomes[row["request_id"], row["attempt"]] = row

    def table(self) -> pa.Table:
        """Decisions joined with their outcomes."""
        rows = [row | self.outcomes.get((row["request_id"], row["attempt"]), {}) for row in self.decisions]
        return pa.Table.from_pylist(rows, schema=JOINED)


def fleet_of(name: str) -> Fleet:
    """``mixed-pool``, or the same model on six GPU types."""
    fleet = reference_fleet("mixed-pool")
    if name == "mixed-pool":
        return fleet
    counts = SIX_TYPES.items()
    return replace(
        fleet,
        name=name,
        pools=tuple(replace(fleet.pools[0], gpu_type=gpu, count=count) for gpu, count in counts),
        configs=tuple(replace(fleet.configs[0], name=gpu.lower(), gpu_type=gpu) for gpu, _ in counts),
        placement=tuple(replace(fleet.placement[0], config=gpu.lower(), replicas=count) for gpu, count in counts),
    )


def scenario(fleet: str, level: float, duration_s: float) -> Scenario:
    """One load level, as a share of the fleet's capacity; one client in 200 cancels."""
    rate = CAPACITY_PER_S[fleet] * level
    streams = tuple(
        Stream(cut(PROFILES[name], longest), rate * share, Assignment("assistant@v1", "default", kind), label=name)
        for name, (share, longest, kind) in TRAFFIC.items()
    )
    trace = SynthTrace(streams, duration_s, f"mixed traffic at {level:.0%} of capacity")
    return Scenario(fleet_of(fleet), Shaped(trace), SimSettings(cancel_share=0.005))


@dataclass(frozen=True, slots=True)
class LoggedRun:
    """One run of a fleet at a level; its position in a list is its run number."""

    fleet: str
    level: float
    policy: str
    seed: int
    duration_s: float

    def rows(self) -> pa.Table:
        """Simulate it."""
        kept = KeptRows()
        scenario(self.fleet, self.level, self.duration_s).run(Arm(self.policy, self.policy), self.seed, kept)
        return kept.table()


def logged_runs(
    fleet: str, levels: Sequence[float], policies: Sequence[str], seeds: Sequence[int], duration_s: float
) -> list[LoggedRun]:
    """Every seed with every level and policy, each with draws of its own; all runs of a seed stand together."""
    return [
        LoggedRun(fleet, level, policy, 1000 * round(100 * level) + 10 * seed + number, duration_s)
        for seed in seeds
        for level in levels
        for number, policy in enumerate(policies)
    ]


def samples_of(runs: Sequence[LoggedRun]) -> Samples:
    """Samples of all runs."""
    fleets = [fleet_of(name) for name in dict.fromkeys(run.fleet for run in runs)]
    return samples_from_tables([run.rows() for run in runs], fleet_kinds(fleets, load_catalog()))


def without_gpu_type(samples: Samples, name: str) -> tuple[Samples, Samples]:
    """Samples without one GPU type, whose codes do not name it, and those of that type alone."""
    code = samples.codes.gpu_types.index(name)
    mine = samples.features[:, INDEX["gpu_type"]] == code
    codes = replace(samples.codes, gpu_types=tuple(one for one in samples.codes.gpu_types if one != name))
    return samples.take(~mine).recoded(codes), samples.take(mine)
