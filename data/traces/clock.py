"""Time stamps: dates and numbers, and which unit the numbers are in.

Dates follow one rule: ``YYYY-MM-DD`` with a space or ``T``, ``HH:MM:SS``, 0 to 9 digits of a fraction, and ``Z``,
an offset or nothing (then UTC). They are whole nanoseconds until the first one is subtracted: nothing is lost.

The unit of numbers is declared by the caller, told by the size of stamps that count from 1970, or inferred: the
format's own unit, but seconds where a format of whole milliseconds has fractional stamps. A unit that was not
declared is refused if the mean rate it implies is implausible. The report carries both readings.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache

import numpy as np

from data.errors import TraceError
from data.traces.options import PER_SECOND, TimeUnit
from data.traces.report import ClockReading, ReadReport
from data.types import FloatArray, IntArray

PLAUSIBLE_RATE = (1e-3, 1e3)
"""Mean requests/s that a trace may have before a unit that was not declared is refused."""
ENOUGH_ROWS = 100
"""Fewer rows say nothing about a rate."""
_EPOCH_S = (1.42e9, 2.3e9)
"""The years 2015 to 2042 in seconds since 1970."""

_DATE = re.compile(
    rb"(\d{4}-\d\d-\d\d)[ T](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))? ?(?:(Z)|(UTC)|([+-])(\d\d):?(\d\d)?)?", re.ASCII
)
Stamp = int | float
Stamps = IntArray | FloatArray


def parse_stamp(text: bytes) -> tuple[Stamp, bool]:
    """A stamp and whether it is a date (then whole nanoseconds since 1970).

    Raises:
        ValueError: Neither a date nor a finite number below 2^62.
    """
    text = text.strip()
    match = _DATE.fullmatch(text)
    if match is None:
        return checked_stamp(_number(text)), False
    day, hour, minute, second, fraction, _, _, sign, off_hour, off_minute = match.groups()
    if int(hour) > 23 or int(minute) > 59 or int(second) > 60:
        raise ValueError("no time of day")
    seconds = _day_s(day) + int(hour) * 3600 + int(minute) * 60 + int(second)
    if sign:
        offset = int(off_hour) * 3600 + int(off_minute or 0) * 60
        seconds += offset if sign == b"-" else -offset
    return checked_stamp(seconds * 1_000_000_000 + int((fraction or b"0").ljust(9, b"0"))), True


def checked_stamp(value: Stamp) -> Stamp:
    """The same value; ``ValueError`` if it is not finite or does not fit 63 bits."""
    if not -(2**62) < value < 2**62:
        raise ValueError("stamp out of range")
    return value


def _number(text: bytes) -> Stamp:
    if b"_" in text:
        raise ValueError("no number")
    try:
        return int(text)
    except ValueError:
        return float(text)


@lru_cache(maxsize=4096)
def _day_s(day: bytes) -> int:
    return int(datetime.strptime(day.decode(), "%Y-%m-%d").replace(tzinfo=UTC).timestamp())


@dataclass(slots=True)
class Clock:
    """Turns the stamps of one file into seconds since its first chunk's earliest stamp.

    Attributes:
        own_unit: Unit that the format documents.
        declared: Unit that the caller declared, if any; never doubted.
        report: Gets the unit, why, and the other readings.
    """

    own_unit: TimeUnit
    declared: TimeUnit | None
    report: ReadReport
    is_date: bool = False
    origin: Stamp = 0
    unit: TimeUnit = "s"
    rows: int = 0
    first: Stamp = 0
    last: Stamp = 0
    _started: bool = field(default=False)

    def seconds(self, stamps: Stamps) -> FloatArray:
        """Seconds since the origin. The first call decides unit and origin."""
        if not self._started:
            self._start(stamps)
        low, high = stamps.min().item(), stamps.max().item()
        self.first, self.last = min(self.first, low), max(self.last, high)
        self.rows += len(stamps)
        since = (stamps - self.origin) / PER_SECOND[self.unit]
        return since.astype(np.float64, copy=False)

    @property
    def origin_s(self) -> float:
        """The origin on the file's own clock."""
        return self.origin / PER_SECOND[self.unit]

    def _start(self, stamps: Stamps) -> None:
        self._started = True
        self.origin = self.first = self.last = stamps.min().item()
        if self.is_date:
            self.unit, reason = "ns", "dates"
        elif self.declared is not None:
            self.unit, reason = self.declared, "declared"
        else:
            self.unit, reason = infer_unit(stamps, self.own_unit, self.report.source)
        self.report.time_unit = "date" if self.is_date else self.unit
        self.report.time_unit_reason = reason

    def finish(self) -> None:
        """Put both readings of the whole file into the report.

        Raises:
            TraceError: The mean rate is implausible and the caller did not declare the unit.
        """
        if not self._started:
            return
        span = float(self.last - self.first)
        units: tuple[TimeUnit, ...] = ("ns",) if self.is_date else ("s", "ms")
        if self.unit not in units:
            units = (*units, self.unit)
        readings = [_reading(unit, span, self.rows) for unit in units]
        self.report.clock_readings = tuple(readings)
        chosen = _reading(self.unit, span, self.rows)
        if self.declared is None and not self.is_date and not _plausible(chosen, self.rows):
            raise _implausible(readings, self.report.source)


def infer_unit(stamps: Stamps, own_unit: TimeUnit, source: str) -> tuple[TimeUnit, str]:
    """The unit of these first stamps of a file, and why.

    Raises:
        TraceError: The rate it implies is implausible.
    """
    first = float(stamps.min())
    for unit, ticks in PER_SECOND.items():
        if _EPOCH_S[0] * ticks <= first <= _EPOCH_S[1] * ticks:
            return unit, "inferred: stamps count from 1970"
    fractional = bool(np.any(stamps != np.floor(stamps)))
    preferred: TimeUnit = "s" if fractional and own_unit == "ms" else own_unit
    why = "the format's own" if preferred == own_unit else "inferred: fractional stamps are seconds"
    span, rows = float(stamps.max()) - first, len(stamps)
    if _plausible(_reading(preferred, span, rows), rows):
        return preferred, why if rows >= ENOUGH_ROWS else f"{why}; too few rows to judge the rate"
    raise _implausible([_reading(unit, span, rows) for unit in PER_SECOND], source)


def _reading(unit: TimeUnit, span: float, rows: int) -> ClockReading:
    span_s = span / PER_SECOND[unit]
    return ClockReading(unit, span_s, rows / span_s if span_s > 0 else 0.0)


def _plausible(reading: ClockReading, rows: int) -> bool:
    """Whether the rate may be true; without enough rows or without any span it cannot be judged."""
    if rows < ENOUGH_ROWS or reading.span_s <= 0:
        return True
    return PLAUSIBLE_RATE[0] <= reading.rate_per_s <= PLAUSIBLE_RATE[1]


def _implausible(readings: list[ClockReading], source: str) -> TraceError:
    rates = ", ".join(f"{one.rate_per_s:.3g} req/s read as {one.unit}" for one in readings)
    return TraceError(f"the time unit is in doubt: {rates}", source=source, expected="a declared time unit")
