"""What a move brings and what it gives up, and what one more unit of each resource that is used up is worth.

Both by re-solving a linear model: a move is undone, a resource is widened by one. Values are value-weighted output
tokens/s; start costs are left out of the effect of a move, for the plan states these on their own.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from data.types import FloatArray, IntArray
from solver.explain import PRICE_TOLERANCE, RESOURCE_ROWS
from solver.linear import LinearModel, LinearSolution, ModelSolver, SolveLimits, SolveStatus, no_solution
from solver.matrix import FLOW_UNIT, PlacementMatrix, build_matrix
from solver.problem import PlacementProblem
from solver.solution import Misses, Origin, PlacementSolution, read_solution

COLUMN_BUDGET = 60_000
"""Columns solved in all for one explanation: bounds its time without a clock, so that plans stay reproducible."""
MOST_RESOLVES = 30
LEAST_RESOLVES = 3
LOAD_ROWS = ("load", "link")
"""Rows that price a replica: (3) and (4)."""


@dataclass(frozen=True, slots=True)
class ResourcePrice:
    """One more unit of a resource, fractions of replicas allowed.

    Attributes:
        kind: One of ``solver.explain.RESOURCE_ROWS``.
        index: A pool for ``gpus``, else a site.
        worth: Value-weighted tokens/s that it brings, penalties of broken promises left out.
        tokens_per_s: Plain output tokens/s that it brings.
        mended: How much less each promise is missed.
    """

    kind: str
    index: int
    worth: float
    tokens_per_s: float
    mended: Misses


@dataclass(frozen=True, slots=True)
class MoveEffect:
    """What one change of a placement brings and gives up, value-weighted tokens/s."""

    gain: float
    gives_up: float


class _Budget:
    """Solves linear models until a time for all of them together is over."""

    def __init__(self, solve: ModelSolver, limits: SolveLimits) -> None:
        self._solve, self._limits = solve, limits
        self._until_s = time.monotonic() + limits.time_limit_s

    def __call__(self, model: LinearModel) -> LinearSolution:
        left_s = self._until_s - time.monotonic()
        if left_s <= 0:
            return no_solution(SolveStatus.UNKNOWN, "the time for explanations is over")
        return self._solve(model, replace(self._limits, time_limit_s=left_s))


@dataclass(frozen=True, slots=True)
class _Point:
    """The solution of a linear model."""

    solution: PlacementSolution
    duals: FloatArray


def resolves(built: PlacementMatrix) -> int:
    """How many linear models of this size one explanation may solve."""
    return int(np.clip(COLUMN_BUDGET // max(built.columns.count, 1), LEAST_RESOLVES, MOST_RESOLVES))


def resource_prices(
    problem: PlacementProblem, solve: ModelSolver, limits: SolveLimits
) -> tuple[ResourcePrice, ...]:
    """Resources that the relaxation uses up, each solved anew with one more; dearest first.

    Where there are more than can be solved anew, the cheapest are left out. ``limits`` hold for all of it at once.
    """
    budget = _Budget(solve, limits)
    problem = _room_for_more(problem)
    built = build_matrix(problem)
    base = _relaxed(problem, built, budget)
    if base is None or not len(base.duals):
        return ()
    priced = [
        (abs(float(base.duals[built.rows[kind].start + index])), kind, index)
        for kind in RESOURCE_ROWS
        for index in range(built.rows[kind].stop - built.rows[kind].start)
    ]
    priced = sorted((row for row in priced if row[0] > PRICE_TOLERANCE), key=lambda row: (-row[0], row[1:]))
    found: list[ResourcePrice] = []
    for _, kind, index in priced[: resolves(built)]:
        wider = with_one_more(problem, kind, index)
        point = _relaxed(wider, build_matrix(wider), budget)
        if point is not None:
            found.append(_price(kind, index, base.solution, point.solution))
    return tuple(found)


def one_more(kind: str) -> float:
    """The unit in which a resource is widened: a thousand tokens/s of ingress, else one."""
    return FLOW_UNIT if kind == "ingress" else 1.0


def _room_for_more(problem: PlacementProblem) -> PlacementProblem:
    """Bounds that only repeat the size of a pool are moved out of the way, so that the pool is priced."""
    places = problem.placements
    room = np.floor(problem.pools.gpus[places.pool] / places.gpus).astype(np.int64)
    repeats = (places.upper >= room) & (places.upper > places.lower)
    upper = np.where(repeats, np.maximum(places.upper, room + 1), places.upper)
    return replace(problem, placements=replace(places, upper=upper))


def with_one_more(problem: PlacementProblem, kind: str, index: int, amount: float = 1.0) -> PlacementProblem:
    """The problem with ``amount`` units more of a resource (less, if below 0)."""
    more = amount * one_more(kind)
    if kind == "gpus":
        gpus = problem.pools.gpus.copy()
        gpus[index] += more
        return replace(problem, pools=replace(problem.pools, gpus=gpus))
    name = {
        "power": "power_kw",
        "ingress": "ingress_tokens_per_s",
        "host_memory": "host_memory_gb",
        "start_budget": "start_budget_gpus",
    }[kind]
    values = getattr(problem.sites, name).copy()
    values[index] += more
    return replace(problem, sites=replace(problem.sites, **{name: values}))


def _price(kind: str, index: int, before: PlacementSolution, after: PlacementSolution) -> ResourcePrice:
    old, new = before.misses, after.misses
    return ResourcePrice(
        kind,
        index,
        after.value - before.value,
        float(after.flows.sum() - before.flows.sum()),
        Misses(old.replicas - new.replicas, old.flows - new.flows, old.covers - new.covers),
    )


def move_effects(
    problem: PlacementProblem,
    solution: PlacementSolution,
    prices: Sequence[ResourcePrice],
    solve: ModelSolver,
    limits: SolveLimits,
) -> dict[int, MoveEffect]:
    """Effect of the change of each placement that changes, by its number.

    A start is undone, and brings what is lost then; its GPUs are worth their price to others. A drain is undone on
    GPUs that it is lent, and gives up what it would serve there; the GPUs that it frees bring their price. The
    changes of the most GPUs are solved anew; beyond the number that may be, the price of a replica counts: a start
    brings at least that, a drain gives up at most that. ``limits`` hold for all of it together.
    """
    budget = _Budget(solve, limits)
    built = build_matrix(problem)
    places = problem.placements
    change = solution.replicas - places.current
    moved = np.flatnonzero(change)
    moved = moved[np.lexsort((moved, -np.abs(change[moved]) * places.gpus[moved]))]
    base = _fixed(problem, built, built.model, solution.replicas, solution.prewarmed, budget)
    if base is None:
        return {}
    gpu_price = {price.index: price.worth for price in prices if price.kind == "gpus"}
    found: dict[int, MoveEffect] = {}
    marginal = _replica_worth(built, base.duals)
    for number, i in enumerate(moved.tolist()):
        undone = solution.replicas.copy()
        undone[i] = places.current[i]
        model = built.model if change[i] > 0 else _lending(problem, built, i, -int(change[i]))
        other = None
        if number < resolves(built):
            other = _fixed(problem, built, model, undone, solution.prewarmed, budget)
        if other is not None:
            sign = 1.0 if change[i] > 0 else -1.0
            served = max(sign * (_gross(problem, base.solution) - _gross(problem, other.solution)), 0.0)
        else:
            served = float(marginal[i]) * abs(int(change[i]))
        others = gpu_price.get(int(places.pool[i]), 0.0) * float(places.gpus[i]) * abs(int(change[i]))
        found[i] = MoveEffect(served, others) if change[i] > 0 else MoveEffect(others, served)
    return found


def _replica_worth(built: PlacementMatrix, duals: FloatArray) -> FloatArray:
    """Value-weighted tokens/s that one replica of each placement is priced at by the rows of load, (3) and (4)."""
    if not len(duals):
        return np.zeros(built.columns.replicas.stop - built.columns.replicas.start)
    load_rows = np.zeros(len(duals))
    for kind in LOAD_ROWS:
        load_rows[built.rows[kind]] = duals[built.rows[kind]]
    worth: FloatArray = -(built.model.matrix.T @ load_rows)[built.columns.replicas] * FLOW_UNIT
    return np.maximum(worth, 0.0)


def _lending(problem: PlacementProblem, built: PlacementMatrix, i: int, count: int) -> LinearModel:
    """The model with GPUs and power for ``count`` replicas more of placement ``i``."""
    places = problem.placements
    upper = built.model.row_upper.copy()
    upper[built.rows["gpus"].start + places.pool[i]] += count * places.gpus[i]
    upper[built.rows["power"].start + places.site[i]] += count * places.power_kw[i]
    return replace(built.model, row_upper=upper)


def _fixed(
    problem: PlacementProblem,
    built: PlacementMatrix,
    model: LinearModel,
    replicas: IntArray,
    prewarmed: IntArray,
    budget: _Budget,
) -> _Point | None:
    """The best routing over given replicas."""
    columns = built.columns
    lower, upper = model.lower.copy(), model.upper.copy()
    lower[columns.replicas] = upper[columns.replicas] = replicas
    lower[columns.prewarmed] = upper[columns.prewarmed] = prewarmed[columns.warm_place]
    upper[columns.starts] = np.maximum(upper[columns.starts], replicas - problem.placements.current)
    answer = budget(model.with_bounds(lower, upper, relaxed=True))
    if answer.status is not SolveStatus.OPTIMAL:
        return None
    return _Point(read_solution(problem, built, answer.values, Origin.SOLVER), answer.row_duals)


def _relaxed(problem: PlacementProblem, built: PlacementMatrix, budget: _Budget) -> _Point | None:
    answer = budget(built.model.relaxed())
    if answer.status is not SolveStatus.OPTIMAL:
        return None
    # Replicas are rounded when read; what is served and missed is not.
    return _Point(read_solution(problem, built, answer.values, Origin.SOLVER), answer.row_duals)


def _gross(problem: PlacementProblem, solution: PlacementSolution) -> float:
    """Value of what is served: value segments filled in their order, less the cost of the way."""
    jobs = problem.commodities
    before = np.cumsum(jobs.width, axis=1) - jobs.width
    by_segment = np.clip(solution.served()[:, None] - before, 0.0, jobs.width)
    return float((by_segment * jobs.value).sum() - (solution.flows * jobs.route_cost).sum())
