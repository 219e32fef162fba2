"""From one placement to the next: the drains and loads to put in order, and what an order costs.

A move is one replica that starts or drains. A start takes its GPUs when it begins and serves when it is loaded; a
drain serves no more when it begins and gives its GPUs back when it ends. Neither can be interrupted. Equation
numbers are those of ``docs/formulation.md``. Times are whole seconds from the moment the plan takes force.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from data.errors import SettingError


@dataclass(frozen=True, slots=True)
class MoveAction:
    """One replica that starts or drains.

    Attributes:
        start: Whether it starts; else it drains.
        pool, site, model: Indices.
        gpus: GPUs that it takes or gives back (0 or more; above 0 for a start).
        lasts_s: Load time of a start, drain time of a drain (0 or more).
        capacity: Output tokens/s that it adds or takes away (0 or more).
        worth: Value-weighted output tokens/s lost while it does not serve (0 or more).
    """

    start: bool
    pool: int
    site: int
    model: int
    gpus: int
    lasts_s: int
    capacity: int
    worth: float


@dataclass(frozen=True, slots=True)
class MoveProblem:
    """All moves of one plan.

    Attributes:
        actions: The moves.
        free: GPUs of each pool that are free before the first move.
        loads: Replicas that may load at a time at each site (above 0).
        standing: Capacity of each model that serves before the first move.
        floors: Capacity of each model that must serve at any time; at most what serves before and after the moves.
    """

    actions: tuple[MoveAction, ...]
    free: tuple[int, ...]
    loads: tuple[int, ...]
    standing: tuple[int, ...]
    floors: tuple[int, ...]

    def __post_init__(self) -> None:
        left, level = list(self.free), list(self.standing)
        for action in self.actions:
            if action.gpus < action.start or min(action.lasts_s, action.capacity, action.worth) < 0:
                raise SettingError(
                    "move out of range", value=action, expected="starts with GPUs, nothing negative"
                )
            sign = 1 if action.start else -1
            left[action.pool] -= sign * action.gpus
            level[action.model] += sign * action.capacity
        if min(left, default=0) < 0:
            expected = "starts that fit once every drain has ended"
            raise SettingError(
                "more GPUs start than are free", field="actions", value=min(left), expected=expected
            )
        if min(self.loads, default=1) < 1:
            raise SettingError("out of range", field="loads", value=min(self.loads), expected="1 or more")
        for floor, before, after in zip(self.floors, self.standing, level, strict=True):
            if floor > min(before, after):
                expected = "at most what serves before and after"
                raise SettingError("floor out of reach", field="floors", value=floor, expected=expected)

    @property
    def serial_s(self) -> int:
        """Time that all moves take one after another: no sensible order needs longer."""
        return sum(action.lasts_s for action in self.actions)


@dataclass(frozen=True, slots=True)
class MoveSchedule:
    """When each move begins.

    Attributes:
        begin_s: One entry an action.
        floors: The floors that the order keeps: those of the problem, lower ones where no order could keep them.
        rule: ``cp_sat`` or ``greedy`` (the list rule, with its priorities or better ones): the rung of the ladder.
        note: What went wrong on the way, if anything.
    """

    begin_s: tuple[int, ...]
    floors: tuple[int, ...]
    rule: str
    note: tuple[str, ...] = ()

    def end_s(self, problem: MoveProblem) -> int:
        """When the last move has ended."""
        return max((s + a.lasts_s for s, a in zip(self.begin_s, problem.actions, strict=True)), default=0)


def replaced_at(problem: MoveProblem, begin_s: Sequence[int]) -> list[int]:
    """For each model, when its last start is loaded; for one without a start, when the last of all is (20)."""
    ends: dict[int, list[int]] = defaultdict(list)
    for begin, action in zip(begin_s, problem.actions, strict=True):
        if action.start:
            ends[action.model].append(begin + action.lasts_s)
    last = max((end for mine in ends.values() for end in mine), default=0)
    return [max(ends[model]) if model in ends else last for model in range(len(problem.floors))]


def order_cost(problem: MoveProblem, begin_s: Sequence[int]) -> float:
    """Value-weighted tokens lost by an order (20): until starts serve, and by drains before they are replaced."""
    replaced = replaced_at(problem, begin_s)
    lost = 0.0
    for begin, action in zip(begin_s, problem.actions, strict=True):
        waits = begin + action.lasts_s if action.start else max(replaced[action.model] - begin, 0)
        lost += action.worth * waits
    return lost
