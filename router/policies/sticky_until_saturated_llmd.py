"""llm-d's default: stay with a long match until its holder has too much prefill work, then the least loaded."""

from __future__ import annotations

from dataclasses import dataclass

from data.types import FloatArray, IntArray, Outcome
from router.policies.base import PolicyBase, PolicyContext, PolicyEntry, held_share
from router.policies.ledger import Ledger
from router.policies.own_index import OwnIndex
from router.policies.prefill_time import peak_prefill_tokens_per_s
from router.policies.settings import Checked, at_least, between, one_of
from router.types import FleetView, RouteRequest


@dataclass(frozen=True, slots=True)
class StickyUntilSaturatedSettings(Checked):
    """Settings of the rule.

    Attributes:
        affinity: Matched share of the prompt from which an endpoint is a holder.
        penalty_s: TTFT penalty tolerated for the sake of the match. A holder is saturated above this many
            seconds of its peak prefill rate in uncached tokens in flight.
        bound: ``prefill`` picks the least uncached tokens, ``decode`` the fewest requests in flight.
    """

    affinity: float = between(0, 1, 0.8)
    penalty_s: float = at_least(0, 18.0)
    bound: str = one_of("prefill", "decode")


class StickyUntilSaturatedLlmd(PolicyBase):
    """Only unsaturated holders if there are any, else everybody; among those the least work."""

    name = "sticky_until_saturated_llmd"

    def __init__(self, settings: StickyUntilSaturatedSettings, context: PolicyContext) -> None:
        super().__init__(context)
        self._settings = settings
        self._own = OwnIndex(context.table)
        self._uncached = Ledger(len(context.table))
        self._limit_tokens = settings.penalty_s * peak_prefill_tokens_per_s(context.table)

    def choose(self, request: RouteRequest, candidates: IntArray, view: FleetView) -> int:
        """See the class; ties at random."""
        share = held_share(request, self._own.matched(request)[candidates])
        work = self._uncached.total[candidates]
        kept = (share >= self._settings.affinity) & (work <= self._limit_tokens[candidates])
        if kept.any():
            candidates, share, work = candidates[kept], share[kept], work[kept]
        if self._settings.bound == "decode":
            return self.least(candidates, view.endpoints.inflight[candidates])
        cost: FloatArray = work + (1.0 - share) * request.input_tokens
        return self.least(candidates, cost)

    def dispatched(self, request: RouteRequest, endpoint: int, view: FleetView) -> None:  # noqa: ARG002
        """Charge its uncached tokens, then record the prompt."""
        share = held_share(request, self._own.matched(request)[endpoint : endpoint + 1])[0]
        self._uncached.charge(request, endpoint, round((1.0 - share) * request.input_tokens))
        self._own.insert(request, endpoint)

    def first_token(self, request: RouteRequest, endpoint: int, now_s: float, ttft_s: float) -> None:  # noqa: ARG002
        """Its prefill is done."""
        self._uncached.release(request)

    def finished(self, request: RouteRequest, outcome: Outcome) -> None:  # noqa: ARG002
        """It left, perhaps before its first token."""
        self._uncached.release(request)

    def endpoint_reset(self, endpoint: int) -> None:
        """Forget its work and what it was believed to hold."""
        self._uncached.reset(endpoint)
        self._own.reset(endpoint)


ENTRY = PolicyEntry(
    name=StickyUntilSaturatedLlmd.name,
    summary="Holders of 80 % of the prompt while their uncached work is under 18 s; among those the least work.",
    sees="own dispatches, own prefix index, the catalog's peak prefill rate",
    source="llm-d default since August 2026",
    ties="random",
    settings=StickyUntilSaturatedSettings,
    factory=StickyUntilSaturatedLlmd,
    grid={
        "penalty_s": (0.5, 1.0, 2.0, 4.0, 9.0, 18.0),
        "affinity": (0.3, 0.5, 0.8),
        "bound": ("prefill", "decode"),
    },
)
