"""Mean output length of each workload class, learned from completed requests."""

from __future__ import annotations

from collections.abc import Iterable

from data.fleet.types import WorkloadClass

PRIOR_COUNT = 20
"""The declared mean of a class weighs as much as this many observed requests."""
MEMORY = 10_000
"""Observations beyond this many make the older ones fade."""


class ClassLengths:
    """Running means; a class starts at the mean that the fleet file declares."""

    def __init__(self, classes: Iterable[WorkloadClass]) -> None:
        self._means = {kind.name: float(kind.expected_output_tokens) for kind in classes}
        self._counts = dict.fromkeys(self._means, PRIOR_COUNT)

    def with_classes(self, classes: Iterable[WorkloadClass]) -> ClassLengths:
        """Running means for another list of classes; what was learned of those that stay is kept."""
        fresh = ClassLengths(classes)
        for name in fresh._means.keys() & self._means.keys():
            fresh._means[name], fresh._counts[name] = self._means[name], self._counts[name]
        return fresh

    def mean(self, workload_class: str) -> float:
        """Expected output tokens of a declared class; ``KeyError`` for another one."""
        return self._means[workload_class]

    def learn(self, workload_class: str, output_tokens: int) -> None:
        """A request of the class completed with that many output tokens; other classes are ignored."""
        count = self._counts.get(workload_class)
        if count is None:
            return
        self._counts[workload_class] = min(count + 1, MEMORY)
        self._means[workload_class] += (output_tokens - self._means[workload_class]) / (count + 1)
