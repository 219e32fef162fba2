"""Prefill times by the catalog's polynomial, for many endpoints at once."""

from __future__ import annotations

import numpy as np

from data.types import FloatArray, IntArray
from router.endpoints import EndpointTable


def prefill_time_s(table: EndpointTable, rows: IntArray, uncached: FloatArray, cached: FloatArray) -> FloatArray:
    """Seconds to prefill ``uncached`` tokens after ``cached`` ones on otherwise idle endpoints.

    ``steps·(p0 + host) + p1·u + p2·u·(c + u/2)`` with as many steps as the token budget of a batch asks for.
    All arrays have the shape of ``rows``.
    """
    steps = np.ceil(uncached / table.batch_token_budget[rows])
    fixed = table.p0[rows] + table.host_overhead[rows]
    seconds: FloatArray = steps * fixed + uncached * (table.p1[rows] + table.p2[rows] * (cached + 0.5 * uncached))
    return seconds


def peak_prefill_tokens_per_s(table: EndpointTable) -> FloatArray:
    """Prefill rate of each endpoint on one full, unloaded chunk: budget / time of that chunk."""
    budget = table.batch_token_budget
    rate: FloatArray = budget / prefill_time_s(table, np.arange(len(table)), budget, np.zeros(len(table)))
    return rate
