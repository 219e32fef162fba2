"""Whether a request chooses from the endpoints with fresh load reports only, or from all; in compiled code."""

from __future__ import annotations

import numpy as np

from data.types import FloatArray, IntArray
from router.compiled import compiled
from router.types import BoolArray

ALL_FRESH, FRESH_ONLY, DEGRADED = range(3)


@compiled
def which_rows(
    rows: IntArray,
    now_s: float,
    stale_after_s: float,
    page_s: FloatArray,
    missing: BoolArray,
    frozen: BoolArray,
    inflight: FloatArray,
    max_seqs: FloatArray,
    lead: int,
) -> int:
    """What ``EndpointStates.prefer_fresh`` chooses from: ``ALL_FRESH`` to ``DEGRADED``."""
    least_other = np.inf
    for row in rows:
        if not _is_fresh(row, now_s, stale_after_s, page_s, missing, frozen):
            least_other = min(least_other, inflight[row])
    if least_other == np.inf:
        return ALL_FRESH
    for row in rows:
        room = inflight[row] < min(max_seqs[row], least_other + lead)
        if room and _is_fresh(row, now_s, stale_after_s, page_s, missing, frozen):
            return FRESH_ONLY
    return DEGRADED


@compiled
def _is_fresh(
    row: int, now_s: float, stale_after_s: float, page_s: FloatArray, missing: BoolArray, frozen: BoolArray
) -> bool:
    """A row without a page has NaN here, which is never recent."""
    return now_s - page_s[row] <= stale_after_s and not missing[row] and not frozen[row]
