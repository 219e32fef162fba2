"""Independent checker of an order of moves: replays it and watches GPUs, parallel loads and floors.

It shares no code with what makes orders.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from solver.move_order_problem import MoveProblem
from solver.violation import Violation


def move_violations(problem: MoveProblem, begin_s: Sequence[int], floors: Sequence[int]) -> list[Violation]:
    """Every rule that the order breaks; empty for a sound one.

    Args:
        problem: The moves.
        begin_s: When each begins.
        floors: Capacity of each model that must serve at any time.
    """
    if len(begin_s) != len(problem.actions):
        return [Violation("moves", "order", f"{len(begin_s)} times for {len(problem.actions)} moves")]
    late = [f"move {k} begins at {begin} s" for k, begin in enumerate(begin_s) if begin < 0]
    if late:
        return [Violation("moves", "order", text) for text in late]
    return _replay(problem, _changes(problem, begin_s), floors)


def _changes(problem: MoveProblem, begin_s: Sequence[int]) -> dict[int, list[tuple[str, int, int]]]:
    """Moment to (what, index, change): ``gpus`` free, ``loads`` in progress, ``serves``."""
    changes: dict[int, list[tuple[str, int, int]]] = defaultdict(list)
    for begin, action in zip(begin_s, problem.actions, strict=True):
        end = begin + action.lasts_s
        if action.start:
            changes[begin] += [("gpus", action.pool, -action.gpus), ("loads", action.site, 1)]
            changes[end] += [("loads", action.site, -1), ("serves", action.model, action.capacity)]
        else:
            changes[begin].append(("serves", action.model, -action.capacity))
            changes[end].append(("gpus", action.pool, action.gpus))
    return changes


def _replay(
    problem: MoveProblem, changes: dict[int, list[tuple[str, int, int]]], floors: Sequence[int]
) -> list[Violation]:
    state = {
        "gpus": list(problem.free),
        "loads": [0] * len(problem.loads),
        "serves": list(problem.standing),
    }
    found: list[Violation] = []
    for moment in sorted(changes):
        for what, index, change in changes[moment]:
            state[what][index] += change
        for what, index in sorted({(what, index) for what, index, _ in changes[moment]}):
            value, where = state[what][index], f"{what} {index} after {moment} s"
            if what == "gpus" and value < 0:
                found.append(Violation("gpus", where, f"{-value} GPUs too many are taken"))
            elif what == "loads" and value > problem.loads[index]:
                found.append(Violation("loads", where, f"{value} load at a time, {problem.loads[index]} may"))
            elif what == "serves" and value < floors[index]:
                found.append(Violation("floor", where, f"{value} tokens/s serve, {floors[index]} must"))
    return found
