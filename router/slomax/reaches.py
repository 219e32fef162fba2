"""Which requests compete for the same endpoints: sets of candidates, numbered, and whether two of them meet.

Requests of one queue may be permitted at different sites, or fit only some engines there. One whose endpoints are
all busy must not hold back another that may go elsewhere, and must not count in what that one has to wait for.
"""

from __future__ import annotations

from data.types import IntArray

MOST = 4096
"""Sets that are remembered; beyond, all are forgotten, and each set gets a new number."""
ANY = 0
"""Number of an unknown set, which meets every other."""


class Reaches:
    """Numbers equal sets equally. A number stays valid for ever; one that was forgotten meets every other."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}
        self._rows: dict[int, frozenset[int]] = {}
        self._meets: dict[tuple[int, int], bool] = {}
        self._last = ANY

    def number(self, rows: IntArray) -> int:
        """The number of a set of rows, 1 or more; rows ascend."""
        key = rows.tobytes()
        found = self._numbers.get(key)
        if found is None:
            if len(self._numbers) >= MOST:
                self._numbers, self._rows, self._meets = {}, {}, {}
            found = self._last = self._last + 1
            self._numbers[key] = found
            self._rows[found] = frozenset(rows.tolist())
        return found

    def meet(self, one: int, other: int) -> bool:
        """Whether two sets share an endpoint."""
        if one == other:
            return True
        key = (one, other) if one < other else (other, one)
        found = self._meets.get(key)
        if found is None:
            first, second = self._rows.get(one), self._rows.get(other)
            found = first is None or second is None or not first.isdisjoint(second)
            if len(self._meets) >= MOST:
                self._meets = {}
            self._meets[key] = found
        return found
