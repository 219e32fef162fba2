"""Least request: fewest requests in flight."""

from __future__ import annotations

from dataclasses import dataclass

from data.types import IntArray
from router.policies.base import PolicyBase, PolicyContext, PolicyEntry, known, least_first
from router.policies.settings import Checked, one_of
from router.types import FleetView, RouteRequest


@dataclass(frozen=True, slots=True)
class LeastRequestSettings(Checked):
    """Settings of least request.

    Attributes:
        ties: ``random``, or ``first`` as the Rust routers do.
        counts: ``inflight`` (this router's own) or ``scraped`` (running requests as last reported, a missing
            report counted as 0, as AIBrix does).
    """

    ties: str = one_of("random", "first")
    counts: str = one_of("inflight", "scraped")


class LeastRequest(PolicyBase):
    """argmin of the requests in flight."""

    name = "least_request"

    def __init__(self, settings: LeastRequestSettings, context: PolicyContext) -> None:
        super().__init__(context)
        self._first = settings.ties == "first"
        self._scraped = settings.counts == "scraped"

    def choose(self, request: RouteRequest, candidates: IntArray, view: FleetView) -> int:  # noqa: ARG002
        """The candidate with the fewest requests."""
        table = view.endpoints
        counts = known(table.running[candidates]) if self._scraped else table.inflight[candidates]
        return least_first(candidates, counts) if self._first else self.least(candidates, counts)


ENTRY = PolicyEntry(
    name=LeastRequest.name,
    summary="Fewest requests in flight.",
    sees="own in-flight counts, or scraped running counts",
    source="common; AIBrix (random ties, scraped), Rust gateways (first index)",
    ties="random",
    settings=LeastRequestSettings,
    factory=LeastRequest,
    grid={"ties": ("random", "first"), "counts": ("inflight", "scraped")},
)
