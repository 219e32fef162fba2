"""Arrivals: the trace as a stream, merged with closed-loop turns that wait for their parent."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from heapq import heappop, heappush

from data.errors import TraceError
from data.types import NO_PARENT, Request

REMEMBERED = 65_536
"""Ends of requests that are kept for children that are read later."""


class Arrivals:
    """Requests in the order in which they are offered.

    A turn with a parent arrives ``think_time_s`` after the parent has ended, however it ended. The stream is read
    at most ``look_ahead`` requests ahead, and always as far as the next request without a parent; a turn that is
    read after its moment has passed is offered at once and counted in ``late_turns``.

    Args:
        requests: Sorted by ``arrival_s``; ids unique among those that have not ended.
        look_ahead: Requests read before their time, at most.
    """

    def __init__(self, requests: Iterable[Request], look_ahead: int = 4096) -> None:
        self._stream = iter(requests)
        self._look_ahead = look_ahead
        self._roots: deque[Request] = deque()
        self._turns: list[tuple[float, int, Request]] = []
        self._children: dict[int, list[Request] | None] = {}
        self._ended: dict[int, float] = {}
        self._held_back = 0
        self._clock_s = -math.inf
        self._newest_s = -math.inf
        self._exhausted = False
        self.late_turns = 0
        """Turns that were read after their moment."""
        self.orphan_turns = 0
        """Turns whose parent is unknown or long gone: they arrive when the trace says."""
        self.turns_after_failure = 0
        """Turns offered although their parent did not complete."""
        self._fill()

    @property
    def next_s(self) -> float:
        """Moment of the next arrival; infinite if none is known."""
        root = self._roots[0].arrival_s if self._roots else math.inf
        return min(root, self._turns[0][0]) if self._turns else root

    def pop(self) -> tuple[Request, float]:
        """The next request and its arrival; ``IndexError`` if there is none."""
        roots, turns = self._roots, self._turns
        if turns and (not roots or turns[0][0] < roots[0].arrival_s):
            at_s, _, request = heappop(turns)
        else:
            request = roots.popleft()
            at_s = request.arrival_s
        self._clock_s = at_s
        self._fill()
        return request, at_s

    def ended(self, request_id: int, now_s: float, completed: bool) -> None:
        """A request has ended: its children arrive after their think times."""
        children = self._children.pop(request_id)
        ended = self._ended
        ended[request_id] = now_s
        if len(ended) > REMEMBERED:
            del ended[next(iter(ended))]
        for child in children or ():
            self._held_back -= 1
            self.turns_after_failure += not completed
            self._schedule(child, now_s + child.think_time_s)

    def _fill(self) -> None:
        roots, turns = self._roots, self._turns
        while not self._exhausted:
            if roots and len(roots) + len(turns) + self._held_back >= self._look_ahead:
                return
            request = next(self._stream, None)
            if request is None:
                self._exhausted = True
                return
            self._take(request)

    def _take(self, request: Request) -> None:
        if request.request_id in self._children:
            raise TraceError("request id used twice", field="request_id", value=request.request_id)
        self._children[request.request_id] = None
        parent = request.parent_id
        if parent == NO_PARENT:
            if not request.arrival_s >= self._newest_s:
                raise TraceError(
                    "arrivals go back in time",
                    field="arrival_s",
                    value=request.arrival_s,
                    expected=f"at least {self._newest_s}",
                )
            self._newest_s = request.arrival_s
            self._roots.append(request)
        elif parent in self._children and parent != request.request_id:
            siblings = self._children[parent]
            if siblings is None:
                siblings = self._children[parent] = []
            siblings.append(request)
            self._held_back += 1
        elif parent in self._ended:
            self._schedule(request, self._ended[parent] + request.think_time_s)
        else:
            self.orphan_turns += 1
            self._schedule(request, request.arrival_s)

    def _schedule(self, request: Request, due_s: float) -> None:
        if due_s < self._clock_s:
            self.late_turns += 1
            due_s = self._clock_s
        heappush(self._turns, (due_s, request.request_id, request))
