"""Pure changes to a stream of batches: speed, window, sample of sessions, assignment of names, merge.

All take batches and give batches, hold no more than they say, and depend on nothing but their arguments. Choices
are made by hashing a seed with the session (or the request, where there is none), so all turns of a session share
them and they do not depend on how the stream is cut.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from data.errors import SettingError
from data.traces import batches
from data.traces.batches import TextColumn
from data.traces.hashing import mix, mix_one, salted, text_hash, unit_interval
from data.types import NO_PARENT, FloatArray, IntArray, TraceBatch, UIntArray

Field = Literal["model", "tenant", "workload_class", "origin"]


def scale_arrivals(rows: Iterable[TraceBatch], speed: float) -> Iterator[TraceBatch]:
    """Arrivals ``speed`` times as dense. Think times stay: a client does not think faster under load."""
    if not 0 < speed < 1e9:
        raise SettingError("out of range", field="speed", value=speed, expected="above 0 and below 1e9")
    for batch in rows:
        yield batches.with_columns(batch, arrival_s=batch.arrival_s / speed)


def window(
    rows: Iterable[TraceBatch], start_s: float, end_s: float, *, rebase: bool = True
) -> Iterator[TraceBatch]:
    """Requests that arrive in ``[start_s, end_s)``, from time 0 if ``rebase``.

    Turns of closed loops are taken or left with their parent; a kept turn follows a kept parent, whatever its
    recorded arrival. Memory: ids of the kept requests of closed loops.
    """
    if not start_s < end_s:
        raise SettingError("an empty window", field="end_s", value=end_s, expected=f"above {start_s}")
    shift_s = start_s if rebase and start_s > -np.inf else 0.0
    kept: set[int] = set()
    for batch in rows:
        inside = (batch.arrival_s >= start_s) & (batch.arrival_s < end_s)
        if batch.parent_id is None:
            if float(batch.arrival_s[0]) >= end_s:
                return
        else:
            inside = _with_parents(batch, batch.parent_id, inside, kept)
        part = batches.take(batch, np.flatnonzero(inside))
        if len(part):
            yield batches.with_columns(part, arrival_s=part.arrival_s - shift_s) if shift_s else part


def _with_parents(
    batch: TraceBatch, parent_id: IntArray, inside: np.ndarray[tuple[int], np.dtype[np.bool_]], kept: set[int]
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Roots by their own arrival, turns by their parent; remembers what is kept."""
    found = inside.copy()
    for row, (request, parent) in enumerate(zip(batch.request_id.tolist(), parent_id.tolist(), strict=True)):
        if parent != NO_PARENT:
            found[row] = parent in kept
        if found[row]:
            kept.add(request)
    return found


def sample_sessions(rows: Iterable[TraceBatch], share: float, seed: int) -> Iterator[TraceBatch]:
    """About ``share`` of the sessions, each whole; requests without a session count as one each."""
    if not 0 < share <= 1:
        raise SettingError("out of range", field="share", value=share, expected="above 0, at most 1")
    for batch in rows:
        drawn = unit_interval(session_keys(batch, seed)) < share
        part = batches.take(batch, np.flatnonzero(drawn))
        if len(part):
            yield part


@dataclass(frozen=True, slots=True)
class Assignment:
    """Names given to requests in fixed shares.

    Attributes:
        field: The column to fill.
        shares: Name to weight; weights are relative.
        only_blank: Leave names that the trace has.
        by: Column whose value decides instead of the session, so that all requests of one value agree (such as
            ``origin`` by ``tenant``).
    """

    field: Field
    shares: Mapping[str, float]
    only_blank: bool = False
    by: Field | None = None

    def __post_init__(self) -> None:
        weights = list(self.shares.values())
        if not weights or min(weights) < 0 or not 0 < sum(weights) < float("inf"):
            raise SettingError(
                "no usable weights",
                field=self.field,
                value=dict(self.shares),
                expected="weights of 0 or more, not all 0",
            )


def assign(rows: Iterable[TraceBatch], rules: Sequence[Assignment], seed: int) -> Iterator[TraceBatch]:
    """Fill columns by these rules, in order, so that a trace without tenants or classes can drive a fleet."""
    for batch in rows:
        for place, rule in enumerate(rules):
            salt = mix_one(seed ^ text_hash(f"{place}:{rule.field}"))
            keys = session_keys(batch, salt) if rule.by is None else _text_keys(batch, rule.by, salt)
            batch = batches.with_columns(batch, **{rule.field: _named(batch, rule, keys)})
        yield batch


def _named(batch: TraceBatch, rule: Assignment, keys: UIntArray) -> Sequence[str]:
    names = list(rule.shares)
    upto = np.cumsum([rule.shares[name] for name in names])
    codes = np.searchsorted(upto, unit_interval(keys) * upto[-1], side="right").clip(max=len(names) - 1)
    column = TextColumn(codes.astype(np.int32), tuple(names))
    present: Sequence[str] = getattr(batch, rule.field)
    if rule.only_blank and len(present):
        return [old or new for old, new in zip(present, column, strict=True)]
    return column


def session_keys(batch: TraceBatch, seed: int) -> UIntArray:
    """A 64-bit hash for each request's session, or for the request where it has none."""
    own = mix(batch.request_id.astype(np.uint64) ^ np.uint64(mix_one(seed)))
    if not len(batch.session_id):
        return own
    named = _column_keys(batch.session_id, seed)
    blank = np.array([not session for session in batch.session_id])
    return np.where(blank, own, named)


def _text_keys(batch: TraceBatch, field: Field, seed: int) -> UIntArray:
    column: Sequence[str] = getattr(batch, field)
    return _column_keys(column if len(column) else TextColumn(np.zeros(len(batch), dtype=np.int32), ("",)), seed)


def _column_keys(column: Sequence[str], seed: int) -> UIntArray:
    if isinstance(column, TextColumn):
        words = np.array([text_hash(word) for word in column.vocabulary], dtype=np.uint64)
        return salted(words[column.codes], seed)
    known = {word: text_hash(word) for word in set(column)}
    return salted(np.array([known[word] for word in column], dtype=np.uint64), seed)


def stream_keys(batch: TraceBatch, before_s: float = -np.inf) -> FloatArray:
    """The time by which each row has its place in a stream: its arrival, or for a turn that of the latest root."""
    own = batch.arrival_s
    if batch.parent_id is not None:
        own = np.where(batch.parent_id == NO_PARENT, own, -np.inf)
    return np.maximum(np.maximum.accumulate(own), before_s)


def merge(streams: Sequence[Iterable[TraceBatch]], *, separate_prefixes: bool = True) -> Iterator[TraceBatch]:
    """One stream of several sorted ones. Memory: one batch of each.

    Ids stay unique: a request's becomes ``id * len(streams) + place of its stream``, a session's gets that place
    in front. With ``separate_prefixes`` equal block ids of two streams do not mean equal prefixes (ids of public
    traces are counted per file).

    Raises:
        SettingError: The streams differ in block size.
    """
    parts = [_Part(_renumbered(one, place, len(streams), separate_prefixes)) for place, one in enumerate(streams)]
    waiting = [(part.key, place) for place, part in enumerate(parts) if part.advance()]
    waiting = [(parts[place].key, place) for _, place in waiting]
    heapq.heapify(waiting)
    block_tokens = 0
    while waiting:
        _, place = heapq.heappop(waiting)
        rows = parts[place].until(waiting[0] if waiting else (np.inf, len(parts)), place)
        block_tokens = block_tokens or rows.block_tokens
        if rows.block_tokens != block_tokens:
            raise SettingError(
                "streams differ in block size",
                field="block_tokens",
                value=rows.block_tokens,
                expected=str(block_tokens),
            )
        yield rows
        if parts[place].advance():
            heapq.heappush(waiting, (parts[place].key, place))


def _renumbered(rows: Iterable[TraceBatch], place: int, count: int, separate: bool) -> Iterator[TraceBatch]:
    for batch in rows:
        parents = batch.parent_id
        if parents is not None:
            parents = np.where(parents == NO_PARENT, NO_PARENT, parents * count + place)
        yield batches.with_columns(
            batch,
            request_id=batch.request_id * count + place,
            parent_id=parents,
            session_id=[session and f"{place}/{session}" for session in batch.session_id],
            hashes=salted(batch.hashes, place) if separate else batch.hashes,
        )


class _Part:
    """One stream with its current batch and how far it has been given out."""

    def __init__(self, rows: Iterator[TraceBatch]) -> None:
        self._rows = rows
        self._batch = batches.empty_batch()
        self._keys: FloatArray = np.zeros(0)
        self._at = 0
        self._latest_s = -np.inf

    @property
    def key(self) -> float:
        """Key of the next row."""
        return float(self._keys[self._at])

    def advance(self) -> bool:
        """Whether there is a next row; draws the next batch when the current one is used up."""
        while self._at >= len(self._batch):
            batch = next(self._rows, None)
            if batch is None:
                return False
            self._batch, self._at = batch, 0
            self._keys = stream_keys(batch, self._latest_s)
            self._latest_s = float(self._keys[-1]) if len(batch) else self._latest_s
        return True

    def until(self, other: tuple[float, int], place: int) -> TraceBatch:
        """The rows before the other stream's next row (equal keys: the earlier stream first)."""
        side: Literal["left", "right"] = "right" if place < other[1] else "left"
        stop = max(self._at + 1, int(np.searchsorted(self._keys, other[0], side=side)))
        rows = batches.cut(self._batch, self._at, stop)
        self._at = stop
        return rows
