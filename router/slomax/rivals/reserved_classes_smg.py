"""Reserved classes, as in SMG: a limit of concurrent requests for the pool, shares of it reserved for classes.

A class may use its own reserve and what is reserved for nobody; first come first served inside, higher classes
tried first. Requests that find neither wait in their class's queue.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from data.types import IntArray, Outcome
from router.policies.settings import Checked, between, whole
from router.slomax.context import FlowContext
from router.slomax.rivals.base import RivalBase
from router.slomax.waiting import Waiting
from router.types import RouteRequest


@dataclass(frozen=True, slots=True)
class ReservedClassSettings(Checked):
    """Settings.

    Attributes:
        slots: Concurrent requests for each endpoint of the pool.
        reserved: Share of them reserved for the tightest class; each looser one has half as much.
        queue_requests: Most requests in one queue.
    """

    slots: int = whole(1, 32)
    reserved: float = between(0.0, 0.5, 0.4)
    queue_requests: int = whole(1, 100_000)


class ReservedClasses(RivalBase):
    """The rule."""

    name = "reserved_classes_smg"

    def __init__(self, context: FlowContext, settings: ReservedClassSettings) -> None:
        super().__init__(context, settings.queue_requests)
        self._settings = settings
        self._used: Counter[tuple[str, str]] = Counter()

    def queue_of(self, item: Waiting) -> tuple[int, str]:
        """One queue for each class of a model."""
        return self.ranks[item.request.workload_class], item.request.model

    def order(self, now_s: float) -> Iterable[tuple[int, str]]:  # noqa: ARG002
        """Tightest class first."""
        return sorted(self.waiting_in())

    def open_rows(self, item: Waiting, rows: IntArray, now_s: float) -> IntArray:  # noqa: ARG002
        """All of them if the class's reserve or the common part has a place."""
        total = self._settings.slots * len(rows)
        request = item.request
        shares = {name: self._settings.reserved * 0.5**rank for name, rank in self.ranks.items()}
        if self._used[request.model, request.workload_class] < shares[request.workload_class] * total:
            return rows
        common = total * (1.0 - sum(shares.values()))
        beyond = sum(max(self._used[request.model, name] - share * total, 0.0) for name, share in shares.items())
        return rows if beyond < common else rows[:0]

    def dispatched(self, request: RouteRequest, endpoint: int, now_s: float) -> None:  # noqa: ARG002
        """One place is taken."""
        self._used[request.model, request.workload_class] += 1

    def finished(self, request: RouteRequest, outcome: Outcome) -> None:  # noqa: ARG002
        """And given back."""
        self._used[request.model, request.workload_class] -= 1
