"""A token bucket: a rate, a burst, and a level that never exceeds the burst."""

from __future__ import annotations

import math

from data.errors import SettingError

EPSILON = 1e-9
"""Rounding of sums of seconds times rates: this much, relative to the burst, counts as nothing."""


class Bucket:
    """Refills at ``rate_per_s`` up to ``burst``; starts full.

    Args:
        rate_per_s: Units a second (0 or more).
        burst: Most units that are ever held (above 0).
        now_s: The clock. Steps back are taken as "no time has passed".
    """

    __slots__ = ("_at_s", "_level", "burst", "rate_per_s")

    def __init__(self, rate_per_s: float, burst: float, now_s: float) -> None:
        for name, value, ok in (
            ("rate_per_s", rate_per_s, 0 <= rate_per_s < math.inf),
            ("burst", burst, 0 < burst < math.inf),
        ):
            if not ok:
                raise SettingError("bucket out of range", field=name, value=value, expected="above 0 and finite")
        self.rate_per_s = rate_per_s
        self.burst = burst
        self._level = burst
        self._at_s = now_s

    def level(self, now_s: float) -> float:
        """Units that can be taken now."""
        if now_s > self._at_s:
            self._level = min(self._level + (now_s - self._at_s) * self.rate_per_s, self.burst)
            self._at_s = now_s
        return self._level

    def covers(self, units: float, now_s: float) -> bool:
        """Whether ``units`` can be taken now."""
        return self.level(now_s) >= units - EPSILON * self.burst

    def take(self, units: float, now_s: float) -> None:
        """Take ``units``; the caller has asked whether the bucket covers them, or accepts a debt."""
        self._level = self.level(now_s) - units

    def give(self, units: float, now_s: float) -> None:
        """Give back what was taken and not used; the level stays within the burst."""
        self._level = min(self.level(now_s) + units, self.burst)

    def covered_in_s(self, units: float, now_s: float) -> float:
        """Seconds until ``units`` can be taken; infinite if the bucket can never hold them."""
        missing = units - self.level(now_s)
        if missing <= EPSILON * self.burst:
            return 0.0
        if units > self.burst or self.rate_per_s == 0:
            return math.inf
        return missing / self.rate_per_s

    def reshaped(self, rate_per_s: float, burst: float, now_s: float) -> Bucket:
        """The same fill under other limits, without a jump: the level is kept within the new burst."""
        new = Bucket(rate_per_s, burst, now_s)
        new._level = min(self.level(now_s), burst)
        return new
