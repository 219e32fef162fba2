"""Notices that requests wait while nobody tells what becomes of those before them.

A turn comes when an engine has given a first token or ended a request, and the router learns of both from its
callers alone. Callers that report only when all their requests are answered, such as after the end of a
``RouteStream``, wait for themselves.
"""

from __future__ import annotations

import logging
import math

LOG = logging.getLogger("tokenfleet.router")
SILENT_S = 30.0
"""So long nobody has reported anything."""
AGAIN_S = 300.0
"""It is not told again sooner."""


class SilenceWatch:
    """Tells it once in a while.

    Attributes:
        told: How often it was told.
    """

    def __init__(self) -> None:
        self.told = 0
        self._heard_s = math.inf
        self._told_s = 0.0

    def heard(self, now_s: float) -> None:
        """A caller has reported something, or there is nothing that could be reported."""
        self._heard_s = now_s

    def look(self, waiting: int, under_way: int, now_s: float) -> None:
        """Look at how many requests wait, and how many are under way."""
        if not waiting or not under_way or self._heard_s == math.inf:
            self.heard(now_s)
        elif now_s - self._heard_s >= SILENT_S and (not self.told or now_s - self._told_s >= AGAIN_S):
            self.told += 1
            self._told_s = now_s
            LOG.warning(
                "%d requests wait, %d are under way, and for %.0f s nobody has reported anything: callers must "
                "report first tokens and ends while others wait, or no engine answers",
                waiting,
                under_way,
                now_s - self._heard_s,
            )
