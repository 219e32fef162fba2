"""Compiled passes over the whole table, a slice at a time: forget columns, move to a larger table, collect."""

from __future__ import annotations

import numpy as np

from data.types import IntArray
from router.compiled import compiled
from router.prefix.kernels import CURSOR, ENTRIES, MOVED, ONE, SHIFT, STEP, SWEPT, Tags, bit_number
from router.prefix.slots import ZERO, UInt64Array, erase, find


@compiled
def drop(gone: np.uint64, shard: int, counts: IntArray) -> None:
    """Count down the columns whose bits are taken away."""
    while gone != ZERO:
        bit = gone & (~gone + ONE)
        counts[(shard << 6) + bit_number(bit)] -= 1
        gone ^= bit


@compiled
def sweep(
    table: UInt64Array, tags: Tags, dead: UInt64Array, state: IntArray, counts: IntArray, slots: int
) -> None:
    """Take the columns in ``dead`` (shards) out of the next ``slots`` slots, going round at the end.

    Removals between two slices may shift an entry to where the sweep has been: a column is clean when its count
    says so, not when a round is over.
    """
    size, shift = table.shape[0], np.uint64(state[SHIFT])
    slot = state[SWEPT] & (size - 1)
    while slots > 0:
        gone = table[slot, 1] & dead[tags[slot]]
        if table[slot, 1] != ZERO and gone != ZERO:
            drop(gone, int(tags[slot]), counts)
            table[slot, 1] ^= gone
            if table[slot, 1] == ZERO:
                erase(table, tags, shift, slot)
                state[ENTRIES] -= 1
                slots -= 1
                continue  # another entry may have moved here
        slot = (slot + 1) & (size - 1)
        slots -= 1
    state[SWEPT] = slot


@compiled
def migrate(
    table: UInt64Array,
    tags: Tags,
    old: UInt64Array,
    old_tags: Tags,
    state: IntArray,
    slots: int,
) -> bool:
    """Move about ``slots`` slots of the old table into the new one; whether all are done.

    It starts at an empty slot and stops at empty ones only: a cluster half moved would hide its other half.
    """
    size, shift = old.shape[0], np.uint64(state[SHIFT])
    slot, done = state[CURSOR], state[MOVED]
    while done < size and (slots > 0 or old[slot, 1] != ZERO):
        if old[slot, 1] != ZERO:
            place = -1 - find(table, shift, old[slot, 0])
            table[place, 0] = old[slot, 0]
            table[place, 1] = old[slot, 1]
            tags[place] = old_tags[slot]
            old[slot, 1] = ZERO
        slot = (slot + 1) & (size - 1)
        done += 1
        slots -= 1
    state[CURSOR], state[MOVED] = slot, done
    return bool(done == size)


@compiled
def first_empty(table: UInt64Array) -> int:
    """First empty slot; there always is one."""
    slot = 0
    while table[slot, 1] != ZERO:
        slot += 1
    return slot


@compiled
def collect(table: UInt64Array, tags: Tags, column: int, out: UInt64Array) -> None:
    """Write the hashes that a column holds to ``out``."""
    shard, bit = column >> 6, ONE << np.uint64(column & 63)
    found = 0
    for slot in range(table.shape[0]):
        if tags[slot] == shard and table[slot, 1] & bit != ZERO:
            out[found] = table[slot, 0] - np.uint64(shard) * STEP
            found += 1
