"""When a repeated failure is worth a log line: often at first, then ever more seldom, never in a flood."""

from __future__ import annotations

from collections import deque


class LogGate:
    """Lets the 1st, 2nd, 4th, 8th … failure in a row through, and only a few lines in any window of time.

    The second bound is for what fails and recovers in turn: each recovery starts the row again.

    Args:
        lines: Lines let through in any window.
        window_s: Length of the window.
    """

    def __init__(self, lines: int = 4, window_s: float = 60.0) -> None:
        self._lines = lines
        self._window_s = window_s
        self._times: deque[float] = deque()
        self.in_a_row = 0
        """Failures since the last success."""
        self.total = 0
        """All failures, whether logged or not."""
        self._row_logged = False

    def failed(self, now_s: float) -> bool:
        """Count one failure; whether it gets a line."""
        self.in_a_row += 1
        self.total += 1
        while self._times and self._times[0] <= now_s - self._window_s:
            self._times.popleft()
        if self.in_a_row & (self.in_a_row - 1) or len(self._times) >= self._lines:
            return False
        self._times.append(now_s)
        self._row_logged = True
        return True

    def succeeded(self) -> int:
        """End the row; how long it was, or 0 if none of it was logged: then its end is not worth a line either."""
        row = self.in_a_row if self._row_logged else 0
        self.in_a_row, self._row_logged = 0, False
        return row
