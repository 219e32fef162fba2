"""Least load as SMG's gateway does it: the shortest expected wait."""

from __future__ import annotations

from data.types import IntArray
from router.policies.base import PolicyBase, PolicyContext, PolicyEntry
from router.policies.smg_wait import SmgWait, SmgWaitSettings
from router.types import FleetView, RouteRequest


class LeastLoadSmg(PolicyBase):
    """argmin of queued tokens over prefill rate plus a KV-pressure term."""

    name = "least_load_smg"

    def __init__(self, settings: SmgWaitSettings, context: PolicyContext) -> None:
        super().__init__(context)
        self._wait = SmgWait(settings, context.table)

    def choose(self, request: RouteRequest, candidates: IntArray, view: FleetView) -> int:  # noqa: ARG002
        """The candidate with the shortest expected wait."""
        self._wait.poll(view)
        return self._wait.least(candidates, view)

    def dispatched(self, request: RouteRequest, endpoint: int, view: FleetView) -> None:  # noqa: ARG002
        """Credit the request's tokens until the next poll."""
        self._wait.sent(request, endpoint)

    def endpoint_reset(self, endpoint: int) -> None:
        """Forget its report and credit."""
        self._wait.reset(endpoint)


ENTRY = PolicyEntry(
    name=LeastLoadSmg.name,
    summary="Shortest expected wait: queued tokens / prefill rate + 0.15·k/(1−k), k the KV use.",
    sees="reports polled every 10 s, own dispatches since, own in-flight counts",
    source="SMG 1.13 least_load",
    ties="rotating",
    ties_note="by requests in flight, then requests processed, then index, so equal workers take turns",
    settings=SmgWaitSettings,
    factory=LeastLoadSmg,
    grid={
        "prefill_rate_tokens_per_s": (2000.0, 8000.0, 16000.0, 32000.0),
        "exact_tokens": (True, False),
        "poll_period_s": (10.0, 1.0),
    },
)
