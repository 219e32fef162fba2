"""64-bit mixing of block ids: chaining ids of contents into prefix ids, and telling scopes apart.

The mixer is the finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): a bijection of 64 bits, so that ids
that differ stay different under one salt. Chained ids collide with the odds of random 64-bit numbers: below 1e-6
for six million distinct prefixes.
"""

from __future__ import annotations

import hashlib

import numpy as np

from data.types import IntArray, UIntArray

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_M1 = np.uint64(0xBF58476D1CE4E5B9)
_M2 = np.uint64(0x94D049BB133111EB)
MASK = 2**64 - 1


def mix(values: UIntArray) -> UIntArray:
    """SplitMix64 of each value (a copy)."""
    z = values + _GOLDEN
    z ^= z >> np.uint64(30)
    z *= _M1
    z ^= z >> np.uint64(27)
    z *= _M2
    z ^= z >> np.uint64(31)
    return z


def mix_one(value: int) -> int:
    """SplitMix64 of one number in 0 … 2^64 − 1."""
    z = (value + 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def text_hash(text: str) -> int:
    """64 bits of BLAKE2b of a text: the same on every machine and in every run."""
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def salted(values: UIntArray, salt: int) -> UIntArray:
    """Ids of one scope moved to a range of their own; distinct ids stay distinct."""
    return mix(values ^ np.uint64(mix_one(salt & MASK)))


def unit_interval(values: UIntArray) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Numbers in [0, 1) from the upper 53 bits of each value."""
    return (values >> np.uint64(11)).astype(np.float64) * 2.0**-53


def chain(offsets: IntArray, ids: UIntArray) -> UIntArray:
    """Prefix ids from content ids: ``h[i] = mix(mix(id[i]) ^ h[i-1])`` along each row, with ``h[-1] = 0``.

    All rows advance together, one position at a time.
    """
    mixed = mix(ids)
    chained = np.empty_like(mixed)
    lengths = np.diff(offsets)
    rows = np.argsort(-lengths, kind="stable")
    starts, lengths = offsets[:-1][rows], lengths[rows]
    previous = np.zeros(len(rows), dtype=np.uint64)
    alive = len(rows)
    for position in range(int(lengths[0]) if len(lengths) else 0):
        while lengths[alive - 1] <= position:
            alive -= 1
        at = starts[:alive] + position
        previous = mix(mixed[at] ^ previous[:alive])
        chained[at] = previous
    return chained


def are_prefix_ids(offsets: IntArray, ids: UIntArray) -> bool:
    """Whether each id always stands at the same position behind the same id, as ids of prefixes must."""
    if not len(ids):
        return True
    starts = np.repeat(offsets[:-1], np.diff(offsets))
    position = np.arange(len(ids), dtype=np.int64) - starts
    before = np.where(position > 0, np.roll(ids, 1), np.uint64(0))
    order = np.argsort(ids, kind="stable")
    same = ids[order][1:] == ids[order][:-1]
    moved = (position[order][1:] != position[order][:-1]) | (before[order][1:] != before[order][:-1])
    return not bool(np.any(same & moved))
