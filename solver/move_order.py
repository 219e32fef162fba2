"""The order of a plan's drains and loads: a greedy order, made better by a search, then by CP-SAT.

The answer is checked by ``solver.verify_moves`` and never costs more than the greedy order.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Protocol

from solver.move_order_cp_sat import MoveOrderLimits, try_cp_sat
from solver.move_order_greedy import greedy_order
from solver.move_order_problem import MoveProblem, MoveSchedule, order_cost
from solver.move_order_search import searched_order
from solver.move_order_wire import pack_moves, unpack_order
from solver.verify_moves import move_violations

AUDIT_WATCHDOG = 10.0
"""Clock of a deterministic search, as a multiple of its limit."""
START_S = 3.0
"""Time beyond the limit before the process is given up: it may have to start first."""
FULL_SIZE = 20
"""Fewer moves than this get the square of their share of the time limit."""
MOST_MOVES = 200
"""CP-SAT finds nothing in seconds for more moves than this, and is not asked."""


class MoveAsker(Protocol):
    """Takes messages to a guarded process of solvers: ``solver.child.ChildSolver``."""

    def ask(self, body: bytes, deadline_s: float) -> bytes | str:
        """The answer, or in words why there is none."""
        ...


def order_moves(
    problem: MoveProblem, limits: MoveOrderLimits | None = None, asker: MoveAsker | None = None
) -> MoveSchedule:
    """When each move begins, for the least value lost on the way.

    Args:
        problem: The moves.
        limits: Of the search by CP-SAT.
        asker: The guarded process that searches; ``None`` = this one.

    Returns:
        An order that keeps GPUs, parallel loads and its own ``floors``, whatever the solver does.
    """
    limits = limits or MoveOrderLimits()
    greedy = greedy_order(problem)
    if greedy.floors == problem.floors and order_cost(problem, greedy.begin_s) <= _least_cost(problem):
        return greedy
    known = searched_order(problem, greedy, limits.seed) if greedy.floors == problem.floors else greedy
    if len(problem.actions) > MOST_MOVES and known.floors == problem.floors:
        return known
    share = min(len(problem.actions) / FULL_SIZE, 1.0) ** 2
    limits = replace(limits, time_limit_s=limits.time_limit_s * share)
    begin, detail = _search(problem, known.begin_s, limits, asker)
    if begin is None:
        return replace(known, note=(*known.note, f"order of moves: {detail}"))
    broken = move_violations(problem, begin, problem.floors)
    if broken:
        return replace(known, note=(*known.note, f"order of moves refused: {broken[0]}"))
    cheaper = order_cost(problem, begin) < order_cost(problem, known.begin_s)
    return MoveSchedule(begin, problem.floors, "cp_sat") if cheaper or known.floors != problem.floors else known


def _least_cost(problem: MoveProblem) -> float:
    """What no order can beat: every start begins at once and no drain is missed."""
    return sum(action.worth * action.lasts_s for action in problem.actions if action.start) + 1e-9


def _search(
    problem: MoveProblem, hint: tuple[int, ...], limits: MoveOrderLimits, asker: MoveAsker | None
) -> tuple[tuple[int, ...] | None, str]:
    if asker is None:
        return try_cp_sat(problem, hint, limits)
    watchdog = AUDIT_WATCHDOG if limits.deterministic else 1.0
    deadline_s = time.monotonic() + watchdog * (limits.time_limit_s + START_S)
    answer = asker.ask(pack_moves(problem, hint, limits, deadline_s), deadline_s)
    return (None, answer) if isinstance(answer, str) else unpack_order(answer)
