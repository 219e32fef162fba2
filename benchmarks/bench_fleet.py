"""Realised Goodput of FleetMind's placement against the placement rules of others on eleven days of demand.

Three regions on shifted clocks, 50 GPUs of four types, four models, some of the customers bound to their region
(``benchmarks/fleet_contest``). All arms have the same forecasts, capacities, GPU limits, load times and
routing. Settings of every rule are chosen by Goodput on days 2 and 3 of the first seed at load 0.8
(``--tune``), four trials for each; days 4 to 10 are reported, over seeds that draw which client is a customer
of which model, region and class. The judge is the flow program of ``fleet_contest.flow_judge``;
``fleet_contest.sim_judge`` runs hours of them request by request.

    python -m benchmarks.bench_fleet [--tune] [--load L] [--days 4 7 10] [--out FILE]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.fleet_contest.arms import (
    BATCH_CLASS,
    Arm,
    OwnSettings,
    carry_out,
    clairvoyant,
    instances,
    own,
    regret,
    slices,
    static,
    yesterday,
)
from benchmarks.fleet_contest.demand import DAY
from benchmarks.fleet_contest.flow_judge import joined, judge
from benchmarks.fleet_contest.setting import PLANNER, Contest, contest_fleet, make_contest, measured_table
from planner.capacity_table import CapacityTable
from planner.intervals import Estimate, estimate, paired_relative_difference
from solver.child import ChildSolver
from solver.linear import ModelSolver
from solver.placement_rivals.instance_change import ChangeSettings
from solver.placement_rivals.slice_cover import Limits

LOADS = (0.8, 0.6)
SEEDS = (0, 1, 2, 3, 4)
TUNING = (2, 3)
REPORTED = (4, 5, 6, 7, 8, 9, 10)
QUICK = (4,)
TARGET = 0.10
OWN, PRICED, SEGMENTS, VALUE = (
    *("FleetMind", "FleetMind, GPUs priced", "FleetMind, segments", "FleetMind, value policy"),
)
CHOSEN = {"static": 1, "yesterday's peak": 1, "regret greedy": 0, "slice cover": 0, "instance change": 1, OWN: 0}
"""Which trial of each rule was best on the tuning days."""
CLOSE = replace(PLANNER, placement=replace(PLANNER.placement, hysteresis=0.002))
"""In the contest moves cost what they cost and nothing more."""


@dataclass(frozen=True, slots=True)
class Figures:
    """One arm on the reported days of one seed: tokens/s, shares, hours, counts."""

    goodput: float
    value: float
    attainment: float
    gpu_hours: float
    goodput_per_gpu_hour: float
    moves: int


def _change(slow: float, equal: bool, own_site: bool = True) -> ChangeSettings:
    return ChangeSettings((BATCH_CLASS,), slow_share=slow, equal_tokens=equal, own_site=own_site)


def rival_trials() -> dict[str, list[Arm]]:
    """Four settings of each rival."""
    tried = [
        [static(factor) for factor in (0.7, 0.8, 0.85, 1.0)],
        [yesterday(factor) for factor in (0.3, 0.4, 0.5, 0.6)],
        [regret(factor, every) for factor in (0.7, 0.85) for every in (6, 1)],
        [slices(factor, limits) for factor in (0.7, 0.85) for limits in Limits],
        [
            *(instances(factor, _change(1.0, equal=True)) for factor in (0.7, 0.85, 1.0)),
            instances(0.85, _change(0.1, equal=True)),
        ],
    ]
    return {arms[0].name: arms for arms in tried}


def own_trials() -> list[Arm]:
    """Four settings of FleetMind: value segments or the median, of the mean or of the busiest window."""
    tried = [
        OwnSettings(factor=0.85, certain=True, measure="peak"),
        OwnSettings(factor=0.85, certain=True),
        OwnSettings(factor=0.85),
        OwnSettings(factor=0.75, certain=True, measure="peak"),
    ]
    return [own(replace(settings, planner=CLOSE)) for settings in tried]


def chosen_arms() -> list[Arm]:
    """Every rule as it was set on the tuning days."""
    trials = {**rival_trials(), OWN: own_trials()}
    return [trials[name][number] for name, number in CHOSEN.items()]


def extra_arms() -> list[Arm]:
    """Arms that stand beside: they are no rivals, and have no part in the target."""
    return [
        clairvoyant(6, 0.85),
        own(OwnSettings(planner=CLOSE, factor=0.85, certain=True, measure="peak", gpu_worth=0.1), PRICED),
        own(OwnSettings(planner=CLOSE, factor=0.85), SEGMENTS),
        instances(0.85, _change(1.0, equal=True, own_site=False)),
        own(OwnSettings(planner=CLOSE, factor=0.85, certain=True, measure="peak", plain=False), VALUE),
    ]


def tune(table: CapacityTable) -> list[tuple[str, str, float]]:
    """Rule, setting and Goodput of every trial on the tuning days."""
    contest = make_contest(contest_fleet(), table, LOADS[0], SEEDS[0], TUNING)
    found = []
    with ChildSolver() as child:
        for arms in (*rival_trials().values(), own_trials()):
            for arm in arms:
                figures = run_arm(contest, arm, TUNING, child)
                found.append((arm.name, arm.setting, figures.goodput))
                _tell(LOADS[0], SEEDS[0], arm, figures, 0.0)
    return found


def run_arm(contest: Contest, arm: Arm, days: Sequence[int], solve: ModelSolver) -> Figures:
    """Carry an arm out over these days, and judge it; after a gap it begins anew."""
    parts = []
    for first, last in spans(days):
        parts.append(judge(contest, first, carry_out(contest, arm, first, last, solve)))
    found = joined(parts)
    return Figures(
        found.goodput,
        found.value,
        found.attainment,
        found.gpu_hours,
        found.goodput_per_gpu_hour,
        found.moves,
    )


def spans(days: Sequence[int]) -> list[tuple[int, int]]:
    """First window and end of each run of days that follow each other."""
    runs: list[list[int]] = []
    for day in sorted(days):
        if runs and runs[-1][1] == day * DAY:
            runs[-1][1] += DAY
        else:
            runs.append([day * DAY, (day + 1) * DAY])
    return [(first, last) for first, last in runs]


@dataclass(slots=True)
class Sweep:
    """All arms at one load: figures by arm, one a seed."""

    load: float
    mark: str
    chosen: dict[str, str]
    figures: dict[str, list[Figures]]

    def estimate(self, arm: str, what: str) -> Estimate:
        """Mean over seeds."""
        return estimate([float(getattr(one, what)) for one in self.figures[arm]])

    def over(self, arm: str, base: str, what: str = "goodput") -> Estimate:
        """Relative difference, paired by seed."""
        pair = [[float(getattr(one, what)) for one in self.figures[name]] for name in (arm, base)]
        return paired_relative_difference(pair[0], pair[1])

    def best_rival(self) -> str:
        """The rival with the most Goodput over all seeds."""
        return max(rival_trials(), key=lambda name: self.estimate(name, "goodput").mean)


def sweep(
    table: CapacityTable, load: float, seeds: Sequence[int], days: Sequence[int], arms: Sequence[Arm]
) -> Sweep:
    """Every arm on every seed."""
    fleet = contest_fleet()
    result = Sweep(load, "", {arm.name: arm.setting for arm in arms}, {})
    with ChildSolver() as child:
        for seed in seeds:
            contest = make_contest(fleet, table, load, seed, days)
            result.mark = contest.demand.mark
            for arm in arms:
                began = time.perf_counter()
                found = run_arm(contest, arm, days, child)
                result.figures.setdefault(arm.name, []).append(found)
                _tell(load, seed, arm, found, time.perf_counter() - began)
    return result


def _tell(load: float, seed: int, arm: Arm, found: Figures, wall_s: float) -> None:
    print(
        f"   load {load:g} seed {seed} {arm.name:<24} {arm.setting:<36} {found.goodput:8.0f} tokens/s"
        f" {found.attainment:6.3f} {wall_s:5.0f} s",
        file=sys.stderr,
        flush=True,
    )


def slug(name: str) -> str:
    """The name of an arm in a row's id."""
    return name.replace("'", "").replace(",", "").replace(" ", "-")


def arm_row(found: Sweep, name: str, best: str) -> dict[str, Any]:
    """One arm over the best rival; FleetMind's row carries the target."""
    gain, hours = found.over(name, best), found.over(name, best, "goodput_per_gpu_hour")
    low = None if gain.half_width is None else [round(gain.mean + s * gain.half_width, 4) for s in (-1, 1)]
    is_own = name == OWN
    return {
        "id": f"fleet/contest/load-{found.load:g}/{slug(name)}{found.mark}",
        "area": "fleet",
        "value": round(gain.mean, 4),
        "unit": "more Goodput than the best rival",
        "reference": best,
        "ratio": round(1.0 + gain.mean, 4),
        "target": f">= {TARGET:g}, Goodput per GPU-hour not lower" if is_own and not found.mark else None,
        "met": (gain.mean >= TARGET and hours.mean >= 0.0) if is_own and not found.mark else None,
        "seeds": gain.count,
        "interval": low,
        "setting": found.chosen.get(name, ""),
        "per_gpu_hour_ratio": round(1.0 + hours.mean, 4),
        **{f"mean_{what}": round(found.estimate(name, what).mean, 4) for what in asdict(found.figures[name][0])},
    }


def rows(quick: bool) -> list[dict[str, Any]]:
    """All arms at both loads; ``quick``: one day of one seed, capacities by the closed form, and no target."""
    table = measured_table(contest_fleet(), measure=not quick)
    if quick:
        found = sweep(table, LOADS[0], SEEDS[:1], QUICK, chosen_arms())
        found.mark += "/quick"
        return sweep_rows(found)
    arms = [*chosen_arms(), *extra_arms()]
    return [row for load in LOADS for row in sweep_rows(sweep(table, load, SEEDS, REPORTED, arms))]


def sweep_rows(found: Sweep) -> list[dict[str, Any]]:
    """One row an arm."""
    return [arm_row(found, name, found.best_rival()) for name in found.figures]


def main() -> None:
    """Run the contest or a part of it, print its rows, and write them if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tune", action="store_true", help="the trials on the tuning days")
    parser.add_argument("--load", type=float, action="append", help="loads (default: both)")
    parser.add_argument("--days", type=int, nargs="+", default=REPORTED, help="reported days (default: all)")
    parser.add_argument("--no-extras", action="store_true", help="of the arms that stand beside only two")
    parser.add_argument("--out", type=Path, help="file for the rows, JSON")
    given = parser.parse_args()
    table = measured_table(contest_fleet())
    if given.tune:
        tune(table)
        return
    made: list[dict[str, Any]] = []
    for load in given.load or LOADS:
        arms = [*chosen_arms(), *extra_arms()[: 2 if given.no_extras else None]]
        made += sweep_rows(sweep(table, load, SEEDS, given.days, arms))
        if given.out:
            given.out.write_text(json.dumps(made, indent=1) + "\n")
    for row in made:
        print(f"{row['id']:<56} {row['value']:>8.3f} {row['mean_attainment']:>7.3f} {row['met']}")


if __name__ == "__main__":
    main()
