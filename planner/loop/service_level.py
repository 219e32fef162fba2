"""How well the fleet served over a window: what a published plan is judged by."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServiceLevel:
    """Service over one window. No data is not a service level: the source then has none to give.

    Attributes:
        good_tokens_per_s: Goodput: output tokens/s of completed requests that met all their targets.
        offered_tokens_per_s: Output tokens/s that requests asked for.
        requests: Requests that the window ended with a known fate.
        since_s, until_s: The window, seconds since the epoch.
    """

    good_tokens_per_s: float
    offered_tokens_per_s: float
    requests: float
    since_s: float
    until_s: float

    @property
    def good_share(self) -> float:
        """Goodput over offered tokens (0 to 1); 1 where nothing was offered, since nothing was missed."""
        if not self.offered_tokens_per_s > 0:
            return 1.0
        return min(self.good_tokens_per_s / self.offered_tokens_per_s, 1.0)
