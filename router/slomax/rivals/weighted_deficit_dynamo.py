"""Weighted deficit round robin over policy classes, as in Dynamo: family × bucket of uncached prompt length.

Each policy class has its own queue, limit and quantum. A round adds the quantum to each class that waits, and it
sends while its deficit covers the uncached tokens of its first request. Requests are held while every worker's
prefill in progress exceeds a share of its batch-token budget. Over the limit of the queue = refusal.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from data.types import IntArray
from router.policies.settings import Checked, above, whole
from router.slomax.context import FlowContext
from router.slomax.rivals.base import RivalBase, below_prefill
from router.slomax.waiting import Waiting

Name = tuple[str, str, int]
"""Model, class, length bucket."""


@dataclass(frozen=True, slots=True)
class WeightedDeficitSettings(Checked):
    """Settings.

    Attributes:
        quantum_tokens: Uncached tokens that a round gives a class of weight 1.
        tight_factor: The quantum of each tighter class is this many times that of the next looser one.
        bucket_tokens: Border between short and long uncached prompts.
        busy_share: A worker is busy above this share of its batch-token budget in prefill.
        queue_requests: Most requests in one queue.
    """

    quantum_tokens: float = above(0.0, 2048.0)
    tight_factor: float = above(0.0, 4.0)
    bucket_tokens: int = whole(1, 8192)
    busy_share: float = above(0.0, 1.0)
    queue_requests: int = whole(1, 100_000)


class WeightedDeficit(RivalBase):
    """The rule."""

    name = "weighted_deficit_dynamo"

    def __init__(self, context: FlowContext, settings: WeightedDeficitSettings) -> None:
        super().__init__(context, settings.queue_requests)
        self._settings = settings
        self._deficits: dict[Name, float] = {}
        self._turn: Name | None = None

    def queue_of(self, item: Waiting) -> Name:
        """Class and length bucket of a model."""
        request = item.request
        return request.model, request.workload_class, int(item.work > self._settings.bucket_tokens)

    def order(self, now_s: float) -> Iterator[Name]:  # noqa: ARG002
        """Classes in turn, from the one whose turn it is; those whose deficit covers their first request."""
        names = sorted(self.waiting_in())
        self._deficits = {name: self._deficits.get(name, 0.0) for name in names}
        start = next((i for i, name in enumerate(names) if self._turn is not None and name >= self._turn), 0)
        ring = names[start:] + names[:start]
        covered = [name for name in ring if self._covers(name)]
        if not covered:
            # Whole rounds at once: as many as the class that is served first needs.
            rounds = min(self._missing(name) / self._quantum(name) for name in names)
            whole_rounds = max(int(-(-rounds // 1)), 1)
            for name in names:
                self._deficits[name] += whole_rounds * self._quantum(name)
            covered = [name for name in ring if self._covers(name)]
        yield from covered

    def open_rows(self, item: Waiting, rows: IntArray, now_s: float) -> IntArray:  # noqa: ARG002
        """All of them unless every worker is busy: the rule only holds back, it does not choose."""
        free = below_prefill(self.context, rows, self._settings.busy_share)
        return rows if len(free) else free

    def leaves(self, name: Name, item: Waiting, now_s: float) -> None:  # noqa: ARG002
        """Pay with the deficit; the class keeps its turn while it can pay."""
        self._deficits[name] -= item.work
        self._turn = name

    def _covers(self, name: Name) -> bool:
        return self._deficits[name] >= self.first_in(name).work - 1e-9

    def _missing(self, name: Name) -> float:
        return max(self.first_in(name).work - self._deficits[name], 0.0)

    def _quantum(self, name: Name) -> float:
        steps = len(self.ranks) - 1 - self.ranks[name[1]]
        weight = self.classes[name[1]].weight
        return self._settings.quantum_tokens * weight * self._settings.tight_factor**steps
