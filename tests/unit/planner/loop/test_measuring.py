"""Capacities that a step lacks are measured beside the loop, and no step waits for one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from data.errors import InputError
from data.fleet.types import Fleet
from models.capacity import GroupRate
from models.capacity_check import CapacityCase, CheckedRate
from planner.capacity_cache import CapacityCache
from planner.loop.measuring import Measuring, Wanted, measure_into
from planner.loop.settings import LoopSettings
from planner.loop.sources import FileSource
from planner.loop.step import StepJob, StepResult, run_step
from planner.settings import PlannerSettings
from planner.work_pool import WorkError
from solver.backends import solve_here

NOW_S = 1_800_000_000.0


def quick(case: CapacityCase, closed: GroupRate, settings: Any) -> CheckedRate:
    """A load test that takes no time and finds what the closed form says."""
    return CheckedRate(closed.of(1), closed.of(4), 0.01, 0.01, 1.0)


def taken(fleet: Fleet, folder: Path, cache: Path) -> StepResult:
    demand = folder / "demand.yaml"
    demand.write_text(
        "demand: [{model: chat@v1, workload_class: interactive, tenant: acme, origin: eu-1, tokens_per_s: 900}]"
    )
    loop = LoopSettings(shadow_requests=40, shadow_seeds=1, window_s=30.0, shadow_policy="least_request")
    job = StepJob(fleet, (FileSource(demand),), None, (), NOW_S, PlannerSettings(), loop, cache)
    return run_step(job, solve_here)


def test_a_step_measures_nothing_and_names_what_it_lacks(fleet: Fleet, tmp_path: Path) -> None:
    cache = tmp_path / "capacities.json"
    first = taken(fleet, tmp_path, cache)
    assert len(first.lacking) >= 1
    assert f"{len(first.lacking)} capacities are not measured yet: closed form" in first.notes
    assert not cache.exists()
    known = CapacityCache(cache, measure=quick)
    for case, closed in first.lacking:
        known(case, closed)
    second = taken(fleet, tmp_path, cache)
    assert second.lacking == ()
    assert not any("not measured" in note for note in second.notes)


@pytest.fixture
def wanted(fleet: Fleet, tmp_path: Path) -> Wanted:
    return taken(fleet, tmp_path, tmp_path / "none.json").lacking * 3


def test_cases_are_measured_one_by_one_and_a_failure_ends_nothing(wanted: Wanted, tmp_path: Path) -> None:
    asked: list[Any] = []

    def apart(function: Callable[..., Any], path: Path, case: Any, closed: Any, **limits: Any) -> None:
        assert function is measure_into
        assert limits["deadline_s"] > 0
        asked.append((path, case, closed))
        if len(asked) == 1:
            raise WorkError("not done after 1800 s")

    measuring = Measuring(tmp_path / "c.json", apart)
    assert not measuring.measure_one()
    measuring.want(wanted)
    while measuring.measure_one():
        pass
    assert [(case, closed) for _, case, closed in asked] == list(wanted)


def test_a_new_step_replaces_what_was_wanted_and_the_thread_ends_when_told(wanted: Wanted, tmp_path: Path) -> None:
    begun, asked = threading.Event(), []

    def apart(function: Callable[..., Any], *arguments: Any, **limits: Any) -> None:
        asked.append(arguments)
        begun.set()
        limits["stop"].wait(30.0)
        raise WorkError("told to stop")

    measuring = Measuring(tmp_path / "c.json", apart)
    thread = threading.Thread(target=measuring.run)
    thread.start()
    measuring.want(wanted)
    assert begun.wait(30.0)
    measuring.want(wanted[:1])
    measuring.stop()
    thread.join(30.0)
    assert not thread.is_alive()
    assert len(asked) == 1
    assert not measuring.measure_one(), "nothing more is measured after the end"


def test_a_file_that_is_no_such_file_is_told(wanted: Wanted, tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text("{}")
    with pytest.raises(InputError, match="not a capacity cache"):
        measure_into(path, *wanted[0])
