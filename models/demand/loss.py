"""Quantile (pinball) loss of forecasts."""

from __future__ import annotations

import numpy as np

from data.types import FloatArray


def pinball(observed: FloatArray, quantiles: FloatArray, levels: tuple[float, ...]) -> FloatArray:
    """Twice the quantile loss, averaged over levels: at the median alone it is the absolute error.

    Args:
        observed: Shape (…); NaN = not known.
        quantiles: Shape (…, levels).
        levels: Of the last axis.

    Returns:
        Shape (…); NaN where nothing was observed.
    """
    at = np.array(levels)
    miss = observed[..., None] - quantiles
    return 2.0 * np.asarray(np.maximum(at * miss, (at - 1.0) * miss).mean(axis=-1))
