"""Histogram of times in logarithmic buckets: fixed memory, quantiles within 1 %."""

from __future__ import annotations

import math

import numpy as np

from data.types import FloatArray
from planner.sim.result import Distribution

LEAST_S = 1e-5
"""Shorter times fall into the first bucket."""
GROWTH = 1.02
"""Ratio of a bucket's edges: its geometric middle is within 1 % of everything in it."""
_SCALE = 1.0 / math.log(GROWTH)
_SHIFT = -math.log(LEAST_S) * _SCALE


class Histogram:
    """Times of one kind, seconds, >= 0."""

    __slots__ = ("_counts", "count", "greatest", "least", "total")

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self.count = 0
        self.total = 0.0
        self.least = math.inf
        self.greatest = -math.inf

    def add(self, value_s: float) -> None:
        """Count one time."""
        bucket = int(math.log(value_s) * _SCALE + _SHIFT) if value_s > LEAST_S else 0
        counts = self._counts
        counts[bucket] = counts.get(bucket, 0) + 1
        self.count += 1
        self.total += value_s
        if value_s < self.least:
            self.least = value_s
        if value_s > self.greatest:
            self.greatest = value_s

    def quantile(self, share: float) -> float:
        """Least value with at least ``share`` of all counts at or below it, within 1 %; NaN when empty."""
        needed = max(1, math.ceil(share * self.count - 1e-9))
        for bucket in sorted(self._counts):
            needed -= self._counts[bucket]
            if needed <= 0:
                middle = float(LEAST_S * GROWTH ** (bucket + 0.5))
                return min(max(middle, self.least), self.greatest)
        return math.nan

    def distribution(self) -> Distribution:
        """Count, exact mean and quantiles."""
        mean = self.total / self.count if self.count else math.nan
        quantiles = [self.quantile(share) for share in (0.5, 0.9, 0.95, 0.99)]
        return Distribution(self.count, mean, *quantiles)

    def edges_and_counts(self) -> tuple[FloatArray, FloatArray]:
        """Edges (one more than counts) of the buckets from the first to the last that is not empty."""
        if not self._counts:
            return np.zeros(0), np.zeros(0)
        first, last = min(self._counts), max(self._counts)
        edges = LEAST_S * GROWTH ** np.arange(first, last + 2, dtype=np.float64)
        counts = np.array([self._counts.get(bucket, 0) for bucket in range(first, last + 1)], dtype=np.float64)
        return edges, counts
