"""Outages of the collection: windows recorded as zero, or nearly so, that are gaps and not absence of demand.

One series at zero is idle. Many series at zero in the same window, a moment after they were busy, is a collector
that failed. So an outage is seen on the whole group of series that share a source: at least ``least_active`` of
them had traffic in the last good window, that window held ``least_requests`` or more, and the total fell at once
to ``share`` of it or less. The windows beside the zeros that were counted only in part go the same way. The outage
ends when the total is back, or after ``longest_s``: then a standing zero is believed. Traffic that fades out
window by window is never an outage.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from data.errors import SettingError
from data.types import FloatArray, IntArray
from models.base import BoolArray


@dataclass(frozen=True, slots=True)
class OutageSettings:
    """What counts as an outage.

    Attributes:
        share: Part of the last good window's total below which a window is suspect (0 to 0.5).
        least_active: Series with traffic in the last good window, at least (2 or more).
        least_requests: Requests in the last good window, at least: fewer may stop by chance (1 or more).
        longest_s: A longer outage is believed to be the end of demand from then on, seconds (above 0).
    """

    share: float = 0.05
    least_active: int = 3
    least_requests: float = 100.0
    longest_s: float = 43_200.0

    def __post_init__(self) -> None:
        for name, low, high in (
            ("share", 0.0, 0.5),
            ("least_active", 2, 10**9),
            ("least_requests", 1.0, 1e12),
            ("longest_s", 1e-9, 1e9),
        ):
            value = getattr(self, name)
            if not low <= value <= high:
                raise SettingError("out of range", field=name, value=value, expected=f"{low:g} to {high:g}")


def find_outages(rates: FloatArray, step_s: float, settings: OutageSettings | None = None) -> BoolArray:
    """Which windows are unknown for the whole group.

    Args:
        rates: Shape (series, windows): requests/s of all series of one source; NaN = absent.
        step_s: Length of a window, seconds.
        settings: What counts as an outage.

    Returns:
        Shape (windows,). Whether a window is marked depends on it and on earlier windows alone. A window in which
        every series is absent is always marked.
    """
    chosen = settings or OutageSettings()
    absent: BoolArray = np.all(np.isnan(rates), axis=0)
    total = np.nansum(rates, axis=0)
    active: IntArray = np.sum(rates > 0, axis=0)
    outage = absent.copy()
    longest = max(1, int(chosen.longest_s / step_s))
    good, lasted = -1, 0
    for t in range(len(total)):
        if absent[t]:
            continue
        if good >= 0 and lasted < longest and _gap(total, active, good, t, step_s, chosen):
            outage[t] = True
            lasted += 1
        else:
            good, lasted = t, 0
    return outage


def _gap(total: FloatArray, active: IntArray, good: int, t: int, step_s: float, settings: OutageSettings) -> bool:
    busy = active[good] >= settings.least_active and total[good] * step_s >= settings.least_requests
    return bool(busy and total[t] <= settings.share * total[good])
