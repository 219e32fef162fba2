"""The first requests of another source."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from data.traces.batches import take
from data.types import TraceBatch
from planner.trace_source import TraceSource


@dataclass(frozen=True, slots=True)
class FirstRequests:
    """A source cut short.

    Attributes:
        source: What is cut.
        count: Requests that are left (1 or more).
    """

    source: TraceSource
    count: int

    @property
    def label(self) -> str:
        """The label of what is cut, and where."""
        return f"{self.source.label}, first {self.count:,}"

    @property
    def varies(self) -> str:
        """What varies in what is cut."""
        return self.source.varies

    def batches(self, seed: int, skipped: dict[str, int] | None = None) -> Iterator[TraceBatch]:
        """The requests, in order of arrival."""
        left = self.count
        for batch in self.source.batches(seed, skipped):
            yield take(batch, np.arange(min(left, len(batch))))
            left -= len(batch)
            if left <= 0:
                return
