"""The order of drains and loads: small cases with a known answer, the ladder, and the checker."""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
from dataclasses import replace

import pytest

from data.errors import SettingError
from solver.child import ChildSolver
from solver.move_order import order_moves
from solver.move_order_cp_sat import MoveOrderLimits, cp_sat_order
from solver.move_order_greedy import greedy_order
from solver.move_order_instances import random_moves
from solver.move_order_problem import MoveAction, MoveProblem, order_cost
from solver.verify_moves import move_violations

LIMITS = MoveOrderLimits(time_limit_s=5.0, workers=1)


def start(pool: int = 0, model: int = 0, gpus: int = 1, lasts_s: int = 40, worth: float = 1.0) -> MoveAction:
    return MoveAction(True, pool, 0, model, gpus, lasts_s, 10 * gpus, worth)


def drain(pool: int = 0, model: int = 0, gpus: int = 1, lasts_s: int = 10, worth: float = 0.0) -> MoveAction:
    return MoveAction(False, pool, 0, model, gpus, lasts_s, 10 * gpus, worth)


def moves(*actions: MoveAction, free: tuple[int, ...] = (0,), loads: int = 9, floors: bool = True) -> MoveProblem:
    models = max(action.model for action in actions) + 1
    gone = [sum(a.capacity for a in actions if a.model == m and not a.start) for m in range(models)]
    come = [sum(a.capacity for a in actions if a.model == m and a.start) for m in range(models)]
    floor = [min(g, c) if floors else 0 for g, c in zip(gone, come, strict=True)]
    return MoveProblem(actions, free, (loads,), tuple(gone), tuple(floor))


def test_a_start_waits_for_the_drain_that_frees_its_gpus() -> None:
    problem = moves(drain(model=0), start(model=1))
    assert order_moves(problem, LIMITS).begin_s == (0, 10)


def test_a_drain_waits_for_the_start_that_replaces_it() -> None:
    problem = moves(drain(pool=0, worth=1.0), start(pool=1), free=(0, 1))
    assert order_moves(problem, LIMITS).begin_s == (40, 0)


def test_replicas_load_no_more_than_a_site_can_at_a_time() -> None:
    problem = moves(*(start(worth=w) for w in (1.0, 3.0, 2.0)), free=(3,), loads=1)
    assert order_moves(problem, LIMITS).begin_s == (80, 0, 40)


def test_the_dearer_start_gets_the_free_gpus_first() -> None:
    problem = moves(drain(model=2, lasts_s=60), start(model=0, worth=1.0), start(model=1, worth=5.0), free=(1,))
    assert order_moves(problem, LIMITS).begin_s == (0, 60, 0)


def test_one_gpu_between_two_moves_is_enough_for_a_chain() -> None:
    """Two models change places; one free GPU lets both keep their floor."""
    swap = moves(
        drain(pool=0, model=0, worth=1.0), drain(pool=1, model=1, worth=1.0),
        start(pool=1, model=0), start(pool=0, model=1), free=(1, 0),
    )  # fmt: skip
    for found in (greedy_order(swap), order_moves(swap, LIMITS)):
        assert found.floors == swap.floors
        assert move_violations(swap, found.begin_s, swap.floors) == []
        assert not found.note


def test_moves_that_wait_for_each_other_are_told_and_the_cheaper_floor_gives() -> None:
    """Two models change places on full pools: no order keeps both floors, yet all moves are made."""
    lock = moves(
        drain(pool=0, model=0, worth=1.0), drain(pool=1, model=1, worth=1.0),
        start(pool=1, model=0, worth=3.0), start(pool=0, model=1), free=(0, 0),
    )  # fmt: skip
    found = order_moves(lock, LIMITS)
    assert found.rule == "greedy"
    assert sorted(found.floors) == [0, 10]
    assert move_violations(lock, found.begin_s, found.floors) == []
    assert "wait for each other" in found.note[0]


def test_brute_force_finds_no_better_order() -> None:
    """F089: every order on a grid of seconds, for small moves of a few seconds each."""
    for seed in range(3):
        problem = random_moves(4, seed)
        short = tuple(replace(a, lasts_s=1 + a.lasts_s % 3, worth=round(a.worth, 1)) for a in problem.actions)
        problem = replace(problem, actions=short)
        horizon = problem.serial_s
        best = min(
            order_cost(problem, begin)
            for begin in itertools.product(range(horizon + 1), repeat=4)
            if not move_violations(problem, begin, problem.floors)
        )
        assert order_cost(problem, order_moves(problem, LIMITS).begin_s) == pytest.approx(best, rel=1e-3)


def test_the_guarded_process_gives_the_same_kind_of_answer() -> None:
    problem = random_moves(12, 1)
    with ChildSolver() as child:
        found = order_moves(problem, replace(LIMITS, deterministic=True, time_limit_s=0.1), child)
        assert child.deaths == 0
    assert not found.note
    assert move_violations(problem, found.begin_s, problem.floors) == []
    assert order_cost(problem, found.begin_s) <= order_cost(problem, greedy_order(problem).begin_s)


def test_a_solver_that_dies_leaves_the_order_of_the_list_rule() -> None:
    problem = random_moves(60, 0)
    with ChildSolver() as child:
        child.ask(b"moves\nnot json", time.monotonic() + 5)  # starts the process; it dies of the message
        threading.Thread(target=_kill_when_up, args=(child,), daemon=True).start()
        found = order_moves(problem, MoveOrderLimits(time_limit_s=20.0), child)
    assert found.rule == "greedy"
    assert "order of moves" in found.note[-1]
    assert move_violations(problem, found.begin_s, problem.floors) == []
    assert order_cost(problem, found.begin_s) <= order_cost(problem, greedy_order(problem).begin_s)


def _kill_when_up(child: ChildSolver) -> None:
    for _ in range(2000):
        if child.pid is not None:
            os.kill(child.pid, signal.SIGKILL)
            return
        time.sleep(0.002)


def test_hundreds_of_moves_are_left_to_the_list_rule() -> None:
    class Unasked:
        def ask(self, body: bytes, deadline_s: float) -> bytes | str:
            raise AssertionError("asked")

    problem = random_moves(202, 0)
    found = order_moves(problem, MoveOrderLimits(), Unasked())
    assert found.rule == "greedy"
    assert move_violations(problem, found.begin_s, problem.floors) == []


def test_an_audited_search_gives_the_same_order_twice() -> None:
    """F088: work is counted, not time."""
    problem, limits = random_moves(14, 3), MoveOrderLimits(time_limit_s=0.05, deterministic=True)
    hint = greedy_order(problem).begin_s
    assert cp_sat_order(problem, hint, limits) == cp_sat_order(problem, hint, limits)


def test_the_checker_finds_every_kind_of_fault() -> None:
    problem = moves(drain(pool=0, worth=1.0), start(pool=1), start(pool=1, model=0), free=(0, 2), loads=1)
    assert move_violations(problem, (40, 0, 40), problem.floors) == []
    faults = {
        "loads": (40, 0, 39),
        "floor": (39, 0, 40),
        "moves": (40, 0),
    }
    for rule, begin in faults.items():
        assert {found.rule for found in move_violations(problem, begin, problem.floors)} == {rule}
    assert move_violations(problem, (40, -1, 40), problem.floors)[0].rule == "moves"
    swap = moves(drain(model=0), start(model=1))
    assert [found.rule for found in move_violations(swap, (0, 9), swap.floors)] == ["gpus"]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"free": (0,)}, "actions"),
        ({"floors": (99,)}, "floors"),
        ({"loads": (0,)}, "loads"),
        ({"actions": (MoveAction(True, 0, 0, 0, 0, 1, 1, 1.0),)}, None),
    ],
)
def test_moves_that_no_order_can_make_are_refused(change: dict[str, object], field: str | None) -> None:
    problem = moves(start(), free=(1,))
    with pytest.raises(SettingError) as caught:
        replace(problem, **change)  # type: ignore[arg-type]
    assert caught.value.field == field
