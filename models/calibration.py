"""Conformal calibration: one added log-offset for each GPU type, load band and quantile.

The offset is the conformal quantile of held-out errors ``log(observed) − log(predicted)``, so that the
calibrated quantile covers its share of later rows of that group whatever the shape of the errors (split conformal
prediction). Rows only known by a lower bound enter through the product-limit (Kaplan–Meier) estimate. Small groups
borrow their GPU type's offset, small GPU types that of all rows. How groups differ may be learned from fitted rows
too, of which there are many more; the level of all is then set on held-out rows alone. Offsets never fall from one
load band to the next, so that they cannot undo the monotony of the forest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from data.types import FloatArray, IntArray
from models.base import BoolArray

LOAD_BAND_EDGES = (0.5, 2.5, 8.5)
"""Queue depths that part the load bands: idle, light, busy, swamped."""
LOAD_BANDS = ("idle", "light", "busy", "swamped")


def load_band(queue_depth: FloatArray) -> IntArray:
    """Number of the load band for each queue depth; NaN counts as the last band."""
    bands: IntArray = np.searchsorted(np.array(LOAD_BAND_EDGES), queue_depth, side="right")
    return bands


@dataclass(frozen=True, slots=True)
class Calibration:
    """Offsets of one target, shape (GPU types + 1, load bands, quantiles); the last row is for unknown types."""

    offsets: FloatArray

    def offset(self, gpu_code: FloatArray, queue_depth: FloatArray) -> FloatArray:
        """Offset to add to log predictions, shape (rows, quantiles)."""
        # Code −1 (unknown) picks the last row.
        picked: FloatArray = self.offsets[gpu_code.astype(np.int64), load_band(queue_depth)]
        return picked


def calibrate(
    errors: FloatArray,
    censored: BoolArray,
    gpu_code: FloatArray,
    queue_depth: FloatArray,
    weight: FloatArray,
    quantiles: tuple[float, ...],
    gpu_types: int,
    least_rows: int = 100,
) -> Calibration:
    """Offsets from held-out errors.

    Args:
        errors: ``log(observed or bound) − log(predicted quantile)``, shape (rows, quantiles).
        censored: Rows where the truth is at least the bound.
        gpu_code: Code of each row's GPU type.
        queue_depth: Queue depth of each row.
        weight: Weight of each row, above 0.
        quantiles: Levels.
        gpu_types: Number of known GPU types.
        least_rows: Rows of a group below which it borrows.
    """
    offsets = np.zeros((gpu_types + 1, len(LOAD_BANDS), len(quantiles)))
    bands = load_band(queue_depth)
    everything = np.ones(len(errors), dtype=bool)
    for column, level in enumerate(quantiles):
        score = errors[:, column]
        overall = censored_quantile(score, censored, weight, level) if len(errors) >= least_rows else 0.0
        offsets[:, :, column] = overall
        for gpu in range(gpu_types):
            mine = everything & (gpu_code == gpu)
            if mine.sum() < least_rows:
                continue
            typical = censored_quantile(score[mine], censored[mine], weight[mine], level)
            values = np.full(len(LOAD_BANDS), typical)
            for band in range(len(LOAD_BANDS)):
                group = mine & (bands == band)
                if group.sum() >= least_rows:
                    values[band] = censored_quantile(score[group], censored[group], weight[group], level)
            # Bands weigh the same: the few swamped rows must not pay for the many idle ones.
            offsets[gpu, :, column] = rising(values, np.ones(len(LOAD_BANDS)))
    return Calibration(offsets)


def levelled(
    calibration: Calibration,
    errors: FloatArray,
    censored: BoolArray,
    gpu_code: FloatArray,
    queue_depth: FloatArray,
    weight: FloatArray,
    quantiles: tuple[float, ...],
) -> Calibration:
    """The offsets moved together, by quantile, so that each covers its share of these held-out rows.

    The arguments are those of :func:`calibrate`. Differences between groups stay.
    """
    rest = errors - calibration.offset(gpu_code, queue_depth)
    shift = [censored_quantile(rest[:, k], censored, weight, level) for k, level in enumerate(quantiles)]
    return Calibration(calibration.offsets + np.array(shift))


def censored_quantile(scores: FloatArray, censored: BoolArray, weight: FloatArray, level: float) -> float:
    """Conformal quantile of weighted ``scores`` when some are only lower bounds (product-limit estimate).

    The level is raised to ``level·(n + 1)/n`` as split conformal prediction asks. If the estimate never reaches
    the level, the largest score is taken.
    """
    n = len(scores)
    order = np.lexsort((censored, scores))
    share = weight[order] / weight.sum()
    at_risk = np.cumsum(share[::-1])[::-1]
    seen = ~censored[order]
    survival = np.cumprod(np.where(seen, 1.0 - np.minimum(share / at_risk, 1.0), 1.0))
    target = min(level * (n + 1) / n, 1.0)
    reached = np.flatnonzero(seen & (1.0 - survival >= target - 1e-12))
    return float(scores[order[reached[0]]]) if len(reached) else float(scores.max())


def rising(values: FloatArray, weights: FloatArray) -> FloatArray:
    """The nearest non-decreasing sequence in weighted least squares (pool adjacent violators)."""
    blocks: list[tuple[float, float, int]] = []
    for value, weight in zip(values.tolist(), weights.tolist(), strict=True):
        blocks.append((value, weight, 1))
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            (a, wa, na), (b, wb, nb) = blocks[-2:]
            blocks[-2:] = [((a * wa + b * wb) / (wa + wb), wa + wb, na + nb)]
    return np.concatenate([np.full(count, value) for value, _, count in blocks])
