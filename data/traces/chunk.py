"""Rows as a format file hands them over: columns with raw stamps and line numbers, before any check."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from data.traces import batches
from data.traces.clock import Stamp, Stamps
from data.traces.hashing import text_hash
from data.types import NO_PARENT, IntArray, TraceBatch

BoolArray = npt.NDArray[np.bool_]
LIMIT = 2**62


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows of one block of lines.

    Attributes:
        lines: Line number of each row.
        stamps: Raw stamps, in the file's unit; nanoseconds since 1970 if ``is_date``.
        rows: The other columns; ``arrival_s`` holds nothing until the clock has run.
        has_ids: Whether the row came with a list of block ids, be it an empty one.
    """

    lines: IntArray
    stamps: Stamps
    is_date: bool
    rows: TraceBatch
    has_ids: BoolArray

    def __len__(self) -> int:
        return len(self.lines)

    def take(self, places: IntArray) -> Chunk:
        """These rows, in this order."""
        if len(places) == len(self) and np.array_equal(places, np.arange(len(self))):
            return self
        return Chunk(
            lines=self.lines[places],
            stamps=self.stamps[places],
            is_date=self.is_date,
            rows=batches.take(self.rows, places),
            has_ids=self.has_ids[places],
        )

    def cut(self, start: int, stop: int) -> Chunk:
        """Rows ``start`` to ``stop``."""
        return Chunk(
            lines=self.lines[start:stop],
            stamps=self.stamps[start:stop],
            is_date=self.is_date,
            rows=batches.cut(self.rows, start, stop),
            has_ids=self.has_ids[start:stop],
        )

    def with_rows(self, **columns: object) -> Chunk:
        """The same chunk with some columns of its rows replaced."""
        return replace(self, rows=batches.with_columns(self.rows, **columns))


def join(chunks: Sequence[Chunk]) -> Chunk:
    """All rows of these chunks, in order."""
    if len(chunks) == 1:
        return chunks[0]
    return Chunk(
        lines=np.concatenate([chunk.lines for chunk in chunks]),
        stamps=np.concatenate([chunk.stamps for chunk in chunks]),
        is_date=chunks[0].is_date,
        rows=batches.join([chunk.rows for chunk in chunks]),
        has_ids=np.concatenate([chunk.has_ids for chunk in chunks]),
    )


def as_stamps(stamps: Sequence[Stamp]) -> Stamps:
    """An array of whole numbers where all are, else of floats; ``OverflowError`` for what fits neither."""
    try:
        return np.frombuffer(array("q", stamps), dtype=np.int64)
    except TypeError:
        return np.array(stamps, dtype=np.float64)


def as_counts(values: Sequence[int]) -> IntArray:
    """An array of 64-bit whole numbers; ``OverflowError`` or ``TypeError`` for anything else."""
    return np.frombuffer(array("q", values), dtype=np.int64)


class ChunkBuilder:
    """Collects rows one by one, for formats and bad lines where speed does not matter."""

    def __init__(self, block_tokens: int = 512) -> None:
        self._block_tokens = block_tokens
        self._lines: list[int] = []
        self._stamps: list[Stamp] = []
        self._input = array("q")
        self._output = array("q")
        self._ids = array("q")
        self._parents = array("q")
        self._thinks = array("d")
        self._hashes = array("Q")
        self._offsets = array("q", [0])
        self._has_ids: list[bool] = []
        self._texts: dict[str, list[str]] = {name: [] for name in batches.TEXT_COLUMNS}
        self.is_date: bool | None = None

    def __len__(self) -> int:
        return len(self._lines)

    def add(
        self,
        line: int,
        stamp: Stamp,
        input_tokens: int,
        output_tokens: int,
        hashes: Sequence[int] | None = None,
        *,
        request_id: int = -1,
        parent_id: int = NO_PARENT,
        think_time_s: float = 0.0,
        texts: Mapping[str, str] | None = None,
    ) -> None:
        """Append one row; ``ValueError`` for counts beyond 62 bits, and then nothing is appended."""
        if not (-LIMIT < input_tokens < LIMIT and -LIMIT < output_tokens < LIMIT and abs(request_id) < LIMIT):
            raise ValueError("number beyond 62 bits")
        self._hashes.extend(hashes or ())
        self._offsets.append(len(self._hashes))
        self._lines.append(line)
        self._stamps.append(stamp)
        self._input.append(input_tokens)
        self._output.append(output_tokens)
        self._ids.append(request_id)
        self._parents.append(parent_id)
        self._thinks.append(think_time_s)
        self._has_ids.append(hashes is not None)
        for name, column in self._texts.items():
            column.append(texts.get(name, "") if texts else "")

    def build(self, *, with_parents: bool = False) -> Chunk:
        """The rows so far as columns."""
        output = np.array(self._output, dtype=np.int64)
        rows = TraceBatch(
            request_id=np.array(self._ids, dtype=np.int64),
            arrival_s=np.zeros(len(output)),
            input_tokens=np.array(self._input, dtype=np.int64),
            output_tokens=output,
            output_budget=output,
            hash_offsets=np.array(self._offsets, dtype=np.int64),
            hashes=np.array(self._hashes, dtype=np.uint64),
            block_tokens=self._block_tokens,
            parent_id=np.array(self._parents, dtype=np.int64) if with_parents else None,
            think_time_s=np.array(self._thinks, dtype=np.float64) if with_parents else None,
            **{name: column if any(column) else () for name, column in self._texts.items()},
        )
        return Chunk(
            lines=np.array(self._lines, dtype=np.int64),
            stamps=as_stamps(self._stamps) if self._stamps else np.zeros(0, dtype=np.int64),
            is_date=bool(self.is_date),
            rows=rows,
            has_ids=np.array(self._has_ids, dtype=np.bool_),
        )


def opaque_ids(ids: Sequence[int | str]) -> tuple[list[int], bool]:
    """Block ids as unsigned 64-bit numbers, and whether any had to be hashed to become one."""
    changed = False
    found = []
    for one in ids:
        if isinstance(one, int) and 0 <= one < 2**64:
            found.append(one)
        else:
            changed = True
            found.append(text_hash(str(one)))
    return found, changed
