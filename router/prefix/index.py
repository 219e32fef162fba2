"""The fleet's prefix index: every row of the endpoint table, fed by events or own dispatches, in one lookup."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from data.errors import SettingError
from data.types import IntArray
from router.prefix.hash_chain import HashChain
from router.prefix.kernels import FULL, GAP
from router.prefix.lru import LruBlocks
from router.prefix.slots import UInt64Array
from router.prefix.table import PER_BLOCK, SLICE, BlockTable

Hashes = Sequence[int] | UInt64Array
NO_BLOCKS: UInt64Array = np.zeros(0, dtype=np.uint64)
CHUNK = 4096
"""Blocks stored between two looks at the bound."""


@dataclass(frozen=True, slots=True)
class PrefixIndexSettings:
    """Size of the index.

    Attributes:
        max_bytes: Hard bound of the table's memory, at least 64 KiB. At the bound the endpoint that holds most
            loses all its entries; the tables of the approximate mode are bounded by the engines' capacities.
        expected_blocks: Distinct blocks to make room for at start; more is reached by growing.

    Raises:
        SettingError: If a value is out of range.
    """

    max_bytes: int = 1 << 30
    expected_blocks: int = 0

    def __post_init__(self) -> None:
        if self.max_bytes < 1 << 16:
            raise SettingError("out of range", field="max_bytes", value=self.max_bytes, expected=">= 65536")
        if self.expected_blocks < 0:
            raise SettingError(
                "out of range", field="expected_blocks", value=self.expected_blocks, expected=">= 0"
            )


class PrefixIndex:
    """Leading blocks that every endpoint holds.

    Each row has one column of the table. A row that is cleared gets a clean column at once; the old one is swept
    in the background, a slice with each store or :meth:`upkeep`. Events may repeat, come for unknown blocks or in
    any order: none of that is an error. Not thread-safe: all calls come from one thread.

    Args:
        rows: Rows of the endpoint table.
        settings: Size.
    """

    def __init__(self, rows: int, settings: PrefixIndexSettings | None = None) -> None:
        settings = settings or PrefixIndexSettings()
        self.rows = rows
        shards = -(-rows // 64) + 1
        self._table = BlockTable(64 * shards, settings.expected_blocks, settings.max_bytes)
        # A part must fit into what one eviction frees, however small the bound.
        self._chunk = min(CHUNK, self._table.max_entries // 4)
        self._row_of: npt.NDArray[np.int32] = np.full(64 * shards, -1, dtype=np.int32)
        self._column: list[int] = []
        self._lru: dict[int, LruBlocks] = {}
        self._blind: set[int] = set()
        self._answer = np.zeros(rows, dtype=np.int64)
        self._asked: Hashes | None = None
        self.unmatched_removes = 0
        """Removals of blocks that the endpoint was not known to hold."""
        self.missing_parents = 0
        """Stores after a block that the row was not known to hold; it is followed block by block since."""
        self.evictions = 0
        """Endpoints that lost their entries because the index was full."""
        for row in range(rows):
            self._column.append(-1)
            self._assign(row)

    def __len__(self) -> int:
        """Entries of the table, counted from what is really stored."""
        return len(self._table)

    @property
    def max_entries(self) -> int:
        """Entries that the bound of memory allows."""
        return self._table.max_entries

    def memory_bytes(self) -> int:
        """Bytes allocated by the table and by the approximate mode of all rows."""
        return self._table.memory_bytes() + sum(lru.memory_bytes() for lru in list(self._lru.values()))

    def resident(self, row: int) -> int:
        """Blocks held by one row."""
        return int(self._table.counts[self._column[row]])

    def holds(self, row: int, block: int) -> bool:
        """Whether one row holds one block."""
        return self._table.holds(self._column[row], block)

    def held(self, row: int) -> UInt64Array:
        """The blocks of one row, in no particular order; a pass over the whole table."""
        return self._table.held(self._column[row])

    def may_have_gaps(self, row: int) -> bool:
        """Whether the row is followed block by block."""
        column = self._column[row]
        return bool(int(self._table.flags[column >> 6, 1]) >> (column & 63) & 1)

    def ensure_rows(self, rows: int) -> None:
        """Let the index have at least as many rows; new ones are empty."""
        while len(self._row_of) < 64 * (-(-rows // 64) + 1):
            self._table.add_shard()
            self._row_of = np.concatenate([self._row_of, np.full(64, -1, dtype=np.int32)])
        for row in range(self.rows, rows):
            self._column.append(-1)
            self._assign(row)
        self.rows = max(rows, self.rows)
        self._answer = np.zeros(self.rows, dtype=np.int64)
        self._asked = None

    def matched_blocks(self, block_hashes: Hashes) -> IntArray:
        """Leading blocks held without a gap, one entry a row.

        The array is overwritten by the next call with other hashes. Asking again for the same object without a
        change in between costs nothing. An array of ``np.uint64`` is read as it is; any other sequence is copied.
        """
        if block_hashes is self._asked:
            return self._answer
        self._table.match(as_hashes(block_hashes), self._row_of, self._answer)
        self._asked = block_hashes
        return self._answer

    def stored(self, row: int, block_hashes: Hashes, parent: int | None = None) -> None:
        """The row now holds these blocks; ``parent`` is the block before the first one, if that is known."""
        if row in self._blind:
            return
        hashes = as_hashes(block_hashes)
        if len(hashes) > self._chunk:
            for start in range(0, len(hashes), self._chunk):
                self.stored(row, hashes[start : start + self._chunk], int(hashes[start - 1]) if start else parent)
            return
        table, column = self._table, self._column[row]
        answer = table.store(column, hashes, parent)
        if answer == FULL:
            self._make_room(len(hashes))
            column = self._column[row]
            answer = table.store(column, hashes, parent)
        if answer == GAP:
            self.missing_parents += 1
            self.assume_gaps(row)
        if table.working:
            table.upkeep(SLICE + PER_BLOCK * len(hashes))
        self._asked = None

    def removed(self, row: int, block_hashes: Hashes) -> None:
        """The row evicted these blocks."""
        hashes = as_hashes(block_hashes)
        self.unmatched_removes += len(hashes) - self._table.remove(self._column[row], hashes)
        self._asked = None

    def cleared(self, row: int) -> None:
        """The row lost its whole cache, left, or came back as a new incarnation; its capacity stays."""
        if row in self._lru:
            self._lru[row] = LruBlocks(self._lru[row].capacity)
        self._asked = None
        column = self._column[row]
        self._table.retire(column)
        self._row_of[column] = -1
        self._assign(row)

    def assume_gaps(self, row: int) -> None:
        """Follow this row block by block until it is cleared: it may hold a block without the one before."""
        column = self._column[row]
        self._table.flags[column >> 6, 1] |= np.uint64(1 << (column & 63))

    def credit(self, row: int, on: bool) -> None:
        """Whether the row may have prefix credit at all (a decode-only role has none); a change empties it."""
        if on == (row not in self._blind):
            return
        self.cleared(row)
        (self._blind.discard if on else self._blind.add)(row)

    def set_capacity(self, row: int, blocks: int) -> None:
        """Blocks the row's cache holds: bounds the approximate mode, which keeps the most recent ones.

        Raises:
            SettingError: If it is below 1.
        """
        if blocks < 1:
            raise SettingError("out of range", field="capacity blocks", value=blocks, expected=">= 1")
        before = self._lru.get(row)
        if before is not None and before.capacity == blocks:
            return
        lru = self._lru[row] = LruBlocks(blocks)
        if before is not None:
            kept = before.oldest_first()
            # Touched from its end on: the newest must come last.
            lru.touch(kept[len(kept) - min(blocks, len(kept)) :][::-1].copy())
            if len(kept) > blocks:
                self.removed(row, kept[: len(kept) - blocks])

    def events_only(self, row: int) -> None:
        """The row's engine publishes events: forget its capacity and what dispatches let guess."""
        if self._lru.pop(row, None) is not None:
            self.cleared(row)

    def sent(self, row: int, block_hashes: Hashes, now_s: float = 0.0) -> None:
        """A prompt was sent to a row without events: it will hold it. Needs a capacity; does nothing without."""
        lru = self._lru.get(row)
        if lru is None or row in self._blind:
            return
        evicted, new = lru.touch(as_hashes(block_hashes), now_s)
        if len(evicted):
            self._table.remove(self._column[row], evicted)
        self.stored(row, new)
        if self._lru.get(row) is not lru:
            # The index was full and this row the one to go: what came after would be bounded by nothing.
            self.cleared(row)

    def expire(self, row: int, before_s: float) -> int:
        """Forget the blocks sent to a row without events that were last sent before this moment; how many."""
        lru = self._lru.get(row)
        gone = lru.expire(before_s) if lru is not None else NO_BLOCKS
        if len(gone):
            self.removed(row, gone)
        return len(gone)

    def upkeep(self, slots: int = 1 << 16) -> bool:
        """Up to ``slots`` slots of background work (65,536 take about 1 ms); whether more is left."""
        if self._table.working:
            self._table.upkeep(slots)
        return self._table.working

    def _assign(self, row: int) -> None:
        column = self._table.free_column()
        self._column[row] = column
        self._row_of[column] = row
        self._table.flags[column >> 6, 0] |= np.uint64(1 << (column & 63))

    def _make_room(self, blocks: int) -> None:
        table = self._table
        if not table.room(blocks, table.max_entries // 16) and not table.dead.any():
            self._evict()
        while not table.room(blocks):
            table.sweep_all()
            if not table.room(blocks):
                self._evict()

    def _evict(self) -> None:
        row = max(range(self.rows), key=self.resident)
        self.evictions += 1
        self.cleared(row)


def as_hashes(block_hashes: Hashes) -> UInt64Array:
    """The hashes as an array; negative numbers are read as 64-bit two's complement."""
    if isinstance(block_hashes, np.ndarray):
        return block_hashes
    if isinstance(block_hashes, HashChain):
        return block_hashes.array
    try:
        return np.frombuffer(array("Q", block_hashes), dtype=np.uint64)
    except (OverflowError, TypeError):
        return np.array([block & (2**64 - 1) for block in block_hashes], dtype=np.uint64)
