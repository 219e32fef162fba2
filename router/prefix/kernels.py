"""Compiled steps over the table of block holders: store, remove, look up, sweep, migrate, collect.

A *column* is one bit of holders: column ``c`` is bit ``c & 63`` of shard ``c >> 6``. An entry holds the key
``hash + shard · STEP`` and the mask of the shard's columns that hold the block; its shard stands in ``tags`` as
well, so that a pass over the slots knows which columns it sees. While a table grows, entries lie in the new table
or in the old one, never in both.

``state`` (int64) holds what the steps change: see the names below.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from data.types import IntArray
from router.compiled import compiled
from router.prefix.slots import ZERO, UInt64Array, erase, find

Tags = npt.NDArray[np.uint16]

ENTRIES, LIMIT, SHIFT, OLD_SHIFT, MOVED, CURSOR, SWEPT = range(7)
"""Entries in both tables, and how many there may be; shift of the new and of the old table (0 = no growth under
way); slots of the old table done, and where it is; slot where the sweep is."""
DONE, GAP, FULL = range(3)
"""What a store answers: all is well; the column lacked the parent; nothing was stored for want of room."""

ONE = np.uint64(1)
SIX_BITS = np.uint64(63)
STEP = np.uint64(0xD6E8FEB86659FD93)
DE_BRUIJN = np.uint64(0x03F79D71B4CB0A89)
TOP_SIX = np.uint64(58)
_BITS = np.zeros(64, dtype=np.int64)
for _bit in range(64):
    _BITS[((int(DE_BRUIJN) << _bit) & (2**64 - 1)) >> 58] = _bit


@compiled
def bit_number(bit: np.uint64) -> int:
    """Number of the one bit that is set (multiply with a de Bruijn sequence and look up)."""
    return _BITS[np.int64((bit * DE_BRUIJN) >> TOP_SIX)]  # type: ignore[no-any-return]


@compiled
def mask_of(
    key: np.uint64, table: UInt64Array, old: UInt64Array, shift: np.uint64, old_shift: np.uint64
) -> np.uint64:
    """Holders of a key, 0 if nobody."""
    slot = find(table, shift, key)
    if slot >= 0:
        return table[slot, 1]  # type: ignore[no-any-return]
    if old_shift != ZERO:
        slot = find(old, old_shift, key)
        if slot >= 0:
            return old[slot, 1]  # type: ignore[no-any-return]
    return ZERO


@compiled
def store(
    hashes: UInt64Array,
    parent: np.uint64,
    has_parent: bool,
    column: int,
    table: UInt64Array,
    tags: Tags,
    old: UInt64Array,
    state: IntArray,
    counts: IntArray,
) -> int:
    """The column now holds these blocks: ``DONE``, ``GAP`` or ``FULL``."""
    if state[ENTRIES] + hashes.shape[0] > state[LIMIT]:
        return FULL
    shift, old_shift = np.uint64(state[SHIFT]), np.uint64(state[OLD_SHIFT])
    bit, step = ONE << np.uint64(column & 63), np.uint64(column >> 6) * STEP
    answer = DONE
    if has_parent and mask_of(parent + step, table, old, shift, old_shift) & bit == ZERO:
        answer = GAP
    for i in range(hashes.shape[0]):
        key = hashes[i] + step
        slot = find(table, shift, key)
        if slot >= 0:
            if table[slot, 1] & bit == ZERO:
                table[slot, 1] |= bit
                counts[column] += 1
            continue
        if old_shift != ZERO:
            before = find(old, old_shift, key)
            if before >= 0:
                if old[before, 1] & bit == ZERO:
                    old[before, 1] |= bit
                    counts[column] += 1
                continue
        slot = -1 - slot
        table[slot, 0] = key
        table[slot, 1] = bit
        tags[slot] = column >> 6
        counts[column] += 1
        state[ENTRIES] += 1
    return answer


@compiled
def remove(
    hashes: UInt64Array,
    column: int,
    table: UInt64Array,
    tags: Tags,
    old: UInt64Array,
    old_tags: Tags,
    state: IntArray,
    counts: IntArray,
) -> int:
    """The column no longer holds these blocks; how many of them it was known to hold."""
    shift, old_shift = np.uint64(state[SHIFT]), np.uint64(state[OLD_SHIFT])
    bit, step = ONE << np.uint64(column & 63), np.uint64(column >> 6) * STEP
    known = 0
    for i in range(hashes.shape[0]):
        key = hashes[i] + step
        slot = find(table, shift, key)
        if slot >= 0:
            if table[slot, 1] & bit != ZERO:
                known += 1
                table[slot, 1] ^= bit
                if table[slot, 1] == ZERO:
                    erase(table, tags, shift, slot)
                    state[ENTRIES] -= 1
        elif old_shift != ZERO:
            slot = find(old, old_shift, key)
            if slot >= 0 and old[slot, 1] & bit != ZERO:
                known += 1
                old[slot, 1] ^= bit
                if old[slot, 1] == ZERO:
                    erase(old, old_tags, old_shift, slot)
                    state[ENTRIES] -= 1
    counts[column] -= known
    return known


@compiled
def settle(gone: np.uint64, shard: int, end: int, row_of: npt.NDArray[np.int32], out: IntArray) -> None:
    """The columns in ``gone`` hold exactly the first ``end`` blocks."""
    while gone != ZERO:
        bit = gone & (~gone + ONE)
        out[row_of[(shard << 6) + bit_number(bit)]] = end
        gone ^= bit


@compiled
def match(
    hashes: UInt64Array,
    table: UInt64Array,
    old: UInt64Array,
    state: IntArray,
    flags: UInt64Array,
    row_of: npt.NDArray[np.int32],
    out: IntArray,
) -> None:
    """Leading blocks each row holds without a gap, into ``out`` (rows).

    ``flags`` (shards, 2) are the columns in use and, of these, the ones that may have gaps. The others are
    prefix-closed: along the chain their mask can only lose bits, and the places where it does are found by
    bisection. Those with gaps are followed block by block.
    """
    shift, old_shift = np.uint64(state[SHIFT]), np.uint64(state[OLD_SHIFT])
    n = hashes.shape[0]
    out[:] = 0
    if n == 0:
        return
    for shard in range(flags.shape[0]):
        if flags[shard, 0] == ZERO:
            continue
        step = np.uint64(shard) * STEP
        first = mask_of(hashes[0] + step, table, old, shift, old_shift) & flags[shard, 0]
        holders = first & ~flags[shard, 1]
        start = 0
        while holders != ZERO:
            kept = mask_of(hashes[n - 1] + step, table, old, shift, old_shift) & holders
            if kept == holders:
                settle(holders, shard, n, row_of, out)
                break
            same, other = start, n - 1
            while other - same > 1:
                middle = (same + other) >> 1
                found = mask_of(hashes[middle] + step, table, old, shift, old_shift) & holders
                if found == holders:
                    same = middle
                else:
                    other, kept = middle, found
            settle(holders ^ kept, shard, other, row_of, out)
            start, holders = other, kept
        holders = first & flags[shard, 1]
        for i in range(1, n):
            if holders == ZERO:
                break
            kept = mask_of(hashes[i] + step, table, old, shift, old_shift) & holders
            settle(holders ^ kept, shard, i, row_of, out)
            holders = kept
        settle(holders, shard, n, row_of, out)
