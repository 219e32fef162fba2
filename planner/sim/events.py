"""The event queue of a run: what happens next, in an order that depends on nothing but the run itself."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

Handler = Callable[[float, Any], None]
"""Called with the moment and the argument of its event."""
_LATE = 1 << 60


class EventQueue:
    """A heap of events; equal moments run in the order in which they were pushed, ends of engine steps last.

    An arrival that falls on the very end of a step is thus in the queue when the next step is composed.
    """

    __slots__ = ("_heap", "_pushed")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Handler, Any]] = []
        self._pushed = 0

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def next_s(self) -> float:
        """Moment of the next event; infinite if there is none."""
        return self._heap[0][0] if self._heap else float("inf")

    def push(self, at_s: float, handler: Handler, argument: Any) -> None:
        """Call ``handler(at_s, argument)`` at that moment."""
        self._pushed += 1
        heappush(self._heap, (at_s, self._pushed, handler, argument))

    def push_step_end(self, at_s: float, handler: Handler, argument: Any) -> None:
        """The same for the end of an engine step."""
        self._pushed += 1
        heappush(self._heap, (at_s, _LATE + self._pushed, handler, argument))

    def run_next(self) -> None:
        """Take the next event and handle it."""
        at_s, _, handler, argument = heappop(self._heap)
        handler(at_s, argument)
