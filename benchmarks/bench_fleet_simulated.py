"""The placement contest request by request: six hours of day 5 of every seed in the simulator.

Plans are those of ``bench_fleet``, made from day 4 on. The simulator executes their starts and drains on the
clock of ``fleet_contest.sim_judge``; it adds what the flow judge leaves out: queues, bursts, drains, admission,
and routing by requests. Only the strongest rivals of the flow judge take part, because an hour costs some
seconds an arm.

    python -m benchmarks.bench_fleet_simulated [--out FILE]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.bench_fleet import LOADS, OWN, REPORTED, SEEDS, chosen_arms, slug
from benchmarks.fleet_contest.arms import carry_out
from benchmarks.fleet_contest.demand import DAY, HOUR
from benchmarks.fleet_contest.setting import contest_fleet, make_contest, measured_table
from benchmarks.fleet_contest.sim_judge import simulate_plan
from planner.capacity_table import CapacityTable
from planner.intervals import estimate, paired_relative_difference
from planner.sim.result import RunResult
from solver.child import ChildSolver

DAY_BEFORE, SIMULATED_DAY = REPORTED[0], REPORTED[1]
FIRST = SIMULATED_DAY * DAY
HOURS = 6
ARMS = ("static", "yesterday's peak", "slice cover", OWN)


def run_seed(table: CapacityTable, seed: int, hours: int) -> dict[str, RunResult]:
    """All arms on one seed."""
    last = FIRST + hours * HOUR
    contest = make_contest(contest_fleet(), table, LOADS[0], seed, (DAY_BEFORE, SIMULATED_DAY))
    found = {}
    with ChildSolver() as child:
        for arm in chosen_arms():
            if arm.name in ARMS:
                plan = carry_out(contest, arm, DAY_BEFORE * DAY, last, child)
                run = found[arm.name] = simulate_plan(contest, FIRST, plan[FIRST - DAY_BEFORE * DAY :], seed)
                print(
                    f"   seed {seed} {arm.name:<18} {run.total.goodput_tokens_per_s:8.0f} tokens/s"
                    f" {run.total.attainment_offered:6.3f} {run.wall_s:5.0f} s",
                    file=sys.stderr,
                    flush=True,
                )
    return found


def arm_rows(runs: Sequence[dict[str, RunResult]]) -> list[dict[str, Any]]:
    """One row an arm over the best rival, paired by seed."""
    goodput = {name: [one[name].total.goodput_tokens_per_s for one in runs] for name in ARMS}
    best = max(ARMS[:-1], key=lambda name: sum(goodput[name]))
    per_hour = {name: [one[name].goodput_per_gpu_hour for one in runs] for name in ARMS}
    rows = []
    for name in ARMS:
        gain = paired_relative_difference(goodput[name], goodput[best])
        low = None if gain.half_width is None else [round(gain.mean + s * gain.half_width, 4) for s in (-1, 1)]
        hours = paired_relative_difference(per_hour[name], per_hour[best])
        rows.append(
            {
                "id": f"fleet/simulated/load-{LOADS[0]:g}/{slug(name)}",
                "area": "fleet",
                "value": round(gain.mean, 4),
                "unit": "more Goodput than the best rival",
                "reference": best,
                "ratio": round(1.0 + gain.mean, 4),
                "target": None,
                "met": None,
                "seeds": len(runs),
                "interval": low,
                "per_gpu_hour_ratio": round(1.0 + hours.mean, 4),
                "mean_goodput": round(estimate(goodput[name], 1).mean, 1),
                "mean_attainment": round(estimate([one[name].total.attainment_offered for one in runs]).mean, 4),
                "residency_breaches": sum(one[name].residency_breaches for one in runs),
            }
        )
    return rows


def rows(quick: bool) -> list[dict[str, Any]]:
    """Five seeds; ``quick`` gives none: one arm of one seed would take longer than a quick run may."""
    if quick:
        return []
    table = measured_table(contest_fleet())
    return arm_rows([run_seed(table, seed, HOURS) for seed in SEEDS])


def main() -> None:
    """Run, print, and write the rows if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=int, default=HOURS)
    parser.add_argument("--out", type=Path, help="file for the rows, JSON")
    given = parser.parse_args()
    table = measured_table(contest_fleet())
    runs: list[dict[str, RunResult]] = []
    for seed in SEEDS:
        runs.append(run_seed(table, seed, given.hours))
        made = arm_rows(runs)
        if given.out:
            given.out.write_text(json.dumps(made, indent=1) + "\n")
    for row in made:
        print(f"{row['id']:<50} {row['value']:>8.3f} {row['mean_attainment']:>7.3f}")


if __name__ == "__main__":
    main()
