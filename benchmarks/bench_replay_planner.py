"""The planner as a scaler inside Dynamo's offline replay, beside Dynamo's own planner and every fixed size.

Takes part where ``TOKENFLEET_DYNAMO_REPLAY_PYTHON`` names an interpreter with ``ai-dynamo`` 1.4.2 and the packages
that its planner imports. Engine, requests, router and targets are the same for all; the replay is Dynamo's. Both
planners are tuned on training traces, Dynamo's by twelve trials and ours by six; reported are three other courses
of demand with five seeds each. Figure of merit: requests within their targets for each GPU-hour. Fixed sizes are
judged with hindsight: the best one of the *reported* runs is the reference.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.replay.run import PROGRAM, Outcome, interpreter, replay
from benchmarks.replay.scaler import PlannerScaler, ScalerSettings
from benchmarks.replay.workload import (
    MOST_WORKERS,
    REPORTED,
    TPOT_S,
    TRAINING,
    TTFT_S,
    Workload,
    engine,
    facts,
    write_trace,
)
from data.catalog.load import load_catalog
from planner.capacity_cache import CapacityCache
from planner.intervals import paired_relative_difference
from solver.child import ChildSolver

Row = dict[str, Any]
Arm = Callable[[Path], Outcome]
"""One rival: from a trace file to what came of it."""
SEEDS = (1, 2, 3, 4, 5)
TRAINING_SEED = 101
START_WORKERS = 3
SIZES = (2, 3, 4, 5, 6, 7, 8)
PEER_BASE: dict[str, object] = {
    "mode": "agg",
    "backend": "mocker",
    "optimization_target": "sla",
    "ttft_ms": 1e3 * TTFT_S,
    "itl_ms": 1e3 * TPOT_S,
    "max_gpu_budget": MOST_WORKERS,
}
OUR_TRIALS = tuple(
    ScalerSettings(gpu_worth_share=share, pool_replicas=pool) for share, pool in product((0.1, 0.2, 0.3), (1, 4))
)


def peer_trials() -> list[dict[str, object]]:
    """Twelve settings of Dynamo's planner: by load, by forecast, and both."""
    by_load: dict[str, object] = {"enable_throughput_scaling": False, "enable_load_scaling": True}
    trials = [
        by_load | {"load_adjustment_interval_seconds": every, "load_scaling_down_sensitivity": down}
        for every, down in product((5, 10), (60, 80, 95))
    ]
    hybrid: dict[str, object] = {"enable_throughput_scaling": True, "enable_load_scaling": True}
    trials += [
        hybrid | {"load_predictor": rule, "throughput_adjustment_interval_seconds": every}
        for rule, every in product(("kalman", "constant", "prophet"), (20, 60))
    ]
    return [PEER_BASE | trial for trial in trials]


@dataclass
class Contest:
    """Runs arms on traces; everything that takes time is made once."""

    python: str
    folder: Path
    check: CapacityCache
    solve: ChildSolver

    def __post_init__(self) -> None:
        self.engine = engine(self.folder)

    def trace(self, workload: Workload, seed: int) -> Path:
        """The file of a course of demand and seed."""
        path = self.folder / f"{workload.name}-{workload.rate_per_s(0.0):g}-{seed}.jsonl"
        if not path.exists():
            write_trace(workload, seed, path)
        return path

    def fixed(self, workers: int) -> Callable[[Path], Outcome]:
        """A fixed number of workers."""
        return lambda trace: replay(self.python, trace, self.engine, workers)

    def peer(self, settings: dict[str, object]) -> Callable[[Path], Outcome]:
        """Dynamo's planner."""
        return lambda trace: replay(self.python, trace, self.engine, START_WORKERS, planner=settings)

    def ours(self, settings: ScalerSettings, season_s: float) -> Callable[[Path], Outcome]:
        """Our planner, new for each run, told of a season."""

        def run(trace: Path) -> Outcome:
            scaler = PlannerScaler(settings, load_catalog(), self.check, self.solve, facts().load_s, season_s)
            return replay(
                self.python, trace, self.engine, START_WORKERS, ask=scaler.wanted, tick_s=settings.tick_s
            )

        return run


def best_trial(contest: Contest, trials: Iterable[tuple[str, Callable[[Workload], Arm]]]) -> int:
    """Number of the trial with most good requests for each GPU-hour over the training traces."""
    scores = []
    for name, arm in trials:
        found = [arm(workload)(contest.trace(workload, TRAINING_SEED)) for workload in TRAINING]
        score = sum(outcome.good_per_gpu_hour for outcome in found) / len(found)
        note(f"trial {name}: {score:,.0f} good requests per GPU-hour")
        scores.append(score)
    return max(range(len(scores)), key=scores.__getitem__)


def note(text: str) -> None:
    """Progress, to standard error."""
    print(text, file=sys.stderr, flush=True)


def rows(quick: bool) -> list[Row]:
    """One row a trace and rival. Quick: one trace, one seed, fixed settings; none without the interpreter."""
    python = interpreter()
    if python is None:
        note(f"no replay: {PROGRAM} names no interpreter")
        return []
    with tempfile.TemporaryDirectory() as folder, ChildSolver() as solve:
        contest = Contest(python, Path(folder), CapacityCache(Path(folder) / "capacity.json"), solve)
        return quick_rows(contest) if quick else full_rows(contest)


def quick_rows(contest: Contest) -> list[Row]:
    """A short sinusoid under the last of the peer's trials and our defaults: shows that both still run."""
    workload = replace(REPORTED[0], duration_s=400.0)
    arms = {"ours": contest.ours(ScalerSettings(), workload.season_s), "dynamo": contest.peer(peer_trials()[-1])}
    found = {name: [run(contest.trace(workload, 1))] for name, run in arms.items()}
    return [row("short-sinusoid", "dynamo", found["ours"], found["dynamo"], target=False)]


def full_rows(contest: Contest) -> list[Row]:
    """Tune both, then run all arms on all reported traces."""
    trials = peer_trials()
    peer = trials[best_trial(contest, ((str(t), lambda _, t=t: contest.peer(t)) for t in trials))]
    ours = OUR_TRIALS[
        best_trial(contest, ((str(t), lambda w, t=t: contest.ours(t, w.season_s)) for t in OUR_TRIALS))
    ]
    note(f"Dynamo: {peer}\nours: {ours}")
    return [found for workload in REPORTED for found in reported_rows(contest, workload, ours, peer)]


def reported_rows(
    contest: Contest, workload: Workload, ours: ScalerSettings, peer: dict[str, object]
) -> list[Row]:
    """All arms on one reported course of demand: ours over the peer and over the best fixed size."""
    traces = [contest.trace(workload, seed) for seed in SEEDS]

    def over_seeds(arm: Arm) -> list[Outcome]:
        return [arm(trace) for trace in traces]

    arms = {f"fixed-{size}": over_seeds(contest.fixed(size)) for size in SIZES}
    best = max(arms, key=lambda name: sum(outcome.good_per_gpu_hour for outcome in arms[name]))
    rivals = {"dynamo": over_seeds(contest.peer(peer)), best: arms[best]}
    mine = {"": over_seeds(contest.ours(ours, workload.season_s))}
    if workload.name == "sinusoid":
        mine["_season_unknown"] = over_seeds(contest.ours(ours, math.inf))
    for name, found in {**rivals, **{f"ours{kind}": found for kind, found in mine.items()}}.items():
        note(f"{workload.name}, {name}: {describe(found)}")
    made = [
        row(
            f"{workload.name}{kind}",
            rival,
            mine[kind],
            rivals[rival],
            target=workload.name == "sinusoid" and not kind,
        )
        for kind, rival in product(mine, rivals)
    ]
    for one in made:
        note(str(one))
    return made


def describe(found: Sequence[Outcome]) -> str:
    """Means over the seeds."""
    good = mean(outcome.good / outcome.requests for outcome in found)
    hours = mean(outcome.gpu_hours for outcome in found)
    each = mean(outcome.good_per_gpu_hour for outcome in found)
    goodput = mean(outcome.goodput_tokens_per_s for outcome in found)
    return f"good {good:.1%}, {hours:.2f} GPU-hours, {each:,.0f} good each, Goodput {goodput:,.0f} tokens/s"


def row(trace: str, rival: str, mine: Sequence[Outcome], theirs: Sequence[Outcome], *, target: bool) -> Row:
    """Good requests for each GPU-hour, ours over the rival's."""
    values, reference = [[o.good_per_gpu_hour for o in found] for found in (mine, theirs)]
    gain = paired_relative_difference(values, reference)
    return {
        "id": f"replay/{trace}/over_{rival}",
        "area": "planner",
        "value": round(sum(values) / len(values), 1),
        "unit": "good requests/GPU-hour",
        "reference": round(sum(reference) / len(reference), 1),
        "ratio": round(1 + gain.mean, 4),
        "target": "> 1, interval above 1" if target else None,
        "met": bool(gain.low is not None and gain.low > 0) if target else None,
        "seeds": len(values),
        "interval": [gain.low, gain.high],
    }


def main() -> None:
    """Print the rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    for found in rows(parser.parse_args().quick):
        print(found)


if __name__ == "__main__":
    main()
