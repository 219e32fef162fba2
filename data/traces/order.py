"""Arrivals in order: late rows sorted in from a bounded buffer, quantised stamps spread over their tick."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from data.traces.chunk import Chunk, join
from data.traces.report import ReadReport, Reject, Repair
from data.types import FloatArray, IntArray

TICK_ROWS = 65_536
"""Rows of one tick that are held back; of a fuller tick, part is spread over half of what is left of it."""


class Reorder:
    """Sorts rows by arrival (equal ones keep their order) while holding ``window`` rows back.

    A row that arrives earlier than one already given out is refused.
    """

    def __init__(self, window: int, report: ReadReport) -> None:
        self._window = window
        self._report = report
        self._held: Chunk | None = None
        self._given_s = -np.inf

    def push(self, chunk: Chunk) -> Iterator[Chunk]:
        """Take rows in, give out those that are certain."""
        late = chunk.rows.arrival_s < self._given_s
        if late.any():
            detail = f"more than {self._window} rows late"
            self._report.reject_lines(Reject.OUT_OF_ORDER, chunk.lines[late], detail)
            chunk = chunk.take(np.flatnonzero(~late))
        both = join([self._held, chunk]) if self._held is not None and len(self._held) else chunk
        arrival = both.rows.arrival_s
        steps = np.diff(arrival)
        if (steps < 0).any():
            peak = np.maximum.accumulate(arrival)
            self._report.repair(Repair.REORDERED, both.lines[arrival < peak])
            both = both.take(np.argsort(arrival, kind="stable"))
        sure = max(0, len(both) - self._window)
        self._held = both.cut(sure, len(both))
        if sure:
            self._given_s = float(both.rows.arrival_s[sure - 1])
            yield both.cut(0, sure)

    def flush(self) -> Iterator[Chunk]:
        """Give out the rest."""
        if self._held is not None and len(self._held):
            yield self._held
        self._held = None


def find_tick(arrival_s: FloatArray) -> float:
    """Length of the tick of quantised, sorted stamps in seconds; 0 where they are not quantised.

    Quantised means: at least 1.5 rows a distinct stamp, and nine of ten gaps between distinct stamps are whole
    multiples (within 2 %) of the shortest common gap.
    """
    steps = np.diff(arrival_s)
    gaps = np.sort(steps[steps > 0])
    if len(gaps) < 3 or len(arrival_s) < 1.5 * (len(gaps) + 1):
        return 0.0
    tick = float(gaps[len(gaps) // 20])
    ratio = gaps / tick
    whole = np.abs(ratio - np.round(ratio)) <= 0.02 * np.maximum(ratio, 1)
    return tick if float(np.mean(whole)) >= 0.9 else 0.0


class TickSpread:
    """Draws each arrival inside its tick: uniform, sorted, rows keep their order.

    Draws are consumed row by row, so the result does not depend on how the file is cut into chunks (but for ticks
    of more than ``TICK_ROWS`` rows).
    """

    def __init__(self, tick_s: float | None, rng: np.random.Generator, report: ReadReport) -> None:
        self._tick_s = tick_s
        self._rng = rng
        self._report = report
        self._held: Chunk | None = None
        self._used, self._used_stamp_s = 0.0, -np.inf

    def push(self, chunk: Chunk) -> Iterator[Chunk]:
        """Take sorted rows in, give out all complete ticks."""
        if not len(chunk):
            return
        if self._tick_s is None:
            self._tick_s = find_tick(chunk.rows.arrival_s)
        self._report.tick_s = self._tick_s
        if self._tick_s == 0:
            yield chunk
            return
        both = join([self._held, chunk]) if self._held is not None else chunk
        arrival = both.rows.arrival_s
        last = int(np.searchsorted(arrival, arrival[-1], side="left"))
        if last:
            yield self._spread(both.cut(0, last), float(arrival[-1]))
            both = both.cut(last, len(both))
        if len(both) > TICK_ROWS:
            yield self._spread_part(both)
            self._held = None
        else:
            self._held = both

    def flush(self) -> Iterator[Chunk]:
        """Give out the last tick."""
        if self._held is not None and self._tick_s:
            last_s = float(self._held.rows.arrival_s[-1])
            yield self._spread(self._held, last_s + self._tick_s)
        self._held = None

    def _spread(self, chunk: Chunk, next_s: float) -> Chunk:
        assert self._tick_s is not None
        arrival = chunk.rows.arrival_s
        starts = np.flatnonzero(np.diff(arrival, prepend=-np.inf) > 0)
        group = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(arrival)))
        width = np.minimum(np.diff(arrival[starts], append=next_s), self._tick_s)
        draws = self._rng.random(len(arrival))
        draws = draws[np.lexsort((draws, group))]
        low = self._used_part(arrival)
        draws[group == 0] = low + draws[group == 0] * (1.0 - low)
        return chunk.with_rows(arrival_s=arrival + draws * width[group])

    def _spread_part(self, chunk: Chunk) -> Chunk:
        """Spread rows of one unfinished tick over the first half of what is left of it."""
        assert self._tick_s is not None
        arrival = chunk.rows.arrival_s
        low = self._used_part(arrival)
        share = (1.0 - low) / 2
        self._used, self._used_stamp_s = low + share, float(arrival[0])
        draws = low + share * np.sort(self._rng.random(len(arrival)))
        return chunk.with_rows(arrival_s=arrival + draws * self._tick_s)

    def _used_part(self, arrival: FloatArray) -> float:
        """Part of the first row's tick that earlier rows of the same tick have taken."""
        return self._used if arrival[0] == self._used_stamp_s else 0.0


def repeated(keys: list[bytes], before: set[bytes]) -> IntArray:
    """Places of keys that stand earlier in the list or in ``before``."""
    if len(set(keys)) == len(keys) and before.isdisjoint(keys):
        return np.zeros(0, dtype=np.int64)
    seen = set(before)
    places = []
    for place, key in enumerate(keys):
        if key in seen:
            places.append(place)
        seen.add(key)
    return np.array(places, dtype=np.int64)
