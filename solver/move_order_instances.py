"""Seeded random moves with the shape of real plans: starts that just fit once the drains have ended."""

from __future__ import annotations

import numpy as np

from solver.move_order_problem import MoveAction, MoveProblem

LOADS_AT_A_TIME = 8
"""One of this many moves may load at a time, but at least three."""


def random_moves(count: int, seed: int) -> MoveProblem:
    """As many starts as drains, over a pool for every 15 and a model for every 6 moves; equal seeds, equal moves.

    Args:
        count: Moves in all (2 or more).
        seed: Of the draws.
    """
    rng = np.random.default_rng([3, count, seed])
    pools, models = max(2, count // 15), max(3, count // 6)
    actions: list[MoveAction] = []
    for k in range(count):
        gpus = int(rng.choice([1, 2, 4, 8], p=[0.4, 0.3, 0.2, 0.1]))
        start = k % 2 == 1
        lasts_s = 5 * int(rng.integers(8, 45) if start else rng.integers(4, 36))
        worth = gpus * float(rng.uniform(0.6, 1.6) if start else rng.uniform(0.1, 0.7))
        pool, model = int(rng.integers(0, pools)), int(rng.integers(0, models))
        actions.append(MoveAction(start, pool, 0, model, gpus, lasts_s, 1, worth))
    taken, given, comes, goes = (np.zeros(size, dtype=np.int64) for size in (pools, pools, models, models))
    for action in actions:
        (taken if action.start else given)[action.pool] += action.gpus
        (comes if action.start else goes)[action.model] += 1
    floors = np.minimum(goes // 2, comes)
    return MoveProblem(
        tuple(actions),
        tuple(np.maximum(taken - given, 0).tolist()),
        (max(3, count // LOADS_AT_A_TIME),),
        tuple(goes.tolist()),
        tuple(floors.tolist()),
    )
