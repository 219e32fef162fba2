"""The moves of a plan as a problem of order, and the order written back into the plan's moves.

Floors are the capacity of each model that serves both before and after. A start is worth what the plan lets it
carry; a drain what would go unserved between it and the starts that replace it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from data.fleet.types import Fleet
from data.plan import Move
from data.types import FloatArray, IntArray
from planner.capacity_table import ConfigCapacity
from planner.placement_input import PlacementInput
from planner.settings import PlannerSettings
from solver.greedy import running_that_fits
from solver.move_order import MoveAsker, order_moves
from solver.move_order_problem import MoveAction, MoveProblem
from solver.solution import PlacementSolution

LEAST_WORTH_SHARE = 1e-3
"""A start that carries nothing yet (a promise) still goes before nothing at all: share of its full worth."""
DRAIN_LENGTHS = 2.0
"""A drain is expected to take the decode time of an output this many times the mean."""


def ordered_moves(
    fleet: Fleet,
    given: PlacementInput,
    solution: PlacementSolution,
    moves: Sequence[Move],
    settings: PlannerSettings,
    asker: MoveAsker | None,
) -> tuple[tuple[Move, ...], tuple[str, ...]]:
    """The moves with the moments at which they begin, and what there is to say about the order."""
    if not moves:
        return (), ()
    problem, rows = move_problem(fleet, given, solution, settings)
    audit = settings.order.deterministic or settings.placement.deterministic
    found = order_moves(problem, replace(settings.order, deterministic=audit), asker)
    begin: dict[tuple[str, str], list[float]] = {}
    lasts: dict[tuple[str, str], float] = {}
    places = given.problem.placements
    for i, action, moment in zip(rows, problem.actions, found.begin_s, strict=True):
        key = given.sites[int(places.site[i])].name, places.config[i]
        begin.setdefault(key, []).append(float(moment))
        lasts[key] = float(action.lasts_s)
    ordered = tuple(
        replace(move, begin_s=tuple(sorted(begin[move.site, move.config])), lasts_s=lasts[move.site, move.config])
        for move in moves
    )
    return ordered, tuple(_named(note, given.models) for note in found.note)


def _named(note: str, models: Sequence[str]) -> str:
    """A note of the order with the models' own names."""
    words = note.split(" ")
    for at in range(len(words) - 1):
        if words[at] == "model" and words[at + 1].isdigit():
            words[at + 1] = models[int(words[at + 1])]
    return " ".join(words)


def move_problem(
    fleet: Fleet, given: PlacementInput, solution: PlacementSolution, settings: PlannerSettings
) -> tuple[MoveProblem, list[int]]:
    """The problem, and the placement of each of its actions; one action a replica."""
    problem = given.problem
    places = problem.placements
    change = solution.replicas - places.current
    capacity = np.floor(places.mix_rate).astype(np.int64)
    standing, after = (_by_model(given, capacity * count) for count in (places.current, solution.replicas))
    worth = _worth(given, solution, change)
    gone = _gone(given)
    actions: list[MoveAction] = []
    rows: list[int] = []
    for i in np.flatnonzero(change).tolist():
        start = bool(change[i] > 0)
        lasts_s = _load_s(given, i) if start else _drain_s(fleet, given.capacities[i])
        for number in range(abs(int(change[i]))):
            gpus = int(places.gpus[i]) if start or number >= gone[i] else 0
            actions.append(
                MoveAction(
                    start,
                    int(places.pool[i]),
                    int(places.site[i]),
                    int(places.model[i]),
                    gpus,
                    math.ceil(lasts_s),
                    int(capacity[i]),
                    float(worth[i]),
                )
            )
            rows.append(i)
    used = np.bincount(
        places.pool, places.gpus * np.minimum(places.current, _fitting(given)), len(problem.pools.gpus)
    )
    free = np.maximum(np.floor(problem.pools.gpus - used), 0).astype(np.int64)
    return (
        MoveProblem(
            tuple(actions),
            tuple(free.tolist()),
            (settings.parallel_loads,) * len(given.sites),
            tuple(standing.tolist()),
            tuple(np.minimum(standing, after).tolist()),
        ),
        rows,
    )


def _fitting(given: PlacementInput) -> IntArray:
    """Running replicas that today's GPUs and power still carry."""
    return running_that_fits(given.problem)


def _gone(given: PlacementInput) -> IntArray:
    """Running replicas whose GPUs are no longer there: their drains give nothing back."""
    gone: IntArray = given.problem.placements.current - _fitting(given)
    return gone


def _by_model(given: PlacementInput, amount: IntArray) -> IntArray:
    total: IntArray = np.bincount(given.problem.placements.model, amount, len(given.models)).astype(np.int64)
    return total


def _worth(given: PlacementInput, solution: PlacementSolution, change: IntArray) -> FloatArray:
    """Value-weighted tokens/s lost while one replica of each placement does not serve."""
    places, jobs = given.problem.placements, given.problem.commodities
    amount = np.bincount(jobs.model, jobs.width.sum(axis=1), len(given.models))
    value = np.bincount(jobs.model, jobs.width.sum(axis=1) * jobs.weight, len(given.models))
    token = np.where(amount > 0, value / np.maximum(amount, 1e-12), 0.0)
    carried = solution.loads.sum(axis=1) / np.maximum(solution.replicas, 1)
    starts = token[places.model] * np.maximum(carried, LEAST_WORTH_SHARE * places.mix_rate)
    median = np.zeros(len(given.models))
    for job in given.jobs:
        median[given.models.index(job.model)] += job.median
    before = np.bincount(places.model, places.mix_rate * places.current, len(given.models))
    leaving = np.bincount(places.model, places.mix_rate * np.maximum(-change, 0), len(given.models))
    # Between the last drain and the first start: what the replicas that stay cannot carry.
    short = np.clip(np.minimum(median, before) - (before - leaving), 0.0, leaving)
    share = short / np.maximum(leaving, 1e-12)
    worth: FloatArray = np.where(change > 0, starts, token[places.model] * places.mix_rate * share[places.model])
    return worth


def _load_s(given: PlacementInput, i: int) -> float:
    facts = given.capacities[i].facts
    return facts.warm_load_s if given.problem.placements.prewarm_current[i] > 0 else facts.load_s


def _drain_s(fleet: Fleet, capacity: ConfigCapacity) -> float:
    """Time in which the requests that a replica holds are expected to end, its caches half full."""
    engine = fleet.model(capacity.config.model).engine
    step_s = capacity.facts.times.decode_s(engine.max_num_seqs / 2, capacity.facts.kv_capacity_tokens / 2)
    lengths = [kind.expected_output_tokens for kind in fleet.classes if capacity.rate(kind.name) > 0]
    return DRAIN_LENGTHS * max(lengths, default=0) * step_s
