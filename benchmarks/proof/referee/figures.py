"""Figures of a served assignment, from the times of its requests alone: the same sums for both simulators."""

from __future__ import annotations

import math

import numpy as np

from benchmarks.proof.referee.assignment import Assignment
from data.types import FloatArray
from router.types import BoolArray

Figures = dict[str, float]


def good(assignment: Assignment, times: FloatArray) -> BoolArray:
    """Which dispatches completed within the targets of their class, as their clients see it."""
    met = [
        math.isfinite(e2e) and slo.met(ttft + one.network_s, e2e + one.network_s, one.request.output_tokens)
        for one, slo, (ttft, e2e) in zip(assignment.dispatches, assignment.targets, times.tolist(), strict=True)
    ]
    return np.array(met, dtype=np.bool_)


def figures(assignment: Assignment, times: FloatArray, hit_rate: float) -> Figures:
    """Goodput (tokens/s over the run's own duration), attained share of what was offered, TTFT and TPOT (s), hits.

    Args:
        assignment: What was served.
        times: Shape (dispatches, 2): TTFT and E2E from the arrival at the engine; NaN = not completed.
        hit_rate: Prompt tokens found in a cache over all.
    """
    outputs = np.array([one.request.output_tokens for one in assignment.dispatches], dtype=np.float64)
    network_s = np.array([one.network_s for one in assignment.dispatches])
    met, ttft_s = good(assignment, times), times[:, 0] + network_s
    several = outputs >= 2
    tpot_s = (times[several, 1] - times[several, 0]) / (outputs[several] - 1)
    return {
        "goodput": float(outputs[met].sum() / assignment.duration_s),
        "attained": float(met.sum() / assignment.offered),
        "completed": float(np.isfinite(times[:, 1]).sum()),
        "ttft_p50": float(np.nanmedian(ttft_s)),
        "ttft_p95": float(np.nanpercentile(ttft_s, 95)),
        "tpot_p50": float(np.nanmedian(tpot_s)),
        "tpot_p95": float(np.nanpercentile(tpot_s, 95)),
        "hit_rate": hit_rate,
    }
