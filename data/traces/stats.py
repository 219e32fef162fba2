"""Statistics of a trace in one pass and bounded memory: rate, burstiness, lengths, ideal prefix reuse, sessions.

Memory: 8 MB for each length histogram (exact below 2^20 tokens, to the next 1,024 above), one number a minute,
about 80 bytes for each distinct block up to ``max_blocks`` and for each session and tenant up to ``MAX_NAMES``.
Where a bound is hit, the result says so.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from data.traces.batches import TextColumn
from data.types import NO_PARENT, FloatArray, IntArray, TraceBatch

EXACT_TOKENS = 1 << 20
COARSE_TOKENS = 1 << 10
MAX_BLOCKS = 2_000_000
MAX_NAMES = 1_000_000
MAX_MINUTES = 5_000_000
_THINK_BASE = math.log(1.005)


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean and quantiles; a quantile is the smallest value that so many rows do not exceed."""

    mean: float
    p50: float
    p90: float
    p99: float
    most: float


@dataclass(frozen=True, slots=True)
class TraceStats:
    """What a trace is like.

    Attributes:
        rows: Requests.
        span_s: From the first to the last recorded arrival.
        rate_per_s: Requests by span.
        gap_cv: Coefficient of variation of the gaps between arrivals; of session starts in closed loops.
        busiest_minute_ratio: Requests of the busiest minute by those of a mean one.
        input_tokens: Prompt lengths.
        output_tokens: Output lengths.
        ideal_hit_share: Prompt tokens that an endless prefix cache would have held, of all prompt tokens;
            ``None`` without block ids.
        ideal_hit_is_bound: More distinct blocks than are remembered, so the true share is higher.
        blocks: Distinct blocks (as far as remembered).
        block_tokens: Tokens of one block.
        sessions: Distinct sessions; ``None`` if the trace names none.
        tenants: Distinct tenants; ``None`` if the trace names none.
        names_are_bound: More sessions or tenants than are remembered.
        closed_loop_turns: Requests that start at the end of another.
        think_time_p50_s: Median think time of those, to 0.5 %; ``None`` if there are none.
    """

    rows: int
    span_s: float
    rate_per_s: float
    gap_cv: float
    busiest_minute_ratio: float
    input_tokens: Spread
    output_tokens: Spread
    ideal_hit_share: float | None
    ideal_hit_is_bound: bool
    blocks: int
    block_tokens: int
    sessions: int | None
    tenants: int | None
    names_are_bound: bool
    closed_loop_turns: int
    think_time_p50_s: float | None

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


class Histogram:
    """Counts of token numbers: exact below 2^20, in steps of 1,024 above."""

    def __init__(self) -> None:
        self._exact = np.zeros(EXACT_TOKENS, dtype=np.int64)
        self._coarse: Counter[int] = Counter()
        self._sum = 0
        self._most = 0

    def add(self, tokens: IntArray) -> None:
        """Count these numbers (0 or more)."""
        values, counts = np.unique(tokens, return_counts=True)
        small = values < EXACT_TOKENS
        self._exact[values[small]] += counts[small]
        for value, count in zip(values[~small].tolist(), counts[~small].tolist(), strict=True):
            self._coarse[value // COARSE_TOKENS] += count
        self._sum += int(tokens.sum())
        self._most = max(self._most, int(values[-1]))

    def spread(self) -> Spread:
        """Mean, quantiles and maximum so far; zeros without any number."""
        coarse = sorted(self._coarse)
        values = np.concatenate(
            [np.arange(EXACT_TOKENS), (np.array(coarse, dtype=np.int64) + 1) * COARSE_TOKENS - 1]
        )
        upto = np.cumsum(
            np.concatenate([self._exact, np.array([self._coarse[key] for key in coarse], dtype=np.int64)])
        )
        total = int(upto[-1])
        if not total:
            return Spread(0.0, 0.0, 0.0, 0.0, 0.0)
        ranks = [max(1, math.ceil(share * total)) for share in (0.5, 0.9, 0.99)]
        p50, p90, p99 = (float(min(values[np.searchsorted(upto, rank)], self._most)) for rank in ranks)
        return Spread(self._sum / total, p50, p90, p99, float(self._most))


class IdealCache:
    """Prefix blocks seen so far. Ids are prefix ids, so the seen ones of a prompt are its first ones."""

    def __init__(self, max_blocks: int) -> None:
        self._max_blocks = max_blocks
        self._seen: set[int] = set()
        self.hit_tokens = 0
        self.full = False
        self.any = False

    def __len__(self) -> int:
        return len(self._seen)

    def add(self, batch: TraceBatch) -> None:
        """Count the hits of these prompts, one after the other, and remember their blocks."""
        if not len(batch.hashes):
            return
        self.any = True
        seen, size = self._seen, batch.block_tokens
        offsets, tokens = batch.hash_offsets.tolist(), batch.input_tokens.tolist()
        for row, n_in in enumerate(tokens):
            ids = batch.hashes[offsets[row] : offsets[row + 1]]
            low, high = 0, len(ids)
            while low < high:
                middle = (low + high) // 2
                if int(ids[middle]) in seen:
                    low = middle + 1
                else:
                    high = middle
            self.hit_tokens += min(low * size, n_in)
            if low < len(ids):
                room = self._max_blocks - len(seen)
                self.full = self.full or room < len(ids) - low
                seen.update(ids[low : low + max(0, room)].tolist())


class _Names:
    def __init__(self) -> None:
        self._seen: set[str] = set()
        self.full = False

    def add(self, column: Sequence[str]) -> None:
        if isinstance(column, TextColumn):
            column = [column.vocabulary[code] for code in np.unique(column.codes).tolist()]
        if len(self._seen) < MAX_NAMES:
            self._seen.update(column)
        else:
            self.full = self.full or not self._seen.issuperset(column)

    def count(self) -> int | None:
        return len(self._seen - {""}) or None


class StatsCollector:
    """Takes the batches of one trace, in order, and tells its statistics at any time."""

    def __init__(self, max_blocks: int = MAX_BLOCKS) -> None:
        self._rows = 0
        self._first_s, self._last_s = math.inf, -math.inf
        self._gaps, self._gap_sum, self._gap_squares = 0, 0.0, 0.0
        self._latest_root_s: float | None = None
        self._minutes: Counter[int] = Counter()
        self._input, self._output = Histogram(), Histogram()
        self._cache = IdealCache(max_blocks)
        self._sessions, self._tenants = _Names(), _Names()
        self._thinks: Counter[int] = Counter()
        self._prompt_tokens = 0
        self._block_tokens = 0

    def add(self, batch: TraceBatch) -> None:
        """Take one more batch."""
        if not len(batch):
            return
        self._rows += len(batch)
        self._block_tokens = batch.block_tokens
        self._first_s = min(self._first_s, float(batch.arrival_s.min()))
        self._last_s = max(self._last_s, float(batch.arrival_s.max()))
        self._prompt_tokens += int(batch.input_tokens.sum())
        self._input.add(batch.input_tokens)
        self._output.add(batch.output_tokens)
        self._cache.add(batch)
        self._sessions.add(batch.session_id)
        self._tenants.add(batch.tenant)
        self._count_minutes(batch.arrival_s)
        roots = batch.arrival_s
        if batch.parent_id is not None:
            roots = roots[batch.parent_id == NO_PARENT]
            self._count_thinks(batch)
        self._count_gaps(roots)

    def _count_minutes(self, arrival_s: FloatArray) -> None:
        minutes, counts = np.unique((arrival_s // 60).astype(np.int64), return_counts=True)
        for minute, count in zip(minutes.tolist(), counts.tolist(), strict=True):
            if minute in self._minutes or len(self._minutes) < MAX_MINUTES:
                self._minutes[minute] += count

    def _count_gaps(self, roots: FloatArray) -> None:
        if not len(roots):
            return
        start = roots[:1] if self._latest_root_s is None else np.array([self._latest_root_s])
        gaps = np.diff(np.concatenate([start, roots]) if self._latest_root_s is not None else roots)
        self._latest_root_s = float(roots[-1])
        self._gaps += len(gaps)
        self._gap_sum += float(gaps.sum())
        self._gap_squares += float((gaps * gaps).sum())

    def _count_thinks(self, batch: TraceBatch) -> None:
        if batch.parent_id is None or batch.think_time_s is None:
            return
        thinks = batch.think_time_s[batch.parent_id != NO_PARENT]
        steps = np.floor(np.log1p(np.maximum(thinks, 0.0)) / _THINK_BASE).astype(np.int64)
        values, counts = np.unique(steps, return_counts=True)
        self._thinks.update(dict(zip(values.tolist(), counts.tolist(), strict=True)))

    def result(self) -> TraceStats:
        """The statistics of all batches so far."""
        span = max(0.0, self._last_s - self._first_s) if self._rows else 0.0
        mean_gap = self._gap_sum / self._gaps if self._gaps else 0.0
        variance = self._gap_squares / self._gaps - mean_gap**2 if self._gaps else 0.0
        mean_minute = self._rows / (span / 60) if span > 0 else 0.0
        busiest = max(self._minutes.values(), default=0)
        hit = self._cache.hit_tokens / self._prompt_tokens if self._cache.any else None
        return TraceStats(
            rows=self._rows,
            span_s=span,
            rate_per_s=self._rows / span if span > 0 else 0.0,
            gap_cv=math.sqrt(max(0.0, variance)) / mean_gap if mean_gap > 0 else 0.0,
            busiest_minute_ratio=busiest / mean_minute if mean_minute > 0 else 0.0,
            input_tokens=self._input.spread(),
            output_tokens=self._output.spread(),
            ideal_hit_share=hit,
            ideal_hit_is_bound=self._cache.full,
            blocks=len(self._cache),
            block_tokens=self._block_tokens,
            sessions=self._sessions.count(),
            tenants=self._tenants.count(),
            names_are_bound=self._sessions.full or self._tenants.full,
            closed_loop_turns=self._thinks.total(),
            think_time_p50_s=self._median_think_s(),
        )

    def _median_think_s(self) -> float | None:
        half, upto = self._thinks.total() / 2, 0
        for step in sorted(self._thinks):
            upto += self._thinks[step]
            if upto >= half:
                return math.expm1((step + 0.5) * _THINK_BASE)
        return None


def describe(rows: Iterable[TraceBatch], max_blocks: int = MAX_BLOCKS) -> TraceStats:
    """Statistics of all batches."""
    collector = StatsCollector(max_blocks)
    for batch in rows:
        collector.add(batch)
    return collector.result()
