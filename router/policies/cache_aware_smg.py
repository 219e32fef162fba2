"""Cache-aware routing of SMG's gateway: a holder of the deepest match, unless that one holder is overloaded."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from data.types import FloatArray, IntArray
from router.policies.base import PolicyBase, PolicyContext, PolicyEntry, held_share
from router.policies.own_index import OwnIndex
from router.policies.settings import above, at_least, between, one_of, whole
from router.policies.smg_wait import SmgWait, SmgWaitSettings
from router.types import FleetView, RouteRequest

WARM_UP_S = 60.0
WARM_UP_TURN = 4


@dataclass(frozen=True, slots=True)
class CacheAwareSmgSettings(SmgWaitSettings):
    """Settings of the rule, beside those of the expected wait that decides misses.

    Attributes:
        index: ``approximate`` (own dispatches) or ``events`` (the engines' block events).
        cache_threshold: A hit needs more than this matched share of the prompt.
        holders: Holders looked at, deepest matches first.
        decay: With events, overlap is divided by 1 + decay · excess waiting prefill in request sizes.
        spill_ratio: The holder is passed over above this multiple of the mean in-flight count ...
        spill_floor, spill_cap, spill_root: ... and above the mean plus
            ``min(cap, max(floor, root · sqrt(mean)))`` requests.
        capacity_tokens: Prompt tokens remembered for each worker in approximate mode.
    """

    index: str = one_of("approximate", "events")
    cache_threshold: float = between(0, 1, 0.3)
    holders: int = whole(1, 8)
    decay: float = at_least(0, 0.0)
    spill_ratio: float = at_least(1, 1.5)
    spill_floor: float = at_least(0, 4.0)
    spill_cap: float = at_least(0, 64.0)
    spill_root: float = at_least(0, 2.0)
    capacity_tokens: float = above(0, float(2**24))


class CacheAwareSmg(PolicyBase):
    """Hit: the best holder, with a spill gate of its own. Miss or spill: the shortest expected wait."""

    name = "cache_aware_smg"

    def __init__(self, settings: CacheAwareSmgSettings, context: PolicyContext) -> None:
        super().__init__(context)
        self._settings = settings
        self._wait = SmgWait(settings, context.table)
        self._own = OwnIndex(context.table, settings.capacity_tokens)
        self._new = np.zeros(len(context.table), dtype=bool)
        self._warm_until_s = np.full(len(context.table), -np.inf)
        self._misses = 0

    def choose(self, request: RouteRequest, candidates: IntArray, view: FleetView) -> int:
        """See the class."""
        self._wait.poll(view)
        matched = self._matched(request, view)[candidates]
        deepest = int(matched.max())
        if held_share(request, np.array([deepest]))[0] <= self._settings.cache_threshold:
            return self._miss(candidates, view)
        holder = self._holder(request, candidates, matched, view)
        if self._spills(holder, candidates, view):
            return self._wait.least(candidates, view)
        return holder

    def _matched(self, request: RouteRequest, view: FleetView) -> IntArray:
        if self._settings.index == "events":
            return view.prefixes.matched_blocks(request.block_hashes)
        return self._own.matched(request)

    def _holder(self, request: RouteRequest, candidates: IntArray, matched: IntArray, view: FleetView) -> int:
        """Approximate: fewest in flight at the deepest match. Events: most overlap after decay. Ties at random."""
        if self._settings.index == "approximate":
            places = np.flatnonzero(matched == matched.max())[: self._settings.holders]
            rows = candidates[places]
            return self.least(rows, view.endpoints.inflight[rows])
        places = np.argsort(-matched, kind="stable")[: self._settings.holders]
        rows = candidates[places]
        overlap = matched[places] / (1.0 + self._settings.decay * self._excess(request, candidates)[places])
        return self.least(rows, -overlap)

    def _excess(self, request: RouteRequest, candidates: IntArray) -> FloatArray:
        queued = self._wait.queued_tokens(candidates)
        excess: FloatArray = (queued - queued.min()) / request.input_tokens
        return excess

    def _spills(self, holder: int, candidates: IntArray, view: FleetView) -> bool:
        settings = self._settings
        mean = float(view.endpoints.inflight[candidates].mean())
        margin = min(settings.spill_cap, max(settings.spill_floor, settings.spill_root * math.sqrt(mean)))
        load = float(view.endpoints.inflight[holder])
        return load > settings.spill_ratio * mean and load > mean + margin

    def _miss(self, candidates: IntArray, view: FleetView) -> int:
        """The shortest wait; one miss in four goes to workers in their first minute."""
        self._misses += 1
        if self._new.any():
            self._warm_until_s[self._new] = view.now_s + WARM_UP_S
            self._new[:] = False
        if self._misses % WARM_UP_TURN == 0:
            warming = candidates[self._warm_until_s[candidates] > view.now_s]
            if len(warming):
                return self._wait.least(warming, view)
        return self._wait.least(candidates, view)

    def dispatched(self, request: RouteRequest, endpoint: int, view: FleetView) -> None:  # noqa: ARG002
        """Credit the tokens and, in approximate mode, record the prompt under the chosen worker."""
        self._wait.sent(request, endpoint)
        if self._settings.index == "approximate":
            self._own.insert(request, endpoint)

    def endpoint_reset(self, endpoint: int) -> None:
        """Forget the worker; it starts a new warm-up."""
        self._wait.reset(endpoint)
        self._own.reset(endpoint)
        self._new[endpoint] = True


ENTRY = PolicyEntry(
    name=CacheAwareSmg.name,
    summary="A holder of the deepest match unless it is far above the mean load; else the least_load_smg rule.",
    sees="own in-flight counts, own prefix index or block events, reports polled every 10 s",
    source="SMG 1.13 cache_aware",
    ties="rotating",
    ties_note="holders at random; misses by requests in flight, then requests processed, then index",
    settings=CacheAwareSmgSettings,
    factory=CacheAwareSmg,
    grid={
        "index": ("approximate", "events"),
        "cache_threshold": (0.1, 0.3, 0.5),
        "spill_ratio": (1.1, 1.5, 2.0),
        "spill_floor": (2.0, 4.0, 8.0),
        "decay": (0.0, 1.0),
        "prefill_rate_tokens_per_s": (2000.0, 8000.0, 16000.0, 32000.0),
    },
)
