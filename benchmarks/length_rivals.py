"""What output-length predictors are measured against: running means and quantiles of groups, and the floor."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable

import numpy as np

from data.traces.servegen_lengths import Lengths
from data.types import FloatArray
from models.output_length import LengthQuery

LEVELS = np.array([0.1, 0.5, 0.9])
EDGES = np.array([256, 1024, 4096, 16384, 65536])
KEPT = 5000
"""Newest lengths of a group that its empirical quantiles are over."""

Key = Callable[[LengthQuery], object]


class RunningMean:
    """Mean output of a group so far; of everything while the group is new."""

    def __init__(self, key: Key) -> None:
        self._key = key
        self._sums: dict[object, tuple[int, float]] = {None: (1, 256.0)}

    def predict(self, query: LengthQuery) -> FloatArray:
        """Mean of the group, three times."""
        count, total = self._sums.get(self._key(query), self._sums[None])
        return np.full(len(LEVELS), total / count)

    def observe(self, query: LengthQuery, tokens: int) -> None:
        """A request has completed with this length."""
        for key in (self._key(query), None):
            count, total = self._sums.get(key, (0, 0.0))
            self._sums[key] = (count + 1, total + tokens)


class RunningQuantiles:
    """Empirical quantiles of a group's newest lengths, renewed after every twentieth of them."""

    def __init__(self, key: Key) -> None:
        self._key = key
        self._kept: dict[object, deque[int]] = defaultdict(lambda: deque(maxlen=KEPT))
        self._new: dict[object, int] = defaultdict(int)
        self._found: dict[object, FloatArray] = {}

    def predict(self, query: LengthQuery) -> FloatArray:
        """Quantiles of the group; of everything while it is new."""
        key = self._key(query) if len(self._kept[self._key(query)]) >= 20 else None
        kept = self._kept[key]
        if not kept:
            return np.full(len(LEVELS), 256.0)
        if key not in self._found or self._new[key] > len(kept) / 20:
            self._found[key], self._new[key] = np.quantile(np.array(kept), LEVELS), 0
        return self._found[key]

    def observe(self, query: LengthQuery, tokens: int) -> None:
        """A request has completed with this length."""
        for key in (self._key(query), None):
            self._kept[key].append(tokens)
            self._new[key] += 1


class KnownDistribution:
    """The client's own distribution of the hour, which no router knows; it gives the floor of the loss."""

    def __init__(self, lengths: Lengths) -> None:
        self._lengths = lengths
        self._found: dict[tuple[str, int], FloatArray] = {}
        self._rng = np.random.default_rng(0)

    def predict(self, query: LengthQuery) -> FloatArray:
        """Quantiles of 20,000 draws."""
        key = query.tenant, int(query.now_s // 3600)
        if key not in self._found:
            _, tokens = self._lengths.draw(query.tenant, query.now_s, self._rng, 20_000)
            self._found[key] = np.quantile(tokens, LEVELS)
        return self._found[key]


def class_key(query: LengthQuery) -> object:
    return query.workload_class


def bucket_key(query: LengthQuery) -> object:
    return query.workload_class, int(EDGES.searchsorted(query.input_tokens, side="right"))
