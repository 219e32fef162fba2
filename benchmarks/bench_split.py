"""The capacity split: gap and time, the limit when its solver is killed, and what the solver is worth.

*Value of the solver*: 20 random instances of 8 pools and 16 tenants, each split by the solver, by priority and
regret (as llm-d's autoscaler shares out accelerators) and by our own look-ahead rule. A fluid judge then serves
demand that was drawn anew around the forecast: each tenant within its quota first, then what a class has left over
to whoever is worth most. Goodput is plain output tokens/s; the weighted figure counts them by tier. All other
tenants and pools stay the same, so differences are paired.
"""

from __future__ import annotations

import argparse
import os
import resource
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.split_simulation import simulated_lines
from data.types import FloatArray, IntArray
from planner.intervals import Estimate, paired_relative_difference
from solver.backends import solve_here
from solver.capacity import close_split, split_capacity
from solver.capacity_greedy import greedy_split
from solver.capacity_problem import CapacityProblem, CapacitySettings, CapacitySplit
from solver.capacity_regret import regret_split
from solver.child import ChildSolver
from solver.split_instances import SplitSize, random_split
from solver.verify_capacity import capacity_violations

Row = dict[str, Any]
LARGE = SplitSize(16, 32)
MIDDLE = SplitSize(8, 16)
SIZES = (SplitSize(2, 4), SplitSize(4, 8), MIDDLE, LARGE)
INSTANCES, QUICK_INSTANCES = 20, 8
DRAWS = 10
SPREAD = 0.3
"""Standard deviation of log demand; the forecast is its 90 % quantile."""
Z90 = 1.2816
SETTINGS = CapacitySettings(time_limit_s=5.0)
PATIENT = CapacitySettings(time_limit_s=60.0)
KILL_LIMIT_S = 3.0


def timed_split(
    problem: CapacityProblem, settings: CapacitySettings, child: ChildSolver
) -> tuple[CapacitySplit, float]:
    """A split and the seconds it took."""
    began = time.perf_counter()
    split = split_capacity(problem, settings, child)
    return split, time.perf_counter() - began


def size_rows(sizes: tuple[SplitSize, ...], seeds: range) -> list[Row]:
    """Worst gap and time by size; the solver process is warm, as in the planner."""
    found: list[Row] = []
    with ChildSolver() as child:
        timed_split(random_split(SIZES[0], 0), SETTINGS, child)
        for size in sizes:
            name = f"{size.pools}x{size.tenants}"
            runs = [timed_split(random_split(size, seed), SETTINGS, child) for seed in seeds]
            gap, took = max(split.gap for split, _ in runs), max(seconds for _, seconds in runs)
            middle = float(np.median([seconds for _, seconds in runs]))
            proved = sum(split.proved for split, _ in runs)
            large = size == LARGE
            found += [
                _row(f"split/gap/{name}", gap, "relative", "<= 1 %" if large else None, gap <= 0.01 + 1e-6),
                _row(f"split/seconds/{name}", took, "s", "<= 5 s" if large else None, took <= 5.0),
                _row(f"split/median_seconds/{name}", middle, "s", None, True),
                _row(f"split/proved/{name}", proved / len(runs), "share", None, True),
            ]
    return found


def processor_rows(seeds: range) -> list[Row]:
    """Processor seconds of the largest size, all processes together: the wall clock of a free machine."""
    used = []
    for seed in seeds:
        problem = random_split(LARGE, seed)
        before = _processor_s()
        split_capacity(problem, PATIENT, solve_here)
        used.append(_processor_s() - before)
    name = f"{LARGE.pools}x{LARGE.tenants}"
    return [
        _row(f"split/processor_seconds/{name}", max(used), "s", "<= 5 s", max(used) <= 5.0),
        _row(f"split/median_processor_seconds/{name}", float(np.median(used)), "s", None, True),
    ]


def _processor_s() -> float:
    """Of this process and of all helpers that have ended."""
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(used.ru_utime + used.ru_stime for used in map(resource.getrusage, kinds))


def limit_rows() -> list[Row]:
    """Seconds past the limit of a large split at gap 0: as it is, with the worker or CBC killed, and stuck."""
    exact = CapacitySettings(time_limit_s=KILL_LIMIT_S, relative_gap=0.0)
    problem = random_split(LARGE, 3)
    found: list[Row] = []
    for name in ("searching", "worker_killed", "cbc_killed", "worker_stopped"):
        with ChildSolver() as child:
            watch = None if name == "searching" else _disturb(child, name)
            split, took = timed_split(problem, exact, child)
            if watch is not None:
                watch.join()
        over = took - KILL_LIMIT_S
        sound = not capacity_violations(problem, split.parts, split.quota, split.missed)
        found.append(_row(f"split/past_limit/{name}", over, "s", "<= 1 s", sound and over <= 1.0))
    return found


def _disturb(child: ChildSolver, how: str) -> threading.Thread:
    """Kill or stop the solver as soon as CBC runs."""

    def watch() -> None:
        tick = threading.Event()
        for _ in range(20_000):
            pid = child.pid
            helpers = _children(pid) if pid is not None else []
            if pid is not None and helpers:
                if how == "worker_stopped":
                    os.kill(pid, signal.SIGSTOP)
                else:
                    os.kill(pid if how == "worker_killed" else helpers[0], signal.SIGKILL)
                return
            tick.wait(0.001)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


def _children(pid: int) -> list[int]:
    try:
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def served(problem: CapacityProblem, parts: IntArray, quota: FloatArray, demand: FloatArray) -> FloatArray:
    """Shape (K,): tokens/s that the fluid judge serves of ``demand``."""
    room = np.array([pool.rate[np.arange(problem.classes), parts[p]] for p, pool in enumerate(problem.pools)])
    total = quota.sum(axis=0)
    by_quota = quota * np.minimum(demand / np.maximum(total, 1e-12), 1.0)
    for p in range(len(problem.pools)):
        room[p] -= np.bincount(problem.workload_class, by_quota[p], problem.classes)
    done: FloatArray = by_quota.sum(axis=0)
    for k in np.argsort(-problem.weight, kind="stable").tolist():
        c = int(problem.workload_class[k])
        for p in np.flatnonzero(problem.permitted[:, k]).tolist():
            more = max(min(float(room[p, c]), float(demand[k] - done[k])), 0.0)
            room[p, c] -= more
            done[k] += more
    return done


def judged(problem: CapacityProblem, split: CapacitySplit, seed: int) -> tuple[float, float, float]:
    """Mean Goodput, weighted Goodput and delivered share of the guarantees over the draws of demand."""
    rng = np.random.default_rng([seed, 0xD0])
    figures = []
    for _ in range(DRAWS):
        demand = problem.demand * np.exp(SPREAD * (rng.standard_normal(len(problem.demand)) - Z90))
        done = served(problem, split.parts, split.quota, demand)
        due = np.minimum(problem.guarantee, demand)
        kept = float(np.minimum(done, due).sum() / max(due.sum(), 1e-12))
        figures.append((float(done.sum()), float(done @ problem.weight), kept))
    goodput, weighted, kept = np.mean(figures, axis=0).tolist()
    return goodput, weighted, kept


def value_table(load: float, child: ChildSolver, instances: int) -> list[dict[str, float]]:
    """One line an instance: the figures of each way to split."""
    lines = []
    for seed in range(instances):
        problem = random_split(SplitSize(MIDDLE.pools, MIDDLE.tenants, load=load), 100 + seed)
        ways = {
            "solver": split_capacity(problem, SETTINGS, child),
            "regret": close_split(problem, SETTINGS, *regret_split(problem), "regret_greedy"),
            "greedy": close_split(problem, SETTINGS, *greedy_split(problem, SETTINGS), "greedy"),
        }
        line: dict[str, float] = {"instance": float(seed)}
        for name, split in ways.items():
            figures = judged(problem, split, seed)
            line |= {f"{name}_goodput": figures[0], f"{name}_weighted": figures[1], f"{name}_kept": figures[2]}
        lines.append(line)
    return lines


def value_rows(load: float, lines: list[dict[str, float]]) -> list[Row]:
    """Mean gains of the solver with their 95 % intervals."""
    found: list[Row] = []
    for rival in ("regret", "greedy"):
        for figure in ("goodput", "weighted"):
            gain = paired_relative_difference(
                [line[f"solver_{figure}"] for line in lines], [line[f"{rival}_{figure}"] for line in lines]
            )
            target = "> 0, interval above 0" if figure == "goodput" and rival == "regret" else None
            found.append(_gain(f"split/value/{figure}_over_{rival}/load_{load:g}", gain, target, len(lines)))
    for name in ("solver", "regret", "greedy"):
        kept = float(np.mean([line[f"{name}_kept"] for line in lines]))
        found.append(_row(f"split/guarantees_kept/{name}/load_{load:g}", kept, "share", None, True))
    return found


def simulated_rows(instances: int) -> list[Row]:
    """Mean gains of the solver in Goodput of simulated runs; see ``benchmarks.split_simulation``."""
    with ChildSolver() as child:
        lines = list(simulated_lines(child, instances))
    found = []
    for rival in ("regret", "greedy"):
        gain = paired_relative_difference([line["solver"] for line in lines], [line[rival] for line in lines])
        target = "> 0, interval above 0" if rival == "regret" else None
        found.append(_gain(f"split/simulated/goodput_over_{rival}", gain, target, len(lines)))
    return found


def _gain(id_: str, value: Estimate, target: str | None, count: int) -> Row:
    met = target is None or (value.low is not None and value.low > 0)
    return {**_row(id_, value.mean, "relative", target, met), "ratio": 1.0 + value.mean, "seeds": count,
            "interval": [value.low, value.high]}  # fmt: skip


def _row(id_: str, value: float, unit: str, target: str | None, met: bool) -> Row:
    return {
        "id": id_,
        "area": "split",
        "value": value,
        "unit": unit,
        "reference": "-",
        "ratio": None,
        "target": target,
        "met": met if target is not None else None,
    }


def rows(quick: bool) -> list[Row]:
    """All rows; ``quick`` takes fewer seeds and one load."""
    found = size_rows((LARGE,) if quick else SIZES, range(2) if quick else range(10))
    found += processor_rows(range(2) if quick else range(10))
    found += limit_rows()
    with ChildSolver() as child:
        for load in (1.2,) if quick else (0.9, 1.2, 1.6):
            found += value_rows(load, value_table(load, child, QUICK_INSTANCES if quick else INSTANCES))
    if not quick:
        found += simulated_rows(INSTANCES)
    return found


def main(argv: list[str] | None = None) -> None:
    """Print the rows, or with ``--table LOAD`` the instances of one load."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--table", type=float)
    options = parser.parse_args(argv)
    if options.table is None:
        for one in rows(options.quick):
            print(one)
        return
    with ChildSolver() as child:
        for line in value_table(options.table, child, INSTANCES):
            print("  ".join(f"{name} {value:.5g}" for name, value in line.items()))


if __name__ == "__main__":
    main()
