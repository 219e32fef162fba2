"""An engine's periodic samples joined to starts by clock."""

from __future__ import annotations

import numpy as np

from data.types import FloatArray


def join_series(at_s: FloatArray, sample_s: FloatArray, columns: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The newest sample before each moment, as a router would have seen it.

    Args:
        at_s: Moments, shape (rows,).
        sample_s: Ascending times of the samples on the same clock, shape (samples,).
        columns: Sampled values, shape (samples, columns).

    Returns:
        Values, shape (rows, columns), zero before the first sample; and the age of each in s (0 before the first:
        the engine was empty).
    """
    position = np.searchsorted(sample_s, at_s, side="right") - 1
    known = position >= 0
    found = np.where(known[:, None], columns[np.maximum(position, 0)], 0.0)
    age = np.where(known, at_s - sample_s[np.maximum(position, 0)], 0.0)
    return found, age
