"""llm-d's predicted latency: gates on the match, tiers on SLO headroom, best fit among the safe."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from data.types import FloatArray, IntArray
from router.policies.base import PolicyBase, PolicyContext, PolicyEntry, held_share
from router.policies.own_index import OwnIndex
from router.policies.predicted_times import PredictedTimes
from router.policies.settings import Checked, at_least, between, one_of
from router.policies.weighted_blend_llmd import min_max
from router.types import BoolArray, FleetView, RouteRequest

LEAST_WEIGHT = 0.02
"""Every endpoint that is left may be drawn: the peer draws with whole weights from 2 to 101."""


@dataclass(frozen=True, slots=True)
class PredictedLatencyLlmdSettings(Checked):
    """Settings of the rule.

    Attributes:
        tight_affinity, loose_affinity: Matched shares of the gates before and after the tiers.
        penalty_s: A gate is skipped if its best TTFT is this much above the best of all.
        exploration: Probability to look at the endpoints without headroom although others have some.
        ttft_weight, tpot_weight: Weights of the two headrooms, and of the two misses; both 0 counts TTFT alone.
        headroom: Among the safe, ``least`` headroom is preferred (tight packing) or ``most`` (spreading).
    """

    tight_affinity: float = between(0, 1, 0.99)
    loose_affinity: float = between(0, 1, 0.80)
    penalty_s: float = at_least(0, 5.0)
    exploration: float = between(0, 1, 0.01)
    ttft_weight: float = at_least(0, 0.8)
    tpot_weight: float = at_least(0, 0.2)
    headroom: str = one_of("least", "most")


class PredictedLatencyLlmd(PolicyBase):
    """Gate, tier, gate, then a weighted draw: least headroom among the safe, else idle, else smallest miss."""

    name = "predicted_latency_llmd"

    def __init__(self, settings: PredictedLatencyLlmdSettings, context: PolicyContext) -> None:
        super().__init__(context)
        self._settings = settings
        self._own = OwnIndex(context.table)
        self._times = PredictedTimes(context.table, context.predictor)

    def choose(self, request: RouteRequest, candidates: IntArray, view: FleetView) -> int:
        """See the class."""
        settings = self._settings
        share = held_share(request, self._own.matched(request)[candidates])
        hits = np.minimum(share * request.input_tokens, request.input_tokens - 1.0)
        ttft, tpot = self._times.medians(request, candidates, hits, view)
        # Without a target every headroom is negative, as in the peer.
        ttft_room = (request.slo.ttft_s or 0.0) - ttft
        tpot_room = (request.slo.tpot_s or 0.0) - tpot
        safe = (ttft_room >= 0) & (tpot_room >= 0)
        left = self._gate(self.rows[: len(candidates)], share >= settings.tight_affinity, ttft)
        left = self._tier(left, safe)
        left = self._gate(left, share >= settings.loose_affinity, ttft)
        if safe[left[0]]:
            headroom = self._blend(unit(ttft_room[left]), unit(tpot_room[left]))
            preference = headroom if settings.headroom == "most" else 1.0 - headroom
            return int(candidates[self._weighted(left, preference)])
        idle = left[view.endpoints.inflight[candidates[left]] == 0]
        left = idle if len(idle) else left
        # A target that is kept is no miss, however much room it leaves.
        missed = self._blend(
            min_max(np.maximum(-ttft_room[left], 0.0)), min_max(np.maximum(-tpot_room[left], 0.0))
        )
        return int(candidates[self._weighted(left, 1.0 - missed)])

    def _blend(self, ttft: FloatArray, tpot: FloatArray) -> FloatArray:
        """Weighted mean of two scaled columns, 0 to 1."""
        first, second = self._settings.ttft_weight, self._settings.tpot_weight
        if first + second == 0.0:
            return ttft
        mean: FloatArray = (first * ttft + second * tpot) / (first + second)
        return mean

    def _gate(self, left: IntArray, sticky: BoolArray, ttft: FloatArray) -> IntArray:
        """Only the sticky ones, unless there are none or they are much slower."""
        kept = left[sticky[left]]
        if not len(kept) or ttft[kept].min() - ttft[left].min() > self._settings.penalty_s:
            return left
        return kept

    def _tier(self, left: IntArray, safe: BoolArray) -> IntArray:
        """The safe ones if there are any, now and then the others."""
        good, bad = left[safe[left]], left[~safe[left]]
        if len(good) and len(bad):
            return bad if self._random.random() < self._settings.exploration else good
        return left

    def _weighted(self, left: IntArray, preference: FloatArray) -> int:
        """A draw whose weights grow with the preference (0 to 1), which is not scaled a second time."""
        weights = np.cumsum(LEAST_WEIGHT + preference)
        place = int(np.searchsorted(weights, self._random.random() * weights[-1], side="right"))
        return int(left[min(place, len(left) - 1)])

    def dispatched(self, request: RouteRequest, endpoint: int, view: FleetView) -> None:  # noqa: ARG002
        """Record the prompt."""
        self._own.insert(request, endpoint)

    def endpoint_reset(self, endpoint: int) -> None:
        """Forget what it was believed to hold."""
        self._own.reset(endpoint)


def unit(headroom: FloatArray) -> FloatArray:
    """Headrooms scaled to 0 to 1; equal ones say nothing and stand in the middle."""
    return min_max(headroom) if headroom.max() > headroom.min() else np.full(len(headroom), 0.5)


ENTRY = PolicyEntry(
    name=PredictedLatencyLlmd.name,
    summary="Match gates, then endpoints with predicted SLO headroom, then a draw that prefers the tightest fit.",
    sees="predicted TTFT and TPOT (medians), own prefix index, reports and own in-flight work",
    source="llm-d predicted latency",
    ties="draw",
    ties_note="the last step is a weighted draw",
    settings=PredictedLatencyLlmdSettings,
    factory=PredictedLatencyLlmd,
    grid={
        "penalty_s": (0.5, 2.0, 5.0),
        "loose_affinity": (0.5, 0.8),
        "exploration": (0.0, 0.01),
        "ttft_weight": (0.5, 0.8),
        "headroom": ("least", "most"),
    },
)
