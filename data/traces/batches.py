"""Row operations on trace batches: take, cut, join, and text columns that are held as codes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import overload

import numpy as np

from data.types import NO_PARENT, FloatArray, IntArray, TraceBatch, UIntArray

TEXT_COLUMNS = ("model", "tenant", "workload_class", "origin", "session_id")


class TextColumn(Sequence[str]):
    """Texts as codes into a vocabulary: 4 bytes a row, and rows are taken without touching the texts."""

    __slots__ = ("codes", "vocabulary")

    def __init__(self, codes: np.ndarray[tuple[int], np.dtype[np.int32]], vocabulary: Sequence[str]) -> None:
        self.codes = codes
        self.vocabulary = vocabulary

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> TextColumn: ...
    def __getitem__(self, index: int | slice) -> str | TextColumn:
        if isinstance(index, slice):
            return TextColumn(self.codes[index], self.vocabulary)
        return self.vocabulary[int(self.codes[index])]

    def __len__(self) -> int:
        return len(self.codes)

    def __iter__(self) -> Iterator[str]:
        words = self.vocabulary
        return (words[code] for code in self.codes.tolist())

    def take(self, rows: IntArray) -> TextColumn:
        """The texts of these rows."""
        return TextColumn(self.codes[rows], self.vocabulary)


def ragged_take(offsets: IntArray, values: UIntArray, rows: IntArray) -> tuple[IntArray, UIntArray]:
    """Offsets and values of the lists of these rows, packed."""
    lengths = np.diff(offsets)[rows]
    packed = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum(lengths, out=packed[1:])
    source = np.repeat(offsets[:-1][rows] - packed[:-1], lengths)
    source += np.arange(len(source), dtype=np.int64)
    return packed, values[source]


def take(batch: TraceBatch, rows: IntArray) -> TraceBatch:
    """These rows, in this order."""
    if len(rows) == len(batch) and np.array_equal(rows, np.arange(len(batch))):
        return batch
    offsets, hashes = ragged_take(batch.hash_offsets, batch.hashes, rows)
    return TraceBatch(
        request_id=batch.request_id[rows],
        arrival_s=batch.arrival_s[rows],
        input_tokens=batch.input_tokens[rows],
        output_tokens=batch.output_tokens[rows],
        output_budget=batch.output_budget[rows],
        hash_offsets=offsets,
        hashes=hashes,
        block_tokens=batch.block_tokens,
        parent_id=None if batch.parent_id is None else batch.parent_id[rows],
        think_time_s=None if batch.think_time_s is None else batch.think_time_s[rows],
        model=take_text(batch.model, rows),
        tenant=take_text(batch.tenant, rows),
        workload_class=take_text(batch.workload_class, rows),
        origin=take_text(batch.origin, rows),
        session_id=take_text(batch.session_id, rows),
    )


def take_text(column: Sequence[str], rows: IntArray) -> Sequence[str]:
    """The texts of these rows; an empty column stays empty."""
    if not len(column):
        return ()
    if isinstance(column, TextColumn):
        return column.take(rows)
    return [column[row] for row in rows.tolist()]


def cut(batch: TraceBatch, start: int, stop: int) -> TraceBatch:
    """Rows ``start`` to ``stop`` as views, nothing copied but the offsets."""
    if start == 0 and stop >= len(batch):
        return batch
    low, high = int(batch.hash_offsets[start]), int(batch.hash_offsets[min(stop, len(batch))])
    return TraceBatch(
        request_id=batch.request_id[start:stop],
        arrival_s=batch.arrival_s[start:stop],
        input_tokens=batch.input_tokens[start:stop],
        output_tokens=batch.output_tokens[start:stop],
        output_budget=batch.output_budget[start:stop],
        hash_offsets=batch.hash_offsets[start : stop + 1] - low,
        hashes=batch.hashes[low:high],
        block_tokens=batch.block_tokens,
        parent_id=None if batch.parent_id is None else batch.parent_id[start:stop],
        think_time_s=None if batch.think_time_s is None else batch.think_time_s[start:stop],
        model=batch.model[start:stop],
        tenant=batch.tenant[start:stop],
        workload_class=batch.workload_class[start:stop],
        origin=batch.origin[start:stop],
        session_id=batch.session_id[start:stop],
    )


def join(batches: Sequence[TraceBatch]) -> TraceBatch:
    """All rows of these batches (at least one batch), in order; they must agree in the block size."""
    filled = [batch for batch in batches if len(batch)] or list(batches[:1])
    if len(filled) == 1:
        return filled[0]
    starts = np.cumsum([0, *(len(batch.hashes) for batch in filled)])
    offsets = [batch.hash_offsets[:-1] + start for batch, start in zip(filled, starts, strict=False)]
    return TraceBatch(
        request_id=np.concatenate([batch.request_id for batch in filled]),
        arrival_s=np.concatenate([batch.arrival_s for batch in filled]),
        input_tokens=np.concatenate([batch.input_tokens for batch in filled]),
        output_tokens=np.concatenate([batch.output_tokens for batch in filled]),
        output_budget=np.concatenate([batch.output_budget for batch in filled]),
        hash_offsets=np.concatenate([*offsets, starts[-1:]]).astype(np.int64, copy=False),
        hashes=np.concatenate([batch.hashes for batch in filled]),
        block_tokens=filled[0].block_tokens,
        parent_id=_join_parents(filled),
        think_time_s=_join_thinks(filled),
        **{name: _join_text(filled, name) for name in TEXT_COLUMNS},
    )


def _join_parents(batches: Sequence[TraceBatch]) -> IntArray | None:
    if all(batch.parent_id is None for batch in batches):
        return None
    blank = [np.full(len(batch), NO_PARENT, dtype=np.int64) for batch in batches]
    return np.concatenate(
        [gap if batch.parent_id is None else batch.parent_id for batch, gap in zip(batches, blank, strict=True)]
    )


def _join_thinks(batches: Sequence[TraceBatch]) -> FloatArray | None:
    if all(batch.think_time_s is None for batch in batches):
        return None
    return np.concatenate(
        [np.zeros(len(batch)) if batch.think_time_s is None else batch.think_time_s for batch in batches]
    )


def _join_text(batches: Sequence[TraceBatch], name: str) -> Sequence[str]:
    columns: list[Sequence[str]] = [getattr(batch, name) for batch in batches]
    if not any(len(column) for column in columns):
        return ()
    words: list[str] = []
    for batch, column in zip(batches, columns, strict=True):
        words.extend(column if len(column) else ("",) * len(batch))
    return words


def empty_batch(block_tokens: int = 512) -> TraceBatch:
    """A batch without rows."""
    none = np.zeros(0, dtype=np.int64)
    return TraceBatch(
        request_id=none,
        arrival_s=np.zeros(0),
        input_tokens=none,
        output_tokens=none,
        output_budget=none,
        hash_offsets=np.zeros(1, dtype=np.int64),
        hashes=np.zeros(0, dtype=np.uint64),
        block_tokens=block_tokens,
    )


def with_columns(batch: TraceBatch, **columns: object) -> TraceBatch:
    """The same batch with some columns replaced."""
    return replace(batch, **columns)  # type: ignore[arg-type]
