"""The workers that fit one forest together, each on its own share of the rows.

A fit needs a few numbers over *all* rows: means, quantiles, the scale of the errors. They are made of sums that
every worker gives and every worker gets. A worker alone is the special case of one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from data.types import FloatArray

PROBES = 256
"""Points at which one round of :func:`weighted_quantile` looks."""
ROUNDS = 7
"""Each round narrows the quantile's range by ``PROBES``: to 1e-16 of what it was."""


class FitPeers(Protocol):
    """All workers of one fit, seen from one of them. Every worker makes the same calls in the same order."""

    @property
    def parameters(self) -> Mapping[str, object]:
        """What LightGBM must be told of the others."""
        ...

    def gather(self, values: FloatArray) -> FloatArray:
        """Every worker's ``values``, shape (workers, len(values)), in the same order everywhere."""
        ...


class Alone:
    """The only worker of a fit."""

    parameters: Mapping[str, object] = {}

    def gather(self, values: FloatArray) -> FloatArray:
        """The values alone."""
        return values[None, :]


def total(peers: FitPeers, *values: float) -> list[float]:
    """Sums of the values over all workers."""
    sums: list[float] = peers.gather(np.array(values, dtype=np.float64)).sum(axis=0).tolist()
    return sums


def weighted_quantile(values: FloatArray, weight: FloatArray, level: float, peers: FitPeers) -> float:
    """The least value, of any worker, at or below which a share ``level`` of all weight lies.

    Found by narrowing a range, so it is exact to the last bits of that range and costs ``ROUNDS`` exchanges of
    ``PROBES`` numbers, however many rows there are. Some worker must have a row.
    """
    order = np.argsort(values, kind="stable")
    ordered, below = values[order], np.concatenate([[0.0], np.cumsum(weight[order])])
    edges = (ordered[0], -ordered[-1]) if len(ordered) else (np.inf, np.inf)
    outermost = peers.gather(np.array(edges)).min(axis=0)
    low, high = float(outermost[0]), -float(outermost[1])
    wanted = level * total(peers, float(below[-1]))[0]
    for _ in range(ROUNDS):
        probes = np.linspace(low, high, PROBES)
        reached = peers.gather(below[np.searchsorted(ordered, probes, side="right")]).sum(axis=0)
        enough = int(np.argmax(reached >= wanted)) if reached[-1] >= wanted else PROBES - 1
        low, high = float(probes[max(enough - 1, 0)]), float(probes[enough])
    return high
