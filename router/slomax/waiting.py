"""A waiting request, and a heap of them whose cancelled entries are bounded garbage."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from math import inf

from router.types import RouteRequest

GARBAGE_FLOOR = 32
"""A heap is swept when its dead entries outnumber the live ones by this many."""


@dataclass(slots=True, eq=False)
class Waiting:
    """One request in a queue.

    Attributes:
        ticket: Its name outside; unique, rising.
        request: What is asked.
        arrived_s: First arrival; waiting counts from here.
        due_s: Latest dispatch that can still meet the targets; infinite = no target bounds it.
        expires_s: When it leaves the queue unserved.
        work: What its service costs, in prompt tokens' worth.
        prefill_s: Predicted prefill time at the best endpoint.
        long: Whether that counts as a long prefill.
        guaranteed: Its tenant is of the guaranteed tier.
        reach: Number of the set of endpoints that may serve it, see ``router.slomax.reaches``.
        late: It can no longer meet its targets.
        gone: It has left the queue; entries that still point at it are garbage.
    """

    ticket: int
    request: RouteRequest
    arrived_s: float
    due_s: float
    expires_s: float
    work: float
    prefill_s: float
    long: bool
    guaranteed: bool = False
    reach: int = 0
    late: bool = False
    gone: bool = False


class WaitingHeap:
    """Requests by a key given at entry, least first; equal keys in the order of entry.

    ``discard`` is O(1): the entry stays as garbage, and the heap is swept when more than half of it is. So every
    operation is O(log n) amortised, and memory stays within twice the live entries plus a constant.
    """

    __slots__ = ("_entries", "_live", "_pushed")

    def __init__(self) -> None:
        self._entries: list[tuple[float, int, Waiting]] = []
        self._live = 0
        self._pushed = 0

    def __len__(self) -> int:
        return self._live

    @property
    def stored(self) -> int:
        """Entries in memory, garbage included."""
        return len(self._entries)

    def push(self, key: float, item: Waiting) -> None:
        """Add an item that is in no state of ``gone``."""
        self._pushed += 1
        heappush(self._entries, (key, self._pushed, item))
        self._live += 1

    def first(self) -> Waiting | None:
        """The least item that is still there; ``None`` if there is none."""
        entries = self._entries
        while entries:
            item = entries[0][2]
            if not item.gone:
                return item
            heappop(entries)
        return None

    def first_key(self) -> float:
        """Its key; infinite if there is none."""
        return self._entries[0][0] if self.first() is not None else inf

    def discard(self) -> None:
        """One item of this heap has been marked as gone."""
        self._live -= 1
        if len(self._entries) > 2 * self._live + GARBAGE_FLOOR:
            self._entries = [entry for entry in self._entries if not entry[2].gone]
            heapify(self._entries)
