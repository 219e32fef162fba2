"""An order of moves by CP-SAT: intervals, cumulative GPUs and loads, floors as reservoirs (20)–(24).

OR-Tools is loaded on the first call, never at import.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from data.errors import SettingError
from solver.backends import load_cp_sat
from solver.move_order_problem import MoveProblem, replaced_at

WEIGHT_RANGE = 10_000
"""The dearest move's worth in the objective; the last place of it, 1, breaks ties towards early drains."""
GAP = 1e-3


@dataclass(frozen=True, slots=True)
class MoveOrderLimits:
    """How long to search.

    Attributes:
        time_limit_s: Wall clock (above 0).
        workers: Threads of the search (1 to 64).
        deterministic: Stop by the solver's own count of work instead of by the clock; the same answer each time.
        seed: Of the solver's random choices (0 or more).
    """

    time_limit_s: float = 2.0
    workers: int = 2
    deterministic: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        checks = (
            ("time_limit_s", self.time_limit_s > 0, "seconds above 0"),
            ("workers", 1 <= self.workers <= 64, "1 to 64"),
            ("seed", 0 <= self.seed < 2**31, "a whole number from 0 to 2^31 - 1"),
        )
        for name, ok, expected in checks:
            if not ok:
                raise SettingError("limit out of range", field=name, value=getattr(self, name), expected=expected)


@dataclass(slots=True)
class _Built:
    """The model while it is being made."""

    problem: MoveProblem
    horizon: int
    model: Any
    begin: list[Any]
    terms: list[Any] = field(default_factory=list)
    weights: list[int] = field(default_factory=list)
    hints: list[tuple[Any, int]] = field(default_factory=list)


def try_cp_sat(
    problem: MoveProblem, hint: tuple[int, ...], limits: MoveOrderLimits
) -> tuple[tuple[int, ...] | None, str]:
    """As :func:`cp_sat_order`, with the reason where there is no order; never raises for what the solver does."""
    try:
        found = cp_sat_order(problem, hint, limits)
    except Exception as error:
        # Whatever the solver library throws means one thing to the caller: no answer.
        return None, f"{type(error).__name__}: {error}"[:500]
    return found, "" if found else "cp_sat found no order in time"


def cp_sat_order(problem: MoveProblem, hint: tuple[int, ...], limits: MoveOrderLimits) -> tuple[int, ...] | None:
    """When each move begins, or ``None`` if CP-SAT found no order that keeps every floor in time.

    Args:
        problem: The moves.
        hint: Another order, as a start; it need not keep the floors.
        limits: When to stop.
    """
    cp_model = load_cp_sat()
    model = cp_model.CpModel()
    ends = [begin + action.lasts_s for begin, action in zip(hint, problem.actions, strict=True)]
    horizon = max(2 * max(ends, default=0), 1)
    begin = [model.new_int_var(0, horizon, f"x{k:04d}") for k in range(len(problem.actions))]
    built = _Built(problem, horizon, model, begin)
    _gpu_rows(built)
    _load_rows(built)
    _floor_rows(built)
    _equal_moves(built)
    _objective(built, hint)
    model.minimize(cp_model.LinearExpr.weighted_sum(built.terms, built.weights))
    for variable, value in [*zip(begin, hint, strict=True), *built.hints]:
        model.add_hint(variable, value)
    solver = _solver(cp_model, limits)
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    return tuple(int(solver.value(variable)) for variable in begin)


def _solver(cp_model: Any, limits: MoveOrderLimits) -> Any:
    solver = cp_model.CpSolver()
    parameters = solver.parameters
    parameters.num_workers = limits.workers
    parameters.random_seed = limits.seed
    parameters.relative_gap_limit = GAP
    if limits.deterministic:
        # Threads take turns, and work is counted instead of time.
        parameters.interleave_search = True
        parameters.max_deterministic_time = limits.time_limit_s
    else:
        parameters.max_time_in_seconds = limits.time_limit_s
    return solver


def _gpu_rows(built: _Built) -> None:
    """(21) GPUs of each pool: a start holds its own from its begin on, a drain until its end."""
    problem, model, horizon = built.problem, built.model, built.horizon
    for pool, free in enumerate(problem.free):
        mine = [k for k, action in enumerate(problem.actions) if action.pool == pool]
        wanted = sum(problem.actions[k].gpus for k in mine if problem.actions[k].start)
        if wanted <= free:
            continue
        intervals, demands = [], []
        last = 2 * horizon + 1
        for k in mine:
            action = problem.actions[k]
            if action.start:
                size = model.new_int_var(0, last, "")
                interval = model.new_interval_var(built.begin[k], size, last, "")
            else:
                interval = model.new_interval_var(
                    0, built.begin[k] + action.lasts_s, built.begin[k] + action.lasts_s, ""
                )
            intervals.append(interval)
            demands.append(action.gpus)
        held = sum(problem.actions[k].gpus for k in mine if not problem.actions[k].start)
        model.add_cumulative(intervals, demands, free + held)


def _load_rows(built: _Built) -> None:
    """(22) Replicas that load at a time at each site."""
    loads: dict[int, list[int]] = defaultdict(list)
    for k, action in enumerate(built.problem.actions):
        if action.start:
            loads[action.site].append(k)
    for site, mine in loads.items():
        if len(mine) > built.problem.loads[site]:
            intervals = [
                built.model.new_fixed_size_interval_var(built.begin[k], built.problem.actions[k].lasts_s, "")
                for k in mine
            ]
            built.model.add_cumulative(intervals, [1] * len(mine), built.problem.loads[site])


def _floor_rows(built: _Built) -> None:
    """(23) Capacity of each model that serves."""
    problem = built.problem
    for model, (standing, floor) in enumerate(zip(problem.standing, problem.floors, strict=True)):
        mine = [k for k, action in enumerate(problem.actions) if action.model == model and action.capacity]
        gone = sum(problem.actions[k].capacity for k in mine if not problem.actions[k].start)
        if standing - gone >= floor:
            continue
        times = [built.begin[k] + (problem.actions[k].lasts_s if problem.actions[k].start else 0) for k in mine]
        changes = [
            problem.actions[k].capacity if problem.actions[k].start else -problem.actions[k].capacity for k in mine
        ]
        most = standing + sum(max(change, 0) for change in changes)
        built.model.add_reservoir_constraint(times, changes, floor - standing, most)


def _equal_moves(built: _Built) -> None:
    """Moves that are alike begin in the order of their numbers: one of many equal orders is enough."""
    alike: dict[Any, int] = {}
    for k, action in enumerate(built.problem.actions):
        if action in alike:
            built.model.add(built.begin[alike[action]] <= built.begin[k])
        alike[action] = k


def _objective(built: _Built, hint: tuple[int, ...]) -> None:
    """(20) Value lost until starts serve and by drains before they are replaced; then early drains."""
    problem, model = built.problem, built.model
    dearest = max((action.worth for action in problem.actions), default=0.0)
    scale = WEIGHT_RANGE / dearest if dearest > 0 else 0.0
    replaced_hint = replaced_at(problem, hint)
    starters = {action.model for action in problem.actions if action.start}
    replaced: dict[int, Any] = {}
    for k, action in enumerate(problem.actions):
        weight = round(scale * action.worth)
        built.terms.append(built.begin[k])
        built.weights.append(weight if action.start else 1)
        if action.start or not weight or not starters:
            continue
        group = action.model if action.model in starters else -1
        if group not in replaced:
            replaced[group] = model.new_int_var(0, 2 * built.horizon, "")
            built.hints.append((replaced[group], replaced_hint[action.model]))
            for s, other in enumerate(problem.actions):
                if other.start and group in (-1, other.model):
                    model.add(replaced[group] >= built.begin[s] + other.lasts_s)
        early = model.new_int_var(0, 2 * built.horizon, "")
        model.add(early >= replaced[group] - built.begin[k])
        built.hints.append((early, max(replaced_hint[action.model] - hint[k], 0)))
        built.terms.append(early)
        built.weights.append(weight)
