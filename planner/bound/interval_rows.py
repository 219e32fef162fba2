"""Rows of the program: in any interval the work that lies in it must fit.

For an interval [s, t], a kind with ``R`` replicas and a reading of its step costs

(6)  ``Σ x·prefill[first span inside] + Σ x·decode[whole span inside] <= room(R·(t - s))``

where the spans of a request run from its arrival to the latest moments of the first and the last token of a good
response: a request computes nothing before it comes, and a good one nothing after its due.
``room`` is the work that steps may do in that time if noise is kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from data.types import FloatArray, IntArray
from planner.bound.least_work import LeastWork, Reading, most_work_s
from planner.bound.offer import Offer
from planner.bound.replica_kinds import ReplicaKind
from router.types import BoolArray

STARTS = 8
"""An interval of some length begins at every eighth of it."""
GROWTH = 2.0**0.5
"""Lengths grow by this factor."""
LEAST_GAIN = 1e-4
"""A row that is broken by less than this share of its room is passed over."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row (6): kind, reading, interval, and the work that it has room for.

    ``split`` charges prompt blocks to all their holders by (8), not to the first.
    """

    kind: int
    reading: int
    start_s: float
    end_s: float
    room_s: float
    split: bool = False


class KindRows:
    """Rows of one kind.

    Args:
        place: Its index.
        kind: The replicas.
        work: What requests take there.
        offer: The requests; those that are not possible there are left out.
        noise: Standard deviation of the relative step time.
    """

    def __init__(self, place: int, kind: ReplicaKind, work: LeastWork, offer: Offer, noise: float) -> None:
        self._place, self._kind, self._work, self._noise = place, kind, work, noise
        self.requests: IntArray = np.flatnonzero(work.possible)
        self._arrival_s = offer.arrival_s[self.requests]
        self._first_s = offer.first_due_s[self.requests]
        self._end_s = offer.end_due_s[self.requests]
        self._blocks = offer.blocks
        self._may_split = kind.caching and offer.blocks.any_shared
        self._readings = [
            Reading(one.name, one.token_s, one.prefill_s[self.requests], one.decode_s[self.requests])
            for one in work.readings
        ]

    @property
    def speed(self) -> float:
        """Replicas over the mean work of a request."""
        reading = self._readings[0]
        work_s = float(np.mean(reading.prefill_s + reading.decode_s)) if len(self.requests) else 1.0
        return self._kind.replicas / max(work_s, 1e-12)

    def name(self, row: Row) -> str:
        """A row's kind and reading, for people."""
        return f"{self._kind.label}, {self._readings[row.reading].name}"

    def coefficients(self, row: Row) -> FloatArray:
        """Of each of ``requests``."""
        reading, started = self._readings[row.reading], self._arrival_s >= row.start_s
        inside = started & (self._first_s <= row.end_s)
        prefill_s = self._split_s(row, reading, inside) if row.split else np.where(inside, reading.prefill_s, 0.0)
        return prefill_s + np.where(started & (self._end_s <= row.end_s), reading.decode_s, 0.0)

    def _split_s(self, row: Row, reading: Reading, inside: BoolArray) -> FloatArray:
        whole = np.zeros(len(self._work.possible), dtype=bool)
        whole[self.requests] = inside
        context_s = float(self._kind.times.p2)
        return self._blocks.prefill_s(whole, row.start_s, reading.token_s, context_s)[self.requests]

    def room_s(self, length_s: FloatArray | float, with_decode: BoolArray | bool = True) -> FloatArray:
        """Work that fits into an interval of that length."""
        time_s = np.asarray(length_s, dtype=np.float64) * self._kind.replicas
        prefill = most_work_s(time_s, self._noise, self._work.longest_prefill_s)
        return np.where(with_decode, most_work_s(time_s, self._noise, self._work.longest_step_s), prefill)

    def broken(self, shares: FloatArray, most: int) -> list[Row]:
        """Rows that ``shares`` of the requests break.

        Args:
            shares: Of each of ``requests``, 0 to 1.
            most: Rows of one length and reading, at most; those broken most, none close to another.
        """
        found: list[Row] = []
        if not len(self.requests):
            return found
        last_s = float(np.max(self._first_s, initial=0.0, where=np.isfinite(self._first_s)))
        last_s = float(np.max(self._end_s, initial=last_s, where=np.isfinite(self._end_s)))
        first_s = float(self._arrival_s[0])
        length_s, span_s = float((self._first_s - self._arrival_s).min()), last_s - first_s
        while length_s < span_s * GROWTH:
            length_s = min(length_s, span_s)
            starts = first_s + np.arange(0.0, span_s - length_s + length_s / STARTS, length_s / STARTS)
            found += self._broken_of(length_s, starts, shares, most)
            length_s = length_s * GROWTH if length_s < span_s else np.inf
        return found

    def _broken_of(self, length_s: float, starts: FloatArray, shares: FloatArray, most: int) -> list[Row]:
        found = []
        for place, reading in enumerate(self._readings):
            decode_s = _inside(starts, length_s, self._arrival_s, self._end_s, shares * reading.decode_s)
            load_s = decode_s + _inside(
                starts, length_s, self._arrival_s, self._first_s, shares * reading.prefill_s
            )
            excess = load_s / self.room_s(length_s, decode_s > 0) - 1.0
            if place:
                # Without decoding all readings say the same, and the first one a little more.
                excess[decode_s <= 0] = 0.0
            rows = [self._row(place, float(starts[at]), length_s) for at in _peaks(excess, most)]
            found += rows
            if self._may_split:
                found += [replace(row, split=True) for row in rows]
        return found

    def _row(self, reading: int, start_s: float, length_s: float) -> Row:
        end_s = start_s + length_s
        with_decode = bool(np.any((self._arrival_s >= start_s) & (self._end_s <= end_s)))
        return Row(self._place, reading, start_s, end_s, float(self.room_s(length_s, with_decode)))


def _inside(
    starts: FloatArray, length_s: float, begin_s: FloatArray, end_s: FloatArray, work_s: FloatArray
) -> FloatArray:
    """For each start the work whose span lies in [start, start + length]: start is in [end - length, begin]."""
    fits = end_s - begin_s <= length_s
    low = np.searchsorted(starts, end_s[fits] - length_s, side="left")
    high = np.searchsorted(starts, begin_s[fits], side="right")
    inside = low < high
    change = np.bincount(low[inside], weights=work_s[fits][inside], minlength=len(starts) + 1)
    change -= np.bincount(high[inside], weights=work_s[fits][inside], minlength=len(starts) + 1)
    return np.maximum(np.cumsum(change)[:-1], 0.0)


def _peaks(excess: FloatArray, most: int) -> Sequence[int]:
    """The highest values above ``LEAST_GAIN``, no two within half an interval of each other."""
    chosen: list[int] = []
    for at in np.argsort(-excess, kind="stable").tolist():
        if excess[at] <= LEAST_GAIN or len(chosen) >= most:
            break
        if all(abs(at - other) > STARTS // 2 for other in chosen):
            chosen.append(at)
    return chosen
