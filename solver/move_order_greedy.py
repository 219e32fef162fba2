"""An order of moves by a list rule: at each moment, start what fits, most value lost per second of loading first.

It always ends. Where floors and GPUs wait for each other it says so and lowers the floor that costs least.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

from solver.move_order_problem import MoveProblem, MoveSchedule, order_cost


def greedy_order(problem: MoveProblem) -> MoveSchedule:
    """The cheaper of two rules: drain what somebody waits for, or drain whatever the floors allow."""
    starts, drains = first_priorities(problem)
    orders = [list_order(problem, starts, drains, eager=eager) for eager in (False, True)]
    return min(orders, key=lambda order: (-sum(order.floors), order_cost(problem, order.begin_s)))


def eager_order(problem: MoveProblem) -> MoveSchedule:
    """The plain list rule: every drain as soon as the floors allow it."""
    return list_order(problem, *first_priorities(problem), eager=True)


def first_priorities(problem: MoveProblem) -> tuple[list[int], list[int]]:
    """Starts with short loads of much worth first; drains that are cheap per GPU first."""
    actions = problem.actions
    starts = [k for k, action in enumerate(actions) if action.start]
    drains = [k for k, action in enumerate(actions) if not action.start]
    starts.sort(key=lambda k: (-actions[k].worth / max(actions[k].lasts_s, 1), k))
    drains.sort(key=lambda k: (actions[k].worth / max(actions[k].gpus, 1), k))
    return starts, drains


def list_order(
    problem: MoveProblem, starts: Sequence[int], drains: Sequence[int], *, eager: bool = False
) -> MoveSchedule:
    """The order that priorities give.

    Args:
        problem: The moves.
        starts, drains: Their numbers, the most urgent first.
        eager: Whether drains begin as soon as floors allow it; else when a start waits for their GPUs, or when
            they cost nothing any more.
    """
    state = _State(problem, starts, drains, eager)
    notes = []
    while state.starts or state.drains:
        state.begin_all()
        if state.ends:
            state.now = state.ends[0][0]
            state.end_all()
        elif state.starts or state.drains:
            notes.append(state.break_lock())
    begin = tuple(state.begin[k] for k in range(len(problem.actions)))
    return MoveSchedule(begin, tuple(state.floors), "greedy", tuple(notes))


class _State:
    """What stands at a moment; changed in place."""

    def __init__(self, problem: MoveProblem, starts: Sequence[int], drains: Sequence[int], eager: bool) -> None:
        self.problem, self.eager, self.now = problem, eager, 0
        self.starts, self.drains = list(starts), list(drains)
        self.free = list(problem.free)
        # GPUs of each pool that drains in progress will give back.
        self.coming = [0] * len(problem.free)
        self.loading = [0] * len(problem.loads)
        self.serves, self.floors = list(problem.standing), list(problem.floors)
        self.begin: dict[int, int] = {}
        self.ends: list[tuple[int, int]] = []
        # Starts of each model that do not serve yet, of models that have any; and of all models.
        self.awaited = [0] * len(problem.floors)
        for k in starts:
            self.awaited[problem.actions[k].model] += 1
        self.replaced = [count > 0 for count in self.awaited]
        self.awaited_all = len(starts)

    def begin_all(self) -> None:
        """Begin all that the rule begins at this moment; a move without length may let more begin."""
        progress = True
        while progress:
            begun = len(self.begin)
            for k in [k for k in self.drains if self.eager or self._idle(k)]:
                self._drain(k)
            for k in list(self.starts):
                if not self._start(k) and not self.eager:
                    self._make_room(k)
            progress = self.end_all() or len(self.begin) > begun

    def end_all(self) -> bool:
        """End what ends by now; gives whether there was anything."""
        ended = False
        while self.ends and self.ends[0][0] <= self.now:
            action = self.problem.actions[heappop(self.ends)[1]]
            ended = True
            if action.start:
                self.loading[action.site] -= 1
                self.serves[action.model] += action.capacity
                self.awaited[action.model] -= 1
                self.awaited_all -= 1
            else:
                self.free[action.pool] += action.gpus
                self.coming[action.pool] -= action.gpus
        return ended

    def break_lock(self) -> str:
        """Nothing is under way and nothing may begin: the most urgent start gets GPUs, whatever the floor says."""
        actions = self.problem.actions
        wanted = [actions[k].pool for k in self.starts]
        k = next((d for pool in wanted for d in self.drains if actions[d].pool == pool), self.drains[0])
        self._drain(k, forced=True)
        model = actions[k].model
        return (
            f"starts and drains wait for each other: model {model} falls to {self.floors[model]} tokens/s, "
            f"its floor is {self.problem.floors[model]}"
        )

    def _idle(self, k: int) -> bool:
        """Whether a drain costs nothing any more: it carries nothing, or whatever replaces it serves."""
        action = self.problem.actions[k]
        left = self.awaited[action.model] if self.replaced[action.model] else self.awaited_all
        return action.worth == 0 or left == 0

    def _start(self, k: int) -> bool:
        action = self.problem.actions[k]
        if self.free[action.pool] < action.gpus or self.loading[action.site] >= self.problem.loads[action.site]:
            return False
        self.free[action.pool] -= action.gpus
        self.loading[action.site] += 1
        self._begin(k, self.starts)
        return True

    def _make_room(self, k: int) -> None:
        """Drain for a start that waits for nothing but GPUs."""
        actions = self.problem.actions
        action = actions[k]
        if self.loading[action.site] >= self.problem.loads[action.site]:
            return
        for d in [d for d in self.drains if actions[d].pool == action.pool]:
            if self.free[action.pool] + self.coming[action.pool] >= action.gpus:
                return
            self._drain(d)

    def _drain(self, k: int, *, forced: bool = False) -> None:
        action = self.problem.actions[k]
        left = self.serves[action.model] - action.capacity
        if left < self.floors[action.model]:
            if not forced:
                return
            self.floors[action.model] = left
        self.serves[action.model] = left
        self.coming[action.pool] += action.gpus
        self._begin(k, self.drains)

    def _begin(self, k: int, waiting: list[int]) -> None:
        waiting.remove(k)
        self.begin[k] = self.now
        heappush(self.ends, (self.now + self.problem.actions[k].lasts_s, k))
