"""Strict priority: the tightest class that waits goes first, first come first served inside; nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from data.types import IntArray
from router.policies.settings import Checked, whole
from router.slomax.context import FlowContext
from router.slomax.rivals.base import RivalBase, below_slots
from router.slomax.waiting import Waiting


@dataclass(frozen=True, slots=True)
class StrictPrioritySettings(Checked):
    """Settings.

    Attributes:
        slots: Requests in flight at one endpoint, at most.
        queue_requests: Most requests in one queue.
    """

    slots: int = whole(1, 32)
    queue_requests: int = whole(1, 100_000)


class StrictPriority(RivalBase):
    """The rule, behind a limit of concurrent requests for each endpoint."""

    name = "strict_priority"

    def __init__(self, context: FlowContext, settings: StrictPrioritySettings) -> None:
        super().__init__(context, settings.queue_requests)
        self._settings = settings

    def queue_of(self, item: Waiting) -> tuple[int, str]:
        """One queue for each class and model."""
        return self.ranks[item.request.workload_class], item.request.model

    def order(self, now_s: float) -> Iterable[tuple[int, str]]:  # noqa: ARG002
        """Tightest class first."""
        return sorted(self.waiting_in())

    def open_rows(self, item: Waiting, rows: IntArray, now_s: float) -> IntArray:  # noqa: ARG002
        """Endpoints below the limit."""
        return below_slots(self.context, rows, self._settings.slots)
