"""An open-addressing table of 64-bit keys with one 64-bit word each; a slot whose word is 0 is empty.

A table is an array of shape (slots, 2), slots a power of two: key and word lie side by side, so that a probe
costs one cache line. Collisions go to the next slot; an erased entry is filled by shifting back, so there are no
tombstones and a table never wears out.

numba keeps compiled code per source file: after a change here, clear ``__pycache__`` of the files that call it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from router.compiled import compiled

UInt64Array = npt.NDArray[np.uint64]

FILL = 0.8
"""A table is at most this full."""
ZERO = np.uint64(0)
HALF = np.uint64(32)
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""2^64 divided by the golden ratio, made odd: multiplicative hashing after Knuth, TAOCP vol. 3, section 6.4."""


def slots_for(entries: int) -> int:
    """Least power of two that holds ``entries`` at the allowed fill, at least 1,024."""
    return max(1 << max(int(entries / FILL), 1).bit_length(), 1024)


def shift_of(slots: int) -> np.uint64:
    """Right shift that turns a mixed key into a slot number; ``slots`` is a power of two."""
    return np.uint64(65 - slots.bit_length())


@compiled
def home(key: np.uint64, shift: np.uint64) -> int:
    """Slot where the search for a key begins."""
    return np.int64(((key ^ (key >> HALF)) * GOLDEN) >> shift)  # type: ignore[return-value]


@compiled
def find(table: UInt64Array, shift: np.uint64, key: np.uint64) -> int:
    """Slot of the key, or ``-1 - slot`` of the empty slot where it would go."""
    last = table.shape[0] - 1
    slot = home(key, shift)
    while table[slot, 1] != ZERO:
        if table[slot, 0] == key:
            return slot
        slot = (slot + 1) & last
    return -1 - slot


@compiled
def erase(table: UInt64Array, tags: npt.NDArray[np.uint16], shift: np.uint64, slot: int) -> None:
    """Empty a slot and close the gap: entries behind it move up unless that would put them before their home."""
    last = table.shape[0] - 1
    hole, probe = slot, (slot + 1) & last
    while table[probe, 1] != ZERO:
        start = home(table[probe, 0], shift)
        if ((probe - start) & last) >= ((probe - hole) & last):
            table[hole, 0] = table[probe, 0]
            table[hole, 1] = table[probe, 1]
            tags[hole] = tags[probe]
            hole = probe
        probe = (probe + 1) & last
    table[hole, 1] = ZERO
