"""What the capacity split does when its solver is killed, hangs, runs out of memory, lies or has no time."""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from solver.backends import solve_here
from solver.capacity import split_capacity
from solver.capacity_problem import CapacityProblem, CapacitySettings
from solver.child import ChildSolver
from solver.linear import Backend, LinearModel, LinearSolution, SolveLimits, SolveStatus, WarmStart, no_solution
from solver.split_instances import SplitSize, random_split
from solver.verify_capacity import capacity_violations

SMALL = random_split(SplitSize(2, 4), 0)
LARGE = random_split(SplitSize(8, 16), 1)
LONG = CapacitySettings(time_limit_s=60.0, relative_gap=0.0)
TO_THE_END = SplitSize(16, 32)
QUICK_METHODS = ("greedy", "regret_greedy", "kept")


def _sound(problem: CapacityProblem, split_parts: np.ndarray, quota: np.ndarray, missed: np.ndarray) -> bool:
    return not capacity_violations(problem, split_parts, quota, missed)


def _helpers(pid: int) -> list[int]:
    """Processes that the solver process has started."""
    try:
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _kill_when_solving(child: ChildSolver, whom: Callable[[int, int], int]) -> threading.Thread:
    """As soon as CBC runs, kill -9 what ``whom`` says of (worker, cbc)."""

    def watch() -> None:
        tick = threading.Event()
        for _ in range(60_000):
            pid = child.pid
            helpers = _helpers(pid) if pid is not None else []
            if pid is not None and helpers:
                os.kill(whom(pid, helpers[0]), signal.SIGKILL)
                return
            tick.wait(0.001)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize("victim", ["worker", "cbc"])
def test_a_solver_killed_in_the_middle_costs_the_answer_not_the_split(victim: str) -> None:
    """F092: kill -9 while CBC is searching; the greedy split stands and nothing is left running."""
    problem = random_split(TO_THE_END, 2)
    with ChildSolver() as child:
        killer = _kill_when_solving(child, lambda worker, cbc: worker if victim == "worker" else cbc)
        split = split_capacity(problem, LONG, child, ("cbc",))
        killer.join()
        assert split.method in QUICK_METHODS
        assert split.status is SolveStatus.FEASIBLE_LIMIT
        assert any("cbc error" in text for text in split.note)
        assert _sound(problem, split.parts, split.quota, split.missed)
        again = split_capacity(SMALL, CapacitySettings(time_limit_s=60.0), child, ("cbc",))
    assert again.proved


def test_a_hanging_solver_ends_soon_after_the_limit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The watchdog ends it, both backends together within one limit and a second."""
    hang = tmp_path / "hang"
    hang.write_text("#!/bin/sh\nexec sleep 60\n")
    hang.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(hang))
    began = time.monotonic()
    split = split_capacity(SMALL, CapacitySettings(time_limit_s=1.0), None, ("cp_sat", "cbc"))
    assert time.monotonic() - began < 2.0
    assert split.method in QUICK_METHODS
    assert len(split.note) == 2


def test_a_solver_out_of_memory_is_an_error() -> None:
    """The bound on memory hits the solver's process alone."""
    with ChildSolver(memory_mb=200) as child:
        split = split_capacity(SMALL, CapacitySettings(time_limit_s=60.0), child, ("cbc",))
        assert child.deaths == 1
    assert split.method in QUICK_METHODS
    assert "cbc error" in split.note[0]


class _Scripted:
    """Solves really, then says what the test wants it to say."""

    def __init__(self, change: Callable[[LinearSolution], LinearSolution]) -> None:
        self._change = change
        self.asked: list[tuple[Backend, float]] = []

    def __call__(
        self,
        model: LinearModel,
        limits: SolveLimits,
        start: WarmStart | None = None,
        backend: Backend = "highs",
    ) -> LinearSolution:
        self.asked.append((backend, limits.time_limit_s))
        return self._change(solve_here(model, limits, start, backend))


@pytest.mark.parametrize("backend", ["cbc", "cp_sat"])
def test_an_incumbent_at_the_limit_is_never_optimal(backend: Backend) -> None:
    """F083: the status is the solver's own word for a limit, whatever the incumbent is worth."""
    stopped = _Scripted(lambda answer: replace(answer, status=SolveStatus.FEASIBLE_LIMIT))
    split = split_capacity(SMALL, CapacitySettings(), stopped, (backend,))
    assert split.status is SolveStatus.FEASIBLE_LIMIT
    assert not split.proved
    assert "feasible_limit" in split.summary()


def test_a_real_time_limit_is_not_optimal_and_still_has_a_bound() -> None:
    """F083: CBC stopped by the clock in the search."""
    problem = random_split(TO_THE_END, 3)
    split = split_capacity(problem, CapacitySettings(time_limit_s=3.0, relative_gap=0.0), solve_here, ("cbc",))
    assert not split.proved
    assert split.bound >= split.objective


@pytest.mark.parametrize(
    "status",
    [SolveStatus.UNKNOWN, SolveStatus.INFEASIBLE, SolveStatus.UNBOUNDED, SolveStatus.ERROR],
)
def test_every_status_without_values_leaves_the_quick_split(status: SolveStatus) -> None:
    """F092, F097: a split always exists; the status is told, never taken for infeasible input."""
    split = split_capacity(
        SMALL, CapacitySettings(), _Scripted(lambda _: no_solution(status, "said so")), ("cbc",)
    )
    assert split.method in QUICK_METHODS
    assert split.note == (f"capacity split: cbc {status.value} (said so)",)
    assert math.isinf(split.gap)


def test_values_that_break_a_row_are_refused() -> None:
    """An answer is checked before it is used."""
    doubled = _Scripted(lambda answer: replace(answer, values=2.0 * answer.values))
    split = split_capacity(SMALL, CapacitySettings(), doubled, ("cbc",))
    assert split.method in QUICK_METHODS
    assert "broke a row" in split.note[0]


def test_a_running_split_is_kept_when_the_solver_knows_nothing() -> None:
    """F087: unknown at the limit; what runs is not made worse and nothing moves."""
    best = split_capacity(SMALL, CapacitySettings(relative_gap=0.0), solve_here, ("cbc",))
    pools = tuple(replace(pool, current=best.parts[p], move_limit=0) for p, pool in enumerate(SMALL.pools))
    running = replace(SMALL, pools=pools)
    blind = _Scripted(lambda _: no_solution(SolveStatus.UNKNOWN, "limit"))
    split = split_capacity(running, CapacitySettings(), blind)
    assert split.parts.tolist() == best.parts.tolist()
    assert split.objective >= best.objective * (1 - 0.02)


def test_a_poor_answer_never_replaces_a_better_split() -> None:
    """The start that CBC got is the least that comes out."""
    quick = split_capacity(LARGE, CapacitySettings(), solve_here, ())
    nothing = _Scripted(
        lambda answer: replace(answer, status=SolveStatus.FEASIBLE_LIMIT, values=np.zeros_like(answer.values))
    )
    assert split_capacity(LARGE, CapacitySettings(), nothing, ("cbc",)).objective == quick.objective


def test_two_backends_share_one_limit() -> None:
    """The second gets what the first has left."""
    blind = _Scripted(lambda _: no_solution(SolveStatus.UNKNOWN, "limit"))
    split_capacity(SMALL, CapacitySettings(time_limit_s=4.0), blind, ("cp_sat", "cbc"))
    assert [backend for backend, _ in blind.asked] == ["cp_sat", "cbc"]
    assert blind.asked[0][1] <= 2.0
    assert blind.asked[1][1] <= 4.0


def test_no_time_means_no_solver_at_all() -> None:
    """A limit that the greedy rules have used up."""
    split = split_capacity(LARGE, CapacitySettings(time_limit_s=1e-4), solve_here, ("cbc",))
    assert split.method in QUICK_METHODS
    assert "no time left" in split.note[0]
