"""How numbers are written for people: one rule a unit, the same in the terminal and in the report."""

from __future__ import annotations

import math

from planner.intervals import Estimate
from planner.measures import Unit

MISSING = "–"
MINUS = "−"
GAP = "\u00a0"
"""Space between a figure and its unit that no line breaks at."""
PERCENT = f"{GAP}%"


def number(value: float, unit: Unit) -> str:
    """One figure, its unit included where the unit is not in the column's head; ``–`` for NaN."""
    if not math.isfinite(value):
        return MISSING
    if unit == "share":
        return share(value)
    if unit == "s":
        return duration(value)
    return plain(value)


def share(value: float) -> str:
    """0.931 as ``93.1 %``."""
    return f"{value * 100:.1f}{GAP}%" if math.isfinite(value) else MISSING


def duration(value_s: float) -> str:
    """Seconds as ``312 ms``, ``4.21 s`` or ``132 s``: three significant digits."""
    if not math.isfinite(value_s):
        return MISSING
    if value_s < 0.9995:
        ms = value_s * 1000
        return f"{ms:.1f}{GAP}ms" if ms < 99.95 else f"{ms:.0f}{GAP}ms"
    return (
        f"{value_s:.2f}{GAP}s"
        if value_s < 9.995
        else f"{value_s:.1f}{GAP}s"
        if value_s < 99.95
        else f"{value_s:,.0f}{GAP}s"
    )


def plain(value: float) -> str:
    """A count or a rate: grouped thousands, decimals only below 100 and only where there are any."""
    if not math.isfinite(value):
        return MISSING
    return f"{value:,.{_decimals(value)}f}".replace("-", MINUS)


def _decimals(value: float) -> int:
    if abs(value) >= 99.95 or value == int(value):
        return 0
    return 1 if abs(value) >= 9.995 else 2


def with_interval(figure: Estimate, unit: Unit) -> str:
    """``1,234 ± 56``, both to the same digit; the mean alone where there is no interval."""
    head = number(figure.mean, unit)
    if figure.half_width is None:
        return head
    if unit == "share":
        head = head.removesuffix(PERCENT)
    if unit in ("share", "s"):
        half = number(figure.half_width, unit)
    else:
        half = f"{figure.half_width:,.{_decimals(figure.mean)}f}"
    return f"{head}{GAP}±{GAP}{half}"


def signed_share(value: float) -> str:
    """0.123 as ``+12.3 %``, −0.04 as ``−4.0 %``."""
    if not math.isfinite(value):
        return MISSING
    sign = "+" if value >= 0 else MINUS
    return f"{sign}{abs(value) * 100:.1f}{GAP}%"


def signed(value: float, unit: Unit) -> str:
    """A difference with its sign: ``+210``, ``−35 ms``; shares in percentage points."""
    if not math.isfinite(value):
        return MISSING
    sign = "+" if value >= 0 else MINUS
    if unit == "share":
        return f"{sign}{abs(value) * 100:.1f}{GAP}pp"
    return sign + number(abs(value), unit)


def relative_with_interval(figure: Estimate) -> str:
    """``+12.3 % (+9.8 to +14.9)``; ``no interval`` instead of the bracket where there are too few seeds."""
    if figure.low is None or figure.high is None:
        return f"{signed_share(figure.mean)} (no interval)" if math.isfinite(figure.mean) else MISSING
    low, high = (signed_share(end).removesuffix(PERCENT) for end in (figure.low, figure.high))
    return f"{signed_share(figure.mean)} ({low} to {high})"


def difference_with_interval(figure: Estimate, unit: Unit) -> str:
    """The same for a difference in the figure's own unit; ``0`` where no seed differs at all."""
    if figure.mean == 0 and figure.half_width in (None, 0):
        return "0"
    if figure.low is None or figure.high is None:
        return f"{signed(figure.mean, unit)} (no interval)" if math.isfinite(figure.mean) else MISSING
    return f"{signed(figure.mean, unit)} ({signed(figure.low, unit)} to {signed(figure.high, unit)})"
