"""What SLOMax promises to whom under overload, each promise in a scenario of its own.

All run the reference mix of ``benchmarks.slomax_scenario`` with TokenPilot behind SLOMax. Speed 0.92 is where
SLOMax meets the targets of about 95 % of the requests; that counts as the capacity.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from benchmarks.slomax_scenario import Mix, scenario
from data.fleet.reference import reference_fleet
from data.fleet.types import Fleet, Reservation, Tenant
from data.traces.transform import Assignment
from planner.arm import parse_arm
from planner.intervals import Estimate, estimate
from planner.run_pool import RunPool
from planner.scenario import Scenario
from planner.sim.result import RunResult
from planner.sim.settings import FailureEvent, SimSettings
from router.slomax.settings import SloMaxSettings

CAPACITY_SPEED = 0.92
OVERLOAD_SPEED = 1.6 * CAPACITY_SPEED
GOLD = Tenant("gold", tier="guaranteed", reservations=(Reservation("assistant@v1", tokens_per_s=2000.0),))
FLOW = replace(parse_arm("tokenpilot+slomax"), name="slomax")
FLOOR = 0.1
SECONDS = 500.0
"""Length of a run; the sources last longer at every speed that is used."""
WINDOW_S = 60.0
STORM_S = (200.0, 260.0)
"""Half of the replicas are down from here to there."""
RECOVERY_S = 120.0


def shaped(base: Scenario, speed: float, shares: dict[str, float], seconds: float, **settings: Any) -> Scenario:
    """The mix with tenants given to its sessions, in a window of its own clock that ends the run."""
    source = base.trace.source
    assert isinstance(source, Mix)
    trace = replace(
        base.trace,
        source=replace(source, duration_s=seconds * speed),
        names=(Assignment("tenant", shares),),
        speed=speed,
    )
    return replace(base, trace=trace, settings=SimSettings(**settings))


def fleet_with(*tenants: Tenant, batch_floor: float | None = None) -> Fleet:
    """The reference fleet with other tenants, and a floor for batch."""
    fleet = reference_fleet("one-pool")
    classes = tuple(
        replace(kind, floor_share=batch_floor) if kind.name == "batch" else kind for kind in fleet.classes
    )
    return replace(fleet, tenants=tenants, classes=classes)


def unloaded(case: Scenario) -> Scenario:
    """The same requests on a fleet five times as large."""
    fleet = case.fleet
    pools = tuple(replace(pool, count=5 * pool.count) for pool in fleet.pools)
    placed = tuple(replace(one, replicas=5 * one.replicas) for one in fleet.placement)
    return replace(case, fleet=replace(fleet, pools=pools, placement=placed))


def top_tier(pool: RunPool, seeds: Sequence[int], seconds: float) -> Estimate:
    """Attainment of the guaranteed tier at 160 % of the capacity, over that of the same requests unloaded."""
    fleet = fleet_with(GOLD, Tenant("silver"), Tenant("bronze", tier="best_effort"))
    shares = {"gold": 0.2, "silver": 0.4, "bronze": 0.4}
    case = shaped(scenario(fleet=fleet), OVERLOAD_SPEED, shares, seconds)
    loaded, light = (pool.run(one.run, [(FLOW, seed) for seed in seeds]) for one in (case, unloaded(case)))
    attained = [[run.by_tier["guaranteed"].attainment_offered for run in runs] for runs in (loaded, light)]
    return estimate(list(np.array(attained[0]) / np.array(attained[1])))


def guarantee_under_flood(pool: RunPool, seeds: Sequence[int], seconds: float) -> Estimate:
    """Output of a tenant within its guarantee by a minute after the last arrival, under another one's flood.

    The other sends ten times as much. Over the same when the fleet has room for all. The minute is for answers
    that are still being written, which is longer under load and no loss.
    """
    fleet = fleet_with(GOLD, Tenant("flood"))
    shares = {"gold": 1.0, "flood": 10.0}
    limit_s = seconds + WINDOW_S
    case = shaped(scenario(fleet=fleet), OVERLOAD_SPEED, shares, seconds, time_limit_s=limit_s)
    flooded, light = (pool.run(one.run, [(FLOW, seed) for seed in seeds]) for one in (case, unloaded(case)))
    delivered = [[float(run.by_tenant["gold"].output_tokens) for run in runs] for runs in (flooded, light)]
    return estimate(list(np.array(delivered[0]) / np.array(delivered[1])))


@dataclass(slots=True)
class WorkSeen:
    """Takes decisions and adds up the work that each class was given, by window, and who waited when.

    Attributes:
        arrived_s: Arrival of each request by its id.
        waited: Class to arrival and dispatch of its requests.
    """

    arrived_s: dict[int, float]
    work: Counter[tuple[int, str]] = field(default_factory=Counter)
    waited: dict[str, list[tuple[float, float]]] = field(default_factory=dict)

    def decision(self, row: dict[str, Any]) -> None:
        """Work of a request that was sent: its uncached prompt and four times its expected output."""
        if row.get("endpoint") is not None:
            uncached = row["input_tokens"] - (row["hit_tokens"] or 0)
            cost = uncached + SloMaxSettings().decode_price * row["expected_output_tokens"]
            kind, sent_s = row["workload_class"], row["decided_s"]
            self.work[int(sent_s // WINDOW_S), kind] += cost
            self.waited.setdefault(kind, []).append((self.arrived_s[row["request_id"]], sent_s))

    def outcome(self, row: dict[str, Any]) -> None:
        """Nothing is sent at an end."""

    def waits_throughout(self, kind: str, window: int) -> bool:
        """Whether at every full second of a window some request of the class waited."""
        moments = WINDOW_S * window + np.arange(WINDOW_S)
        spans = np.array(self.waited.get(kind, [])).reshape(-1, 2)
        waiting = (spans[:, :1] <= moments) & (moments < spans[:, 1:])
        return bool(waiting.any(axis=0).all())

    def share(self, kind: str, window: int) -> float:
        """The class's share of the work in a window."""
        every = sum(amount for (place, _), amount in self.work.items() if place == window)
        return self.work[window, kind] / every


def floor_kept(pool: RunPool, seeds: Sequence[int], seconds: float) -> Estimate:  # noqa: ARG001
    """Least share of the work that batch gets in any 60 s throughout which some of it waits, over its floor.

    The floor is a tenth. Batch comes at three times its rate, until its trace ends. Runs one after the other,
    because what they write is read here; the first window and the last, cut one are left out.

    Raises:
        ValueError: In no window batch waited throughout: nothing was promised, and nothing was measured.
    """
    fleet = fleet_with(Tenant("default"), batch_floor=FLOOR)
    case = shaped(scenario(3.0, fleet), OVERLOAD_SPEED, {"default": 1.0}, seconds, time_limit_s=seconds)
    least = []
    for seed in seeds:
        seen = WorkSeen({one.request_id: one.arrival_s for one in case.requests(seed)})
        case.run(FLOW, seed, sink=seen)
        windows = range(1, int(seconds // WINDOW_S))
        least += [seen.share("batch", one) / FLOOR for one in windows if seen.waits_throughout("batch", one)]
    if not least:
        raise ValueError("batch waited throughout no window")
    return Estimate(min(least), None, len(seeds))


def after_retry_storm(pool: RunPool, seeds: Sequence[int], seconds: float) -> Estimate:
    """Goodput from two to four minutes after half the engines came back, over that of a run in which none fails.

    Every failed or refused request is tried three times more.
    """
    fleet = fleet_with(Tenant("default"))
    crash = tuple(FailureEvent(STORM_S[0], row, "crash", STORM_S[1] - STORM_S[0]) for row in range(4))
    base = scenario(fleet=fleet)
    runs = []
    for failures in (crash, ()):
        case = shaped(base, CAPACITY_SPEED, {"default": 1.0}, seconds, retries=3, failures=failures)
        runs.append(pool.run(case.run, [(FLOW, seed) for seed in seeds]))
    after = [
        [_goodput(run, STORM_S[1] + RECOVERY_S, STORM_S[1] + 2 * RECOVERY_S) for run in each] for each in runs
    ]
    return estimate(list(np.array(after[0]) / np.array(after[1])))


def _goodput(run: RunResult, from_s: float, to_s: float) -> float:
    line = run.timeline
    return float(line.goodput_tokens_per_s[int(from_s // line.step_s) : int(to_s // line.step_s)].mean())


@dataclass(frozen=True, slots=True)
class Promise:
    """One promise.

    Attributes:
        measure: Gives the kept share over the seeds, from a pool, seeds and the length of a run.
        least: The promise is kept if the mean is at least this.
    """

    measure: Callable[[RunPool, Sequence[int], float], Estimate]
    least: float
    reference: str
    target: str


PROMISES = {
    "top_tier": Promise(top_tier, 0.99, "the same requests unloaded", ">= 99 %"),
    "floor": Promise(floor_kept, 1.0, "the floor, least 60 s window", ">= 100 %"),
    "guarantee": Promise(guarantee_under_flood, 0.98, "the same requests unloaded", ">= 98 %"),
    "retry_storm": Promise(after_retry_storm, 0.95, "no failure", ">= 95 % after 2 minutes"),
}


def main() -> None:
    """Print each promise with its mean and interval, and whether it is kept."""
    with RunPool(1) as pool:
        for name, promise in PROMISES.items():
            found = promise.measure(pool, range(1, 6), SECONDS)
            print(name, found, promise.reference, promise.target, found.mean >= promise.least, flush=True)


if __name__ == "__main__":
    main()
