"""Laws of every order of moves: it ends, it keeps GPUs, loads and its floors, and no search makes it dearer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from solver.move_order import order_moves
from solver.move_order_cp_sat import MoveOrderLimits
from solver.move_order_greedy import eager_order, greedy_order
from solver.move_order_instances import random_moves
from solver.move_order_problem import MoveProblem, order_cost
from solver.verify_moves import move_violations

QUICK = MoveOrderLimits(time_limit_s=0.02, workers=1, deterministic=True)


def _varied(count: int, seed: int) -> MoveProblem:
    """Random moves with odd shapes: several sites, no length, no worth, drains without GPUs, tight floors."""
    problem = random_moves(count, seed)
    rng = np.random.default_rng(seed)
    actions = tuple(
        replace(
            action,
            site=int(rng.integers(0, 2)),
            lasts_s=0 if rng.random() < 0.1 else action.lasts_s,
            worth=0.0 if rng.random() < 0.3 else action.worth,
            gpus=action.gpus if action.start or rng.random() < 0.9 else 0,
        )
        for action in problem.actions
    )
    free = list(problem.free)
    for old, new in zip(problem.actions, actions, strict=True):
        free[new.pool] += old.gpus - new.gpus
    come = [sum(a.capacity for a in actions if a.start and a.model == m) for m in range(len(problem.standing))]
    tight = tuple(min(pair) for pair in zip(problem.standing, come, strict=True))
    loads = (int(rng.integers(1, 4)),) * 2
    return replace(
        problem,
        actions=actions,
        free=tuple(free),
        loads=loads,
        floors=tight if rng.random() < 0.5 else problem.floors,
    )


@settings(max_examples=60, deadline=None)
@given(count=st.integers(2, 40), seed=st.integers(0, 100_000))
def test_the_greedy_order_always_ends_and_is_sound(count: int, seed: int) -> None:
    problem = _varied(count, seed)
    for order in (greedy_order(problem), eager_order(problem)):
        assert len(order.begin_s) == count
        assert move_violations(problem, order.begin_s, order.floors) == []
        assert all(kept <= floor for kept, floor in zip(order.floors, problem.floors, strict=True))
        assert bool(order.note) == (order.floors != problem.floors)
        assert order.end_s(problem) <= problem.serial_s


@settings(max_examples=12, deadline=None)
@given(count=st.integers(2, 20), seed=st.integers(0, 100_000))
def test_a_search_never_makes_an_order_dearer_or_unsound(count: int, seed: int) -> None:
    problem = _varied(count, seed)
    greedy, found = greedy_order(problem), order_moves(problem, QUICK)
    assert move_violations(problem, found.begin_s, found.floors) == []
    if found.floors == greedy.floors:
        assert order_cost(problem, found.begin_s) <= order_cost(problem, greedy.begin_s) * (1 + 1e-9)
    else:
        assert found.floors == problem.floors
