"""Work that an entry has sent to a site since the site's latest report, which therefore does not hold it."""

from __future__ import annotations

from collections import deque

MOST = 10_000


class Unreported:
    """Dispatches by (site, model), forgotten once a report is newer; at most ``MOST`` of each."""

    def __init__(self) -> None:
        self._sent: dict[tuple[str, str], deque[tuple[float, float]]] = {}
        self._total_s: dict[tuple[str, str], float] = {}

    def sent(self, site: str, model: str, prefill_s: float, now_s: float) -> None:
        """A request that needs so much prefill time was sent."""
        key = site, model
        waiting = self._sent.setdefault(key, deque())
        waiting.append((now_s, prefill_s))
        self._total_s[key] = self._total_s.get(key, 0.0) + prefill_s
        if len(waiting) > MOST:
            self._forget(key, waiting)

    def since(self, site: str, model: str, at_s: float) -> tuple[int, float]:
        """Requests and their prefill seconds sent there after ``at_s``; older ones are forgotten."""
        key = site, model
        waiting = self._sent.get(key)
        if waiting is None:
            return 0, 0.0
        while waiting and waiting[0][0] <= at_s:
            self._forget(key, waiting)
        return len(waiting), self._total_s[key]

    def _forget(self, key: tuple[str, str], waiting: deque[tuple[float, float]]) -> None:
        _, seconds = waiting.popleft()
        # Nothing left is exactly nothing: sums of fractions would leave rounding behind.
        self._total_s[key] = self._total_s[key] - seconds if waiting else 0.0
