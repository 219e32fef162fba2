"""Mooncake's cache-aware scheduling for servers that cannot copy KV: queue plus prefill of what is not cached."""

from __future__ import annotations

from data.types import FloatArray, IntArray, Outcome
from router.policies.base import PolicyBase, PolicyContext, PolicyEntry
from router.policies.ledger import Ledger
from router.policies.prefill_time import prefill_time_s
from router.policies.settings import NoSettings
from router.types import FleetView, RouteRequest


class MooncakeNoTransfer(PolicyBase):
    """argmin of (predicted prefill times of the requests queued there) + (this request's own prefill)."""

    name = "mooncake_no_transfer"

    def __init__(self, settings: NoSettings, context: PolicyContext) -> None:  # noqa: ARG002
        super().__init__(context)
        self._queue_s = Ledger(len(context.table))

    def choose(self, request: RouteRequest, candidates: IntArray, view: FleetView) -> int:
        """The candidate with the least predicted TTFT, ties at random."""
        return self.least(candidates, self.ttft_s(request, candidates, view))

    def ttft_s(self, request: RouteRequest, candidates: IntArray, view: FleetView) -> FloatArray:
        """Predicted TTFT at each candidate: queue + prefill."""
        ttft: FloatArray = self._queue_s.total[candidates] + self._prefill_s(request, candidates, view)
        return ttft

    def _prefill_s(self, request: RouteRequest, rows: IntArray, view: FleetView) -> FloatArray:
        hits = view.hit_tokens(request)[rows]
        return prefill_time_s(view.endpoints, rows, request.input_tokens - hits, hits)

    def dispatched(self, request: RouteRequest, endpoint: int, view: FleetView) -> None:
        """Queue its predicted prefill time there."""
        row = self.rows[endpoint : endpoint + 1]
        self._queue_s.charge(request, endpoint, float(self._prefill_s(request, row, view)[0]))

    def first_token(self, request: RouteRequest, endpoint: int, now_s: float, ttft_s: float) -> None:  # noqa: ARG002
        """Its prefill is done."""
        self._queue_s.release(request)

    def finished(self, request: RouteRequest, outcome: Outcome) -> None:  # noqa: ARG002
        """It left, perhaps before its first token."""
        self._queue_s.release(request)

    def endpoint_reset(self, endpoint: int) -> None:
        """Nothing is queued there any more."""
        self._queue_s.reset(endpoint)


ENTRY = PolicyEntry(
    name=MooncakeNoTransfer.name,
    summary="Least predicted TTFT: prefill times of the queued requests + own prefill of the uncached part.",
    sees="block events, own dispatches, the catalog's prefill polynomial",
    source="Mooncake (FAST'25, algorithm 1) with an infinite transfer time and without its refusals",
    ties="random",
    settings=NoSettings,
    factory=MooncakeNoTransfer,
)
