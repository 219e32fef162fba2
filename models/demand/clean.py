"""A forecast that can be planned with: finite, at least 0, never crossing; and how much had to be mended."""

from __future__ import annotations

import numpy as np

from data.errors import ModelError
from data.types import FloatArray


def clean_quantiles(raw: FloatArray) -> tuple[FloatArray, int]:
    """Clamp to 0, then order along the last axis.

    Ordering never raises the quantile loss (Chernozhukov, Fernández-Val and Galichon 2010).

    Args:
        raw: Shape (…, levels).

    Returns:
        The quantiles, and how many values were below 0.

    Raises:
        ModelError: A value is not finite: no clamp of it is honest.
    """
    finite = np.isfinite(raw)
    if not finite.all():
        raise ModelError(f"{int((~finite).sum())} forecast values are not finite", reason="invalid")
    negative = raw < 0
    return np.sort(np.where(negative, 0.0, raw), axis=-1), int(negative.sum())
