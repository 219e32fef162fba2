"""Prefix-cache routing of AIBrix: load is a veto, the match decides."""

from __future__ import annotations

from dataclasses import dataclass

from data.types import FloatArray, IntArray
from router.policies.base import PolicyBase, PolicyContext, PolicyEntry, known
from router.policies.own_index import OwnIndex
from router.policies.settings import Checked, above, at_least, one_of
from router.types import FleetView, RouteRequest


@dataclass(frozen=True, slots=True)
class PrefixCacheAibrixSettings(Checked):
    """Settings of the rule.

    Attributes:
        counts: Requests on a pod: this gateway's own ``inflight``, updated at every dispatch and end as the peer's
            are, or the running requests last ``scraped`` (a missing report counts as 0).
        imbalance_abs: Most less least above this: only the pods with the least count stay.
        deviations: A pod may exceed the mean count by this many standard deviations.
        capacity_tokens: Prompt tokens remembered for each pod (200,000 blocks of 16).
    """

    counts: str = one_of("inflight", "scraped")
    imbalance_abs: float = at_least(0, 8.0)
    deviations: float = at_least(0, 1.0)
    capacity_tokens: float = above(0, 3_200_000.0)


class PrefixCacheAibrix(PolicyBase):
    """The longest match among pods that are not too busy, equal matches by count, the rest at random."""

    name = "prefix_cache_aibrix"

    def __init__(self, settings: PrefixCacheAibrixSettings, context: PolicyContext) -> None:
        super().__init__(context)
        self._settings = settings
        self._own = OwnIndex(context.table, settings.capacity_tokens)

    def choose(self, request: RouteRequest, candidates: IntArray, view: FleetView) -> int:
        """See the class. The pod with the least count is never too busy, so the rule always finds one."""
        counts = self._counts(candidates, view)
        if counts.max() - counts.min() > self._settings.imbalance_abs:
            quiet = counts == counts.min()
            candidates, counts = candidates[quiet], counts[quiet]
        allowed = counts <= counts.mean() + self._settings.deviations * counts.std() + 1e-9
        rows, counts = candidates[allowed], counts[allowed]
        matched = self._own.matched(request)[rows]
        longest = matched == matched.max()
        return self.least(rows[longest], counts[longest])

    def _counts(self, candidates: IntArray, view: FleetView) -> FloatArray:
        if self._settings.counts == "scraped":
            return known(view.endpoints.running[candidates])
        return view.endpoints.inflight[candidates]

    def dispatched(self, request: RouteRequest, endpoint: int, view: FleetView) -> None:  # noqa: ARG002
        """Record the prompt under the chosen pod."""
        self._own.insert(request, endpoint)

    def endpoint_reset(self, endpoint: int) -> None:
        """Forget what the pod was believed to hold."""
        self._own.reset(endpoint)


ENTRY = PolicyEntry(
    name=PrefixCacheAibrix.name,
    summary="Longest match among pods within mean + 1 σ; a spread over 8 leaves only the least busy pods.",
    sees="own in-flight counts, own prefix index",
    source="AIBrix prefix-cache",
    ties="random",
    settings=PrefixCacheAibrixSettings,
    factory=PrefixCacheAibrix,
    grid={
        "counts": ("inflight", "scraped"),
        "imbalance_abs": (4.0, 8.0, 16.0, 32.0),
        "deviations": (0.5, 1.0, 2.0),
    },
)
