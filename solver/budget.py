"""How much of a solve's time is left, and the limits of the next call: the clock's, or counts in audit mode."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from solver.linear import SolveLimits
from solver.settings import PlacementSettings

AUDIT_WATCHDOG = 10.0
"""In audit mode the clock is only a watchdog, at this many times the limit."""
LEAST_S = 0.05


@dataclass(frozen=True, slots=True)
class SearchBudget:
    """One solve's clock. ``share`` of the limits is given out; in audit mode counts end every call first."""

    settings: PlacementSettings
    began_s: float = field(default_factory=time.monotonic)

    def spent_s(self) -> float:
        """Seconds since the solve began."""
        return time.monotonic() - self.began_s

    def left_s(self) -> float:
        """Seconds until the limit (in audit mode: until the watchdog), never below 0.05."""
        whole = self.settings.time_limit_s * (AUDIT_WATCHDOG if self.settings.deterministic else 1.0)
        return max(whole - self.spent_s(), LEAST_S)

    def over(self, share: float = 1.0) -> bool:
        """Whether that share of the limit has passed; never in audit mode, where counts decide."""
        return not self.settings.deterministic and self.spent_s() >= share * self.settings.time_limit_s - LEAST_S

    def limits(self, share: float = 1.0, absolute_gap: float = 0.0) -> SolveLimits:
        """Limits of a call that may use a share of the time that is left."""
        nodes = self.settings.node_limit if self.settings.deterministic else None
        return SolveLimits(self.left_s() * share, 0.0, absolute_gap, nodes, self.settings.seed)

    def part_limits(self, absolute_gap: float, patience: float = 1.0) -> SolveLimits:
        """Limits of one small model: ``block_s`` × patience seconds, or ``block_nodes`` nodes in audit mode."""
        settings = self.settings
        if settings.deterministic:
            return SolveLimits(self.left_s(), 0.0, absolute_gap, settings.block_nodes, settings.seed)
        return SolveLimits(min(self.left_s(), patience * settings.block_s), 0.0, absolute_gap, None, settings.seed)
