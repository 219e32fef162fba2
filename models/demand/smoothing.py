"""Exponential smoothing of many series at once."""

from __future__ import annotations

import numpy as np
from scipy.signal import lfilter

from data.types import FloatArray


def smooth(values: FloatArray, half_life: float) -> FloatArray:
    """Exponentially weighted mean along the last axis, started at the first value.

    Args:
        values: Shape (series, windows), without NaN.
        half_life: Windows after which a value counts half (above 0).
    """
    gain = 1.0 - 0.5 ** (1.0 / half_life)
    start = (1.0 - gain) * values[..., :1]
    found, _ = lfilter([gain], [1.0, gain - 1.0], values, axis=-1, zi=start)
    return np.asarray(found)


def recent_spread(values: FloatArray) -> FloatArray:
    """How much a series moves from window to window, by then: half recent (12 windows), half all its past.

    Never 0 where the series ever moved.
    """
    moves = np.abs(np.diff(values, axis=-1, prepend=values[..., :1]))
    past = np.cumsum(moves, axis=-1) / np.arange(1, moves.shape[-1] + 1)
    return 0.5 * smooth(moves, 12.0) + 0.5 * past
