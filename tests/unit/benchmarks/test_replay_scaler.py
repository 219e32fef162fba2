"""The planner as a scaler: it waits with stops, starts ahead of demand, and what the contest makes of outcomes."""

from __future__ import annotations

import math

import pytest

from benchmarks.bench_replay_planner import best_trial, row
from benchmarks.replay.picture import drawing, load
from benchmarks.replay.run import Outcome
from benchmarks.replay.scaler import PlannerScaler, ScalerSettings
from benchmarks.replay.workload import REPORTED, SEASON_S, TRAINING, Workload, sinusoid
from data.catalog.load import load_catalog
from models.capacity import GroupRate
from models.capacity_check import CapacityCase, CheckedRate
from solver.backends import solve_here

TICK_S, LOAD_S = 20.0, 35.0


def known(case: CapacityCase, closed: GroupRate) -> CheckedRate:
    """4.5 requests/s by one replica, whatever they are."""
    return CheckedRate(4.5, 18.0, 0.0, 0.0, 1.0)


def wanted(workload: Workload, ticks: int, season_s: float) -> list[int]:
    """Sizes at the ticks of a demand without noise."""
    scaler = PlannerScaler(
        ScalerSettings(tick_s=TICK_S, gpu_worth_share=0.2, pool_replicas=1),
        load_catalog(), known, solve_here, LOAD_S, season_s,
    )  # fmt: skip
    sizes = [3]
    for tick in range(1, ticks + 1):
        rate = workload.rate_per_s((tick - 0.5) * TICK_S)
        traffic = {
            "duration_s": TICK_S, "num_req": rate * TICK_S, "shape_count": 100, "avg_isl": 1700.0, "avg_osl": 200.0
        }  # fmt: skip
        sizes.append(scaler.wanted({"traffic": traffic, "workers": sizes[-1]}))
    return sizes


def test_a_known_season_is_started_for_ahead_and_stops_wait_for_the_demand_to_fall() -> None:
    workload = sinusoid()
    sizes = wanted(workload, 64, SEASON_S)
    for tick in range(44, 64):
        now = tick * TICK_S
        soon = workload.rate_per_s(now + TICK_S / 2)
        ready = max(workload.rate_per_s(now + LOAD_S), workload.rate_per_s(now + LOAD_S + TICK_S / 2))
        assert sizes[tick] * 4.5 >= 0.9 * soon, f"at {now} s: taken away before the demand fell"
        assert sizes[tick] * 4.5 >= 0.8 * ready, f"at {now} s: started too late for what comes"
    assert min(sizes[44:]) <= 2
    assert max(sizes[44:]) <= 7


def test_without_a_season_the_trend_is_followed() -> None:
    sizes = wanted(sinusoid(), 18, math.inf)
    assert sizes[4] >= 5
    assert sizes[16] <= 2


def outcome(good: int, hours: float) -> Outcome:
    return Outcome(100, good, hours, 1.0)


def test_a_trial_is_chosen_over_all_training_traces() -> None:
    class Told:
        def trace(self, workload: Workload, seed: int) -> tuple[str, int]:
            return workload.name, seed

    def arm(sinusoid_good: int, burst_good: int):  # type: ignore[no-untyped-def]
        return lambda _: lambda trace: outcome(sinusoid_good if trace[0] == "sinusoid" else burst_good, 1.0)

    trials = [("one", arm(90, 10)), ("both", arm(60, 60)), ("none", arm(5, 5))]
    assert best_trial(Told(), trials) == 1  # type: ignore[arg-type]
    assert {workload.name for workload in TRAINING} == {"sinusoid", "burst"}


def test_a_row_meets_its_target_only_with_the_whole_interval_above() -> None:
    mine, theirs = (
        [outcome(good, 1.0) for good in (50, 60, 70, 80, 90)],
        [outcome(good, 1.0) for good in (40, 50, 60, 70, 80)],
    )
    assert row("t", "r", mine, theirs, target=True)["met"] is True
    mixed = [outcome(good, 1.0) for good in (50, 51, 52, 53, 54)]
    assert row("t", "r", mixed, theirs, target=True)["met"] is False
    assert row("t", "r", mixed, theirs, target=False)["met"] is None


def test_the_picture_has_a_line_for_each_arm() -> None:
    lines = {"load": load(REPORTED[0]), "ours": [(0.0, 3.0), (800.0, 12.0)]}
    assert max(replicas for _, replicas in lines["load"]) == pytest.approx(5.0, abs=0.01)
    picture = drawing({"sinusoid": lines}, 1600.0)
    assert picture.count('stroke-width="1.7"') == 2
    assert "M60.0 173.5 H500.0 V46.0 H940.0" in picture
