"""Improves a placement block by block: frees a few models, holds all others, keeps what gains.

A block is a small whole-number model. Its first model is drawn by how far it stays below what it could be worth at
the prices of the shared resources; half the time the others share a pool with it, so that they can trade GPUs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from data.types import FloatArray, IntArray
from solver.groups import ModelGroups, PartModel, free_columns, shared_rows_hold
from solver.lagrangian import PricedGroups
from solver.linear import LinearSolution, ModelSolver, SolveLimits, SolveStatus, WarmStart

FLOOR_SHARE = 0.1
"""Least weight of a group in the draw, as a share of the mean."""
TIRED = 0.6
"""What a group's weight is multiplied by after a block without a gain."""
ERRORS_IN_A_ROW = 5
"""So many failed calls end the search: the solver is gone."""
GAIN_DUST = 1e-9
ROW_DUST = 1e-6


@dataclass(slots=True)
class BlockSearch:
    """What the search did.

    Attributes:
        values: The best column vector.
        objective: Its worth in model units; never below that of the start.
        tries, gains: Blocks solved, and blocks that gained.
        errors: Calls in a row that ended without an answer.
    """

    values: FloatArray
    objective: float
    tries: int = 0
    gains: int = 0
    errors: int = 0


def search_blocks(
    groups: ModelGroups,
    priced: PricedGroups,
    start: FloatArray,
    solvers: Sequence[ModelSolver],
    limits: Callable[[BlockSearch], SolveLimits | None],
    size: int,
    rng: np.random.Generator,
) -> BlockSearch:
    """Search from ``start`` until ``limits`` gives none.

    Args:
        groups, priced: The cut model, and how far each group may still rise.
        start: A feasible column vector.
        solvers: Each solves one block of a round, side by side; a gain that no longer fits beside those before
            it is dropped.
        limits: Limits of the next round, from what was reached; ``None`` ends the search.
        size: Groups in a block (>= 1).
        rng: Draws the blocks.
    """
    state = BlockSearch(start.copy(), groups.model.value(start))
    fresh = np.ones(len(groups))
    with ThreadPoolExecutor(len(solvers)) as pool:
        while len(groups) and state.errors < ERRORS_IN_A_ROW:
            limit = limits(state)
            if limit is None:
                break
            weights = _weights(priced.loss(groups, state.values), fresh)
            blocks = _draw_round(groups, weights, size, len(solvers), rng)
            _round(groups, state, blocks, fresh, solvers, limit, pool)
    return state


def _draw_round(
    groups: ModelGroups, weights: FloatArray, size: int, count: int, rng: np.random.Generator
) -> list[IntArray]:
    """Up to ``count`` blocks without a group in common."""
    blocks = [draw_block(groups, weights, size, rng)]
    for _ in range(count - 1):
        more = np.setdiff1d(draw_block(groups, weights, size, rng), np.concatenate(blocks))
        if len(more):
            blocks.append(more.astype(np.int64))
    return blocks


def _round(
    groups: ModelGroups,
    state: BlockSearch,
    blocks: list[IntArray],
    fresh: FloatArray,
    solvers: Sequence[ModelSolver],
    limit: SolveLimits,
    pool: ThreadPoolExecutor,
) -> None:
    """Solve blocks side by side from what stands; keep each gain that fits beside those before it."""
    activity = groups.model.matrix @ state.values
    columns = [np.concatenate([groups.columns[group] for group in block.tolist()]) for block in blocks]
    parts = [free_columns(groups, state.values, activity, mine) for mine in columns]
    starts = [WarmStart(np.arange(len(mine)), state.values[mine]) for mine in columns]
    calls = [
        pool.submit(solver, part.model, limit, start)
        for solver, part, start in zip(solvers, parts, starts, strict=False)
    ]
    for block, part, call in zip(blocks, parts, calls, strict=True):
        gained = _keep_gain(groups, state, part, call.result(), activity)
        fresh[block] = 1.0 if gained else TIRED * fresh[block]
        if gained:
            activity = groups.model.matrix @ state.values


def _weights(loss: FloatArray, fresh: FloatArray) -> FloatArray:
    total = float(loss.sum())
    floor = FLOOR_SHARE * total / len(loss) if total > 0 else 1.0
    weights: FloatArray = (loss + floor) * fresh + 1e-12 * (1.0 + total)
    return weights


def draw_block(groups: ModelGroups, weights: FloatArray, size: int, rng: np.random.Generator) -> IntArray:
    """Distinct groups, drawn by weight; half the time all but the first from those of one of its pools."""
    first = int(rng.choice(len(groups), p=weights / weights.sum()))
    others = np.delete(np.arange(len(groups)), first)
    if rng.random() < 0.5:
        pools = [sharers for sharers in groups.sharers if first in sharers]
        if pools:
            sharers = pools[int(rng.integers(len(pools)))]
            others = sharers[sharers != first]
    count = min(size - 1, len(others))
    if count == 0:
        return np.array([first], dtype=np.int64)
    chance = weights[others] / weights[others].sum()
    block: IntArray = np.r_[first, rng.choice(others, size=count, replace=False, p=chance)].astype(np.int64)
    return block


def _keep_gain(
    groups: ModelGroups, state: BlockSearch, part: PartModel, answer: LinearSolution, activity: FloatArray
) -> bool:
    """Take over an answer that gains and still fits; whether it was."""
    state.tries += 1
    state.errors = state.errors + 1 if answer.status is SolveStatus.ERROR else 0
    if not answer.status.has_solution or part.model.residual(answer.values) > ROW_DUST:
        return False
    change = answer.values - state.values[part.columns]
    gain = float(part.model.objective @ change)
    if gain <= GAIN_DUST * (1.0 + abs(state.objective)):
        return False
    if not shared_rows_hold(groups, activity, part.columns, change, ROW_DUST):
        return False
    state.values[part.columns] = answer.values
    state.objective = groups.model.value(state.values)
    state.gains += 1
    return True
