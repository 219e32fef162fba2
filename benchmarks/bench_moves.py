"""The order of a plan's moves: value lost on the way by CP-SAT, by the search over a list rule, and their time.

Costs are ratios to the plain list rule (every drain as soon as floors allow) and to the greedy fallback, on equal
moves. Moves of one site and period are usually 10 to 30.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from solver.move_order import order_moves
from solver.move_order_cp_sat import MoveOrderLimits, cp_sat_order
from solver.move_order_greedy import eager_order, greedy_order
from solver.move_order_instances import random_moves
from solver.move_order_problem import MoveProblem, order_cost
from solver.verify_moves import move_violations

Row = dict[str, Any]
SIZES = (20, 60, 150)
TARGETS = {20: 0.9, 60: 0.95, 150: 1.0}
"""Whole ladder with 2 s of CP-SAT over the plain list rule, mean over seeds."""


def _row(name: str, value: float, unit: str, target: str, met: bool, seeds: int, spread: list[float]) -> Row:
    return {
        "id": f"moves/{name}",
        "area": "placement",
        "value": round(value, 4),
        "unit": unit,
        "reference": None,
        "ratio": round(value, 4) if unit == "ratio" else None,
        "target": target,
        "met": met,
        "seeds": seeds,
        "interval": [round(min(spread), 4), round(max(spread), 4)],
    }


def _cp_sat(problem: MoveProblem, limit_s: float) -> float:
    """Cost of CP-SAT alone, from the greedy order."""
    hint = greedy_order(problem).begin_s
    found = cp_sat_order(problem, hint, MoveOrderLimits(limit_s))
    if found is None or move_violations(problem, found, problem.floors):
        return order_cost(problem, hint)
    return min(order_cost(problem, found), order_cost(problem, hint))


def size_rows(count: int, seeds: int, limits: tuple[float, ...]) -> list[Row]:
    """Everything about one number of moves."""
    ratios: dict[str, list[float]] = {}
    lists_s: list[float] = []

    def note(name: str, value: float) -> None:
        ratios.setdefault(name, []).append(value)

    for seed in range(seeds):
        problem = random_moves(count, seed)
        plain = order_cost(problem, eager_order(problem).begin_s)
        began = time.process_time()
        greedy = order_cost(problem, greedy_order(problem).begin_s)
        lists_s.append(time.process_time() - began)
        note("greedy_over_list_rule", greedy / plain)
        for limit_s in limits:
            note(f"cp_sat_{limit_s:g}s_over_greedy", _cp_sat(problem, limit_s) / greedy)
            found = order_moves(problem, MoveOrderLimits(limit_s))
            cost = order_cost(problem, found.begin_s)
            if move_violations(problem, found.begin_s, problem.floors):
                raise RuntimeError(f"an unsound order of {count} moves, seed {seed}")
            note(f"ladder_{limit_s:g}s_over_greedy", cost / greedy)
            note(f"ladder_{limit_s:g}s_over_list_rule", cost / plain)
    rows = []
    for name, values in ratios.items():
        most = TARGETS[count] if name == "ladder_2s_over_list_rule" else 1.0
        mean = float(np.mean(values))
        rows.append(_row(f"{count}/{name}", mean, "ratio", f"<= {most:g}", mean <= most, seeds, values))
    slowest = max(lists_s)
    rows.append(_row(f"{count}/greedy_time", slowest, "s", "<= 0.1", slowest <= 0.1, seeds, lists_s))
    return rows


def rows(quick: bool) -> list[Row]:
    """All rows; ``quick`` has two seeds and no 10 s searches."""
    seeds, limits = (2, (2.0,)) if quick else (5, (2.0, 10.0))
    return [row for count in SIZES for row in size_rows(count, seeds, limits)]
