"""A fading histogram of output lengths: bounded memory, constant-time updates, quantiles of mixtures."""

from __future__ import annotations

import math

import numpy as np

from data.types import FloatArray, IntArray

MOST_TOKENS = 1 << 20
"""Lengths beyond this count as this long."""
_STEPS = 192


def _edges() -> IntArray:
    """First length of each bin: one length a bin at first, then 7.5 % wide."""
    spaced = np.geomspace(1, MOST_TOKENS, _STEPS)
    edges: IntArray = np.unique(np.rint(spaced).astype(np.int64))
    return edges


FIRST: IntArray = _edges()
"""Shortest length of each bin, ascending from 1."""
BINS = len(FIRST)
_LAST: FloatArray = np.append(FIRST[1:] - 1, MOST_TOKENS).astype(np.float64)
_FIRST = FIRST.astype(np.float64)
_CENTRE: FloatArray = 0.5 * (_FIRST + _LAST)
_LARGE = 1e100


class LengthHistogram:
    """Shares of lengths in which an observation counts half after ``half_life`` later ones.

    Args:
        half_life: In observations, above 0; infinity = nothing fades.
    """

    __slots__ = ("_growth", "_next", "_sums", "weight")

    def __init__(self, half_life: float) -> None:
        self._growth = math.exp2(1.0 / half_life)
        self._next = 1.0
        self._sums = np.zeros(BINS)
        self.weight = 0.0
        """Observations that count now, faded ones in part."""

    def add(self, bin_index: int) -> None:
        """One observation; O(1)."""
        # Instead of fading all bins each new observation weighs more than the one before.
        self._sums[bin_index] += self._next
        self.weight = self.weight / self._growth + 1.0
        self._next *= self._growth
        if self._next > _LARGE:
            self._sums /= self._next
            self._next = 1.0

    def mixed(self, prior: FloatArray, strength: float) -> FloatArray:
        """Shares of the bins after ``strength`` observations distributed like ``prior`` are added; sums to 1."""
        scale = self._growth / self._next  # makes the newest observation weigh 1
        shares: FloatArray = (self._sums * scale + prior * strength) / (self.weight + strength)
        return shares


def bin_of(tokens: int) -> int:
    """Bin of a length of at least 1; O(log bins)."""
    return int(FIRST.searchsorted(tokens, side="right")) - 1


def quantiles(shares: FloatArray, levels: FloatArray) -> FloatArray:
    """Lengths at the ascending ``levels``, linear within a bin; ascending, within [1, ``MOST_TOKENS``]."""
    below = shares.cumsum()
    below /= below[-1]
    place = np.minimum(below.searchsorted(levels, side="left"), BINS - 1)
    share = shares[place]
    inside = (levels - (below[place] - share)) / np.maximum(share, 1e-300)
    inside = np.minimum(np.maximum(inside, 0.0), 1.0)
    found: FloatArray = _FIRST[place] + inside * (_LAST[place] - _FIRST[place])
    return found


def mean(shares: FloatArray, budget: float) -> float:
    """Mean length when lengths beyond ``budget`` end there."""
    return float(np.minimum(_CENTRE, budget) @ shares)
