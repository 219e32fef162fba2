"""GORGO's cross-region cost: the network counts like the queue and the prefill."""

from __future__ import annotations

from dataclasses import dataclass

from data.types import FloatArray, IntArray
from router.policies.base import PolicyContext, PolicyEntry
from router.policies.mooncake_no_transfer import MooncakeNoTransfer
from router.policies.settings import Checked, NoSettings, at_least
from router.types import FleetView, RouteRequest


@dataclass(frozen=True, slots=True)
class RttAwareGorgoSettings(Checked):
    """Settings of the cost.

    Attributes:
        rtt_weight: Factor of the round trip.
        queue_weight: Factor of the queued prefill time.
    """

    rtt_weight: float = at_least(0, 1.0)
    queue_weight: float = at_least(0, 1.0)


class RttAwareGorgo(MooncakeNoTransfer):
    """argmin of round trip + queued prefill time + prefill of the uncached part, over all sites."""

    name = "rtt_aware_gorgo"

    def __init__(self, settings: RttAwareGorgoSettings, context: PolicyContext) -> None:
        super().__init__(NoSettings(), context)
        self._settings = settings

    def ttft_s(self, request: RouteRequest, candidates: IntArray, view: FleetView) -> FloatArray:
        """Predicted TTFT at each candidate, the network included."""
        queue = self._settings.queue_weight * self._queue_s.total[candidates]
        ttft: FloatArray = queue + self._prefill_s(request, candidates, view)
        ttft += self._settings.rtt_weight * view.rtt_s[candidates]
        return ttft


ENTRY = PolicyEntry(
    name=RttAwareGorgo.name,
    summary="Least round trip + queued prefill time + own prefill of the uncached part, over all sites.",
    sees="block events, own dispatches, the catalog's prefill polynomial, round trips",
    source="GORGO",
    ties="random",
    settings=RttAwareGorgoSettings,
    factory=RttAwareGorgo,
    grid={"rtt_weight": (0.5, 1.0, 2.0), "queue_weight": (0.5, 1.0, 2.0)},
)
