"""Compiled passes over the endpoint table for the gate; the equations are those of ``router.slomax.gate``."""

from __future__ import annotations

import numpy as np

from data.types import FloatArray, IntArray
from router.compiled import compiled
from router.types import BoolArray

HEAD_FLOOR = 0.1
"""Share of the backlog that is left at least, however long the first one has been worked on."""
LEAST_DUTY = 0.05
"""Prefill gets this share of the time at least."""
LEAST_GAIN = 0.05
"""Slack grows by this share of the time at least, however slow the steps are."""
UNPACED = 0.0
"""In place of a TPOT target: nothing is paced."""


@compiled
def look(
    now_s: float,
    passed_s: float,
    tpot_s: float,
    burst_s: float,
    kv_ceiling: float,
    waiting_prefill_s: FloatArray,
    prefill_since_s: FloatArray,
    inflight_uncached_tokens: FloatArray,
    inflight: FloatArray,
    inflight_tokens: FloatArray,
    decoding: FloatArray,
    running: FloatArray,
    waiting: FloatArray,
    kv_use: FloatArray,
    sent_since_report: FloatArray,
    sent_uncached_since_report: FloatArray,
    kv_capacity_tokens: FloatArray,
    max_seqs: FloatArray,
    d0: FloatArray,
    d1: FloatArray,
    d2: FloatArray,
    host_overhead: FloatArray,
    backlog_s: FloatArray,
    step_s: FloatArray,
    level: FloatArray,
    free: BoolArray,
    idle: BoolArray,
) -> None:
    """Equations (1), (4) and (5) for every endpoint; the last five arrays are written."""
    for i in range(len(level)):
        waits = waiting_prefill_s[i]
        spent = now_s - prefill_since_s[i] if inflight_uncached_tokens[i] > 0 else 0.0
        backlog_s[i] = max(waits - spent, HEAD_FLOOR * waits, 0.5 * (spent - waits))
        seen = running[i] + waiting[i] + sent_since_report[i]
        if not seen >= inflight[i]:  # also where nothing was reported
            seen = inflight[i]
        kv = kv_use[i] * kv_capacity_tokens[i] + sent_uncached_since_report[i]
        if np.isnan(kv):
            kv = inflight_tokens[i]
        step = d0[i] + d1[i] * decoding[i] + d2[i] * kv + host_overhead[i]
        step_s[i] = step
        free[i] = seen < max_seqs[i] and kv < kv_ceiling * kv_capacity_tokens[i]
        idle[i] = inflight[i] <= 0
        if tpot_s > UNPACED:
            duty = min(max(1.0 - step / tpot_s, LEAST_DUTY), 1.0)
            level[i] = min(level[i] + passed_s * duty, burst_s)


@compiled
def grow_slack(
    now_s: float,
    tpot_s: float,
    step_s: FloatArray,
    idle: BoolArray,
    count: FloatArray,
    slack_s: FloatArray,
    since_s: FloatArray,
) -> None:
    """First and last line of equation (6) of ``router.slomax.shield``; a ``tpot_s`` of 0 shields nothing.

    ``slack_s`` is as of ``since_s``; both are written. An endpoint with nothing in flight bears everything.
    """
    for i in range(len(slack_s)):
        if count[i] > 0.0 and tpot_s > UNPACED and not idle[i]:
            slack_s[i] += max(now_s - since_s[i], 0.0) * max(tpot_s / step_s[i] - 1.0, LEAST_GAIN)
        else:
            slack_s[i] = np.inf
        since_s[i] = now_s


@compiled
def open_mask(
    ceiling_s: float,
    paced: bool,
    bound_request: bool,
    most_long: float,
    backlog_s: FloatArray,
    level: FloatArray,
    bound: FloatArray,
    long: FloatArray,
    free: BoolArray,
    idle: BoolArray,
    mask: BoolArray,
) -> bool:
    """Which endpoints are open to one kind of request, into ``mask``; gives whether any is.

    ``most_long``: an endpoint with that many long prefills is closed; infinite for a short one.
    """
    found = False
    for i in range(len(mask)):
        fits = free[i] and backlog_s[i] < ceiling_s and long[i] < most_long
        if paced and level[i] <= 0.0 and (bound_request or bound[i] != 0.0):
            fits = False
        mask[i] = fits or idle[i]
        found = found or mask[i]
    return found


@compiled
def prefill_into(
    input_tokens: float, hits: FloatArray, p1: FloatArray, p2: FloatArray, seconds: FloatArray
) -> None:
    """Equation (2) for every endpoint."""
    for i in range(len(seconds)):
        uncached = input_tokens - hits[i]
        seconds[i] = uncached * (p1[i] + p2[i] * (hits[i] + 0.5 * uncached))


@compiled
def least_of(
    rows: IntArray,
    prefill_s: FloatArray,
    p1: FloatArray,
    rtt_s: FloatArray,
    d0: FloatArray,
    host_overhead: FloatArray,
) -> tuple[float, float, float, float]:
    """Least prefill time, time per token, round trip and idle step over ``rows`` (not empty)."""
    prefill = token = rtt = step = np.inf
    for k in range(len(rows)):
        i = rows[k]
        prefill = min(prefill, prefill_s[i])
        token = min(token, p1[i])
        rtt = min(rtt, rtt_s[i])
        step = min(step, d0[i] + host_overhead[i])
    return prefill, token, rtt, step


@compiled
def picked(
    rows: IntArray,
    mask: BoolArray,
    left_s: float,
    backlog_s: FloatArray,
    prefill_s: FloatArray,
    step_s: FloatArray,
    rtt_s: FloatArray,
    slack_s: FloatArray,
) -> IntArray:
    """Those of ``rows`` that the mask lets through, with a predicted TTFT, equation (3), within ``left_s``.

    The answers there can bear the prefill: it is within ``slack_s``.
    """
    found = np.empty(len(rows), dtype=np.int64)
    count = 0
    for k in range(len(rows)):
        i = rows[k]
        ttft_s = rtt_s[i] + backlog_s[i] + prefill_s[i] + step_s[i]
        if mask[i] and ttft_s <= left_s and prefill_s[i] <= slack_s[i]:
            found[count] = i
            count += 1
    return found[:count]
