"""Load at each start, rebuilt from the start, first-token and end times of all requests of one run."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from data.types import FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class InFlight:
    """What was there when each request started, itself not counted; shape (rows,) each, in the caller's order.

    Attributes:
        waiting: Requests without a first token.
        waiting_tokens: Their prompt tokens.
        generating: Requests between first token and end.
        tokens: Prompt tokens of both.
        head_s: How long the oldest of the waiting has been at the head: since it came, or since the last first
            token of the run if that was later. 0 with nobody waiting.
    """

    waiting: FloatArray
    waiting_tokens: FloatArray
    generating: FloatArray
    tokens: FloatArray
    head_s: FloatArray


def in_flight(start_s: FloatArray, first_s: FloatArray, end_s: FloatArray, prompt_tokens: FloatArray) -> InFlight:
    """Rebuild the load.

    Args:
        start_s: Starts; equal starts count as in the order given.
        first_s: First tokens (not before the start); infinite = never, then ``end_s`` is when it left the queue.
        end_s: Ends.
        prompt_tokens: Prompt length of each request.
    """
    order = np.argsort(start_s, kind="stable")
    at = start_s[order]
    left_queue = np.where(np.isfinite(first_s), first_s, end_s)
    started = _before(order, prompt_tokens)
    seen = _until(left_queue, prompt_tokens, at)
    gone = _until(end_s, prompt_tokens, at)
    values = (
        started[0] - seen[0],
        started[1] - seen[1],
        seen[0] - gone[0],
        started[1] - gone[1],
        _head_age(at, left_queue[order]),
    )
    placed = [np.empty(len(order)) for _ in values]
    for column, value in zip(placed, values, strict=True):
        column[order] = np.maximum(value, 0.0)
    return InFlight(*placed)


def _before(order: IntArray, tokens: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Requests and tokens that started before each one, in the order of starts."""
    total = np.concatenate([[0.0], np.cumsum(tokens[order])])[:-1]
    return np.arange(len(order), dtype=np.float64), total


def _until(event_s: FloatArray, tokens: FloatArray, at: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Requests and tokens whose event came before each of ``at``."""
    by_time = np.argsort(event_s, kind="stable")
    count = np.searchsorted(event_s[by_time], at, side="left")
    total = np.concatenate([[0.0], np.cumsum(tokens[by_time])])
    return count.astype(np.float64), total[count]


def _head_age(at: FloatArray, left_s: FloatArray) -> FloatArray:
    waiting: list[tuple[float, float]] = []
    events = np.sort(left_s)
    last = np.concatenate([[-np.inf], events])[np.searchsorted(events, at, side="right")]
    ages = np.zeros(len(at))
    for row, (now, left) in enumerate(zip(at.tolist(), left_s.tolist(), strict=True)):
        while waiting and waiting[0][1] <= now:
            heapq.heappop(waiting)
        if waiting:
            ages[row] = now - max(waiting[0][0], float(last[row]))
        heapq.heappush(waiting, (now, left))
    return ages
