"""Taking the engines' load reports into the endpoint table without losing what was sent meanwhile."""

from __future__ import annotations

import numpy as np

from data.types import FloatArray, IntArray
from router.endpoints import EndpointTable
from router.leases import LeaseBook


def apply_reports(
    table: EndpointTable,
    book: LeaseBook,
    rows: IntArray,
    sampled_at_s: float,
    running: FloatArray,
    waiting: FloatArray,
    kv_use: FloatArray,
) -> int:
    """Write one report of each endpoint in ``rows``; all were sampled at ``sampled_at_s``.

    ``sent_*_since_report`` afterwards counts exactly the open dispatches made after the sample: a dispatch that
    the engine had already counted is not counted twice, one made while the report was under way is not lost.

    Args:
        table: Changed in place.
        book: The accounting of the same table.
        rows: Row numbers, each at most once; shape (k,).
        sampled_at_s: When the engines counted, not when the report arrived.
        running: Requests in the batch; NaN = missing, never 0. Shape (k,), like the next two.
        waiting: Requests in the engine's queue.
        kv_use: Share of KV blocks in use, 0 to 1.

    Returns:
        Rows that were written. A row is left alone when its sample is not newer than the last one, when it is
        older than the book remembers dispatches, or when all three of its values are missing (then the old
        report keeps ageing).
    """
    if sampled_at_s < book.horizon_s:
        return 0
    fresh = ~(table.reported_at_s[rows] >= sampled_at_s)
    total = running + waiting + kv_use
    if np.isnan(total).any():
        fresh &= ~(np.isnan(running) & np.isnan(waiting) & np.isnan(kv_use))
    if not fresh.all():
        rows, running, waiting, kv_use = rows[fresh], running[fresh], waiting[fresh], kv_use[fresh]
    whole = len(rows) == len(table)
    table.reported_at_s[rows] = sampled_at_s
    table.running[rows] = running
    table.waiting[rows] = waiting
    table.kv_use[rows] = kv_use
    table.sent_since_report[rows] = 0.0
    table.sent_uncached_since_report[rows] = 0.0
    reported = None if whole else set(rows.tolist())
    for lease in book.opened_after(sampled_at_s):
        if reported is None or lease.endpoint in reported:
            table.sent_since_report[lease.endpoint] += 1
            if not lease.decoding:
                table.sent_uncached_since_report[lease.endpoint] += lease.uncached_tokens
    if whole:
        book.forget_dispatches(sampled_at_s)
    return len(rows)
