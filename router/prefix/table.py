"""One growing table of block holders, by column, within a hard bound of bytes and without long pauses."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from data.errors import SettingError
from data.types import IntArray
from router.prefix import kernels, upkeep
from router.prefix.kernels import CURSOR, ENTRIES, LIMIT, MOVED, OLD_SHIFT, SHIFT
from router.prefix.slots import FILL, UInt64Array, shift_of, slots_for

SLOT_BYTES = 18
"""Key, mask and shard of one slot."""
SLICE = 1024
PER_BLOCK = 32
"""Slots of upkeep done with each store: ``SLICE`` plus ``PER_BLOCK`` for each block. A table is 80 % full when it
grows to double size, so 4 a block would do; a sweep must be round within the last sixteenth of the room (20)."""
PREPARE_FILL = 0.75
"""From this fill on the memory of the next table is got ready, a slice with each store."""
READY_ROWS, READY_ROWS_PER_SLOT = 1 << 14, 1.25
"""Slots of the next table got ready with each store, and more for each slot of upkeep: double size must be ready
before the fill has gone from 0.75 to 0.8, which takes 40 slots a block."""
NO_TABLE: UInt64Array = np.zeros((1, 2), dtype=np.uint64)
NO_TAGS: kernels.Tags = np.zeros(1, dtype=np.uint16)


class BlockTable:
    """Which columns hold which block.

    Growing allocates a table of double size and moves entries over a slice at a time, with each store; for that
    while both tables exist, so the last doubling is done only if one and a half times its size fits the bound.

    Args:
        columns: Columns to begin with (multiple of 64).
        expected_blocks: Distinct blocks to make room for at once.
        max_bytes: Hard bound of the memory of the tables (at least 64 KiB).

    Raises:
        SettingError: If the bound is too small.
    """

    def __init__(self, columns: int, expected_blocks: int = 0, max_bytes: int = 1 << 30) -> None:
        if max_bytes < 1 << 16:
            raise SettingError("prefix index too small", field="max_bytes", value=max_bytes, expected=">= 65536")
        most = 1 << (max_bytes // SLOT_BYTES).bit_length() - 1
        size = min(slots_for(expected_blocks), most)
        # Reached by growing, a size must leave room for the table before it.
        self._most = most if size == most or 3 * most * SLOT_BYTES // 2 <= max_bytes else most // 2
        self._table, self._tags = _empty(size)
        # The first touch of a page costs up to a millisecond: it is paid here, not by a store.
        self._table.fill(0)
        self._next, self._next_tags, self._ready = NO_TABLE, NO_TAGS, 0
        self._old, self._old_tags = NO_TABLE, NO_TAGS
        self._state: IntArray = np.zeros(7, dtype=np.int64)
        self._state[SHIFT] = int(shift_of(size))
        self.working = False
        """Whether growth or sweeping is under way."""
        self.counts: IntArray = np.zeros(columns, dtype=np.int64)
        """Blocks held by each column, kept with every step."""
        self.flags: UInt64Array = np.zeros((columns // 64, 2), dtype=np.uint64)
        """Columns in use, and those of them that may have gaps."""
        self.dead: UInt64Array = np.zeros(columns // 64, dtype=np.uint64)
        """Columns that are being swept."""
        self._set_limit()

    def __len__(self) -> int:
        """Distinct (block, shard) entries; those of swept columns count until the sweep has passed."""
        return int(self._state[ENTRIES])

    @property
    def max_entries(self) -> int:
        """Entries that the bound of memory allows."""
        return int(self._most * FILL)

    def memory_bytes(self) -> int:
        """Bytes allocated."""
        tables = (self._table, self._tags, self._next, self._next_tags, self._old, self._old_tags)
        return sum(array.nbytes for array in (*tables, self.counts, self.flags, self.dead))

    def add_shard(self) -> None:
        """64 more columns."""
        self.counts = np.concatenate([self.counts, np.zeros(64, dtype=np.int64)])
        self.flags = np.concatenate([self.flags, np.zeros((1, 2), dtype=np.uint64)])
        self.dead = np.concatenate([self.dead, np.zeros(1, dtype=np.uint64)])

    def room(self, blocks: int, spare: int = 0) -> bool:
        """Make room for as many new entries, growing if need be; ``False`` if less than ``spare`` is left then."""
        needed = len(self) + blocks
        if needed + spare > self.max_entries:
            return False
        while needed > int(len(self._table) * FILL):
            self._finish_growth()
            self._grow()
        if needed > int(len(self._table) * PREPARE_FILL) and self._may_prepare():
            self._next, self._next_tags = _empty(2 * len(self._table))
            self.working = True
        self._set_limit()
        return True

    def store(self, column: int, hashes: UInt64Array, parent: int | None = None) -> int:
        """The column now holds these blocks; answers one of the words of :mod:`router.prefix.kernels`.

        ``FULL`` = nothing was stored: make :meth:`room` first.
        """
        return kernels.store(
            hashes,
            np.uint64(parent or 0),
            parent is not None,
            column,
            self._table,
            self._tags,
            self._old,
            self._state,
            self.counts,
        )

    def remove(self, column: int, hashes: UInt64Array) -> int:
        """The column no longer holds these; how many of them it held."""
        return kernels.remove(
            hashes, column, self._table, self._tags, self._old, self._old_tags, self._state, self.counts
        )

    def match(self, hashes: UInt64Array, row_of: npt.NDArray[np.int32], out: IntArray) -> None:
        """Leading blocks held by each row into ``out``; ``row_of`` names the row of each column in use."""
        kernels.match(hashes, self._table, self._old, self._state, self.flags, row_of, out)

    def holds(self, column: int, block: int) -> bool:
        """Whether one column holds one block."""
        key = np.uint64((block + (column >> 6) * int(kernels.STEP)) & (2**64 - 1))
        shift, before = np.uint64(self._state[SHIFT]), np.uint64(self._state[OLD_SHIFT])
        return bool(int(kernels.mask_of(key, self._table, self._old, shift, before)) >> (column & 63) & 1)

    def upkeep(self, slots: int) -> None:
        """Up to ``slots`` slots of growth under way and of sweeping, as far as there is any."""
        if self._state[OLD_SHIFT]:
            self._migrate(slots)
        elif self._ready < len(self._next):
            self._prepare(READY_ROWS + int(READY_ROWS_PER_SLOT * slots))
        if self.dead.any():
            upkeep.sweep(self._table, self._tags, self.dead, self._state, self.counts, slots)
        self._free_clean()

    def retire(self, column: int) -> None:
        """Take a column out of use; it is free again when the sweep has passed, at once if it holds nothing."""
        shard, bit = column >> 6, np.uint64(1 << (column & 63))
        self.flags[shard] &= ~bit
        if self.counts[column]:
            self.dead[shard] |= bit
            self.working = True

    def free_column(self) -> int:
        """Lowest column that is neither in use nor being swept; sweeps all at once if there is none."""
        taken = self.flags[:, 0] | self.dead
        for shard in np.flatnonzero(~taken).tolist():
            free = ~int(taken[shard]) & (2**64 - 1)
            return 64 * int(shard) + (free & -free).bit_length() - 1
        self.sweep_all()
        return self.free_column()

    def sweep_all(self) -> None:
        """Take all dead columns out at once: tens of milliseconds for millions of slots."""
        self._finish_growth()
        upkeep.sweep(self._table, self._tags, self.dead, self._state, self.counts, len(self._table))
        self._free_clean()

    def held(self, column: int) -> UInt64Array:
        """The blocks of one column, in no particular order."""
        self._finish_growth()
        out = np.empty(int(self.counts[column]), dtype=np.uint64)
        upkeep.collect(self._table, self._tags, column, out)
        return out

    def _grow(self) -> None:
        if len(self._next) == 1:
            self._next, self._next_tags = _empty(2 * len(self._table))
        size = len(self._next)
        self.working = True
        self._old, self._old_tags = self._table, self._tags
        self._table, self._tags = self._next, self._next_tags
        self._next, self._next_tags, self._ready = NO_TABLE, NO_TAGS, 0
        state = self._state
        state[OLD_SHIFT] = state[SHIFT]
        state[SHIFT] = int(shift_of(size))
        state[MOVED], state[CURSOR] = 0, upkeep.first_empty(self._old)
        self._set_limit()

    def _may_prepare(self) -> bool:
        alone = len(self._next) == 1 and not self._state[OLD_SHIFT]
        return alone and 2 * len(self._table) <= self._most

    def _prepare(self, rows: int) -> None:
        """Touch the memory of the next table: the kernel hands it out, zeroed, page by page."""
        self._next[self._ready : self._ready + rows] = 0
        self._next_tags[self._ready : self._ready + rows] = 0
        self._ready = min(self._ready + rows, len(self._next))

    def _set_limit(self) -> None:
        # The last sixteenth of the bound is for what comes while a sweep makes room.
        most = self.max_entries - (0 if self.dead.any() else self.max_entries // 16)
        fill = PREPARE_FILL if self._may_prepare() else FILL
        self._state[LIMIT] = min(int(len(self._table) * fill), most)

    def _free_clean(self) -> None:
        for shard in np.flatnonzero(self.dead).tolist():
            counts = self.counts[64 * shard : 64 * shard + 64]
            clean = np.packbits(counts == 0, bitorder="little").view(np.uint64)[0]
            self.dead[shard] &= ~clean
        growing = bool(self._state[OLD_SHIFT]) or self._ready < len(self._next) > 1
        self.working = growing or bool(self.dead.any())
        self._set_limit()

    def _migrate(self, slots: int) -> None:
        if upkeep.migrate(self._table, self._tags, self._old, self._old_tags, self._state, slots):
            self._old, self._old_tags = NO_TABLE, NO_TAGS
            self._state[OLD_SHIFT] = 0

    def _finish_growth(self) -> None:
        if self._state[OLD_SHIFT]:
            self._migrate(len(self._old))


def _empty(size: int) -> tuple[UInt64Array, kernels.Tags]:
    return np.zeros((size, 2), dtype=np.uint64), np.zeros(size, dtype=np.uint16)
