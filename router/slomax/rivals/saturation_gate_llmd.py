"""A saturation gate with priority bands, as in llm-d: one number for the whole pool, from scraped metrics alone.

Saturation of an endpoint = max(waiting requests / queue depth threshold, KV use / KV threshold); of the pool = the
mean over its endpoints, an unknown one counting as full. Below 1 the first request of the highest band that waits
is let through to any endpoint. What was sent since the last report is not seen.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from data.types import IntArray
from router.policies.settings import Checked, above, between, whole
from router.slomax.context import FlowContext
from router.slomax.rivals.base import RivalBase
from router.slomax.waiting import Waiting


@dataclass(frozen=True, slots=True)
class SaturationGateSettings(Checked):
    """Settings.

    Attributes:
        queue_depth: Waiting requests at which an endpoint counts as saturated.
        kv_use: Share of KV memory at which it does.
        band_step: Each lower band stops at this share of the saturation at which the next higher one stops.
        queue_requests: Most requests in one queue.
    """

    queue_depth: float = above(0.0, 5.0)
    kv_use: float = between(0.01, 1.0, 0.8)
    band_step: float = between(0.01, 1.0, 1.0)
    queue_requests: int = whole(1, 100_000)


class SaturationGate(RivalBase):
    """The rule."""

    name = "saturation_gate_llmd"

    def __init__(self, context: FlowContext, settings: SaturationGateSettings) -> None:
        super().__init__(context, settings.queue_requests)
        self._settings = settings

    def queue_of(self, item: Waiting) -> tuple[int, str]:
        """One band for each class."""
        return self.ranks[item.request.workload_class], item.request.model

    def order(self, now_s: float) -> Iterable[tuple[int, str]]:  # noqa: ARG002
        """Highest band first."""
        return sorted(self.waiting_in())

    def open_rows(self, item: Waiting, rows: IntArray, now_s: float) -> IntArray:  # noqa: ARG002
        """All of them, or none."""
        table, settings = self.context.table, self._settings
        load = np.fmax(table.waiting[rows] / settings.queue_depth, table.kv_use[rows] / settings.kv_use)
        saturation = float(np.where(np.isnan(load), 1.0, load).mean())
        ceiling = settings.band_step ** self.ranks[item.request.workload_class]
        return rows if saturation < ceiling else rows[:0]
