"""KV-aware routing of vllm-router: most leading blocks, with a short memory of own dispatches."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from data.types import IntArray
from router.policies.base import PolicyBase, PolicyContext, PolicyEntry, least_first
from router.policies.settings import Checked, at_least
from router.policies.speculative_blocks import SpeculativeBlocks
from router.types import FleetView, RouteRequest


@dataclass(frozen=True, slots=True)
class KvAwareVllmRouterSettings(Checked):
    """Settings of the rule.

    Attributes:
        speculative_s: A dispatched prompt counts as held for this long, so that a burst does not scatter.
    """

    speculative_s: float = at_least(0, 2.0)


class KvAwareVllmRouter(PolicyBase):
    """argmax of leading blocks held; equal ones, and prompts that nobody holds, by requests in flight."""

    name = "kv_aware_vllm_router"

    def __init__(self, settings: KvAwareVllmRouterSettings, context: PolicyContext) -> None:
        super().__init__(context)
        self._sent = SpeculativeBlocks(len(context.table), settings.speculative_s)

    def choose(self, request: RouteRequest, candidates: IntArray, view: FleetView) -> int:
        """See the class; equal loads go to the first."""
        held = view.prefixes.matched_blocks(request.block_hashes)[candidates]
        sent = self._sent.matched(request.block_hashes, view.now_s)[candidates]
        score = np.maximum(held, sent)
        best = candidates[score == score.max()]
        return least_first(best, view.endpoints.inflight[best])

    def dispatched(self, request: RouteRequest, endpoint: int, view: FleetView) -> None:
        """Count the prompt's blocks as held for a moment."""
        self._sent.add(endpoint, request.block_hashes, view.now_s)

    def endpoint_reset(self, endpoint: int) -> None:
        """Forget what was sent to it."""
        self._sent.reset(endpoint)


ENTRY = PolicyEntry(
    name=KvAwareVllmRouter.name,
    summary="Most leading blocks held, own dispatches of the last 2 s included; else fewest in flight.",
    sees="block events, own dispatches, own in-flight counts",
    source="vllm-router 0.1.17 kv_aware",
    ties="first_index",
    ties_note="the peer keeps the first worker of its list on equal load",
    settings=KvAwareVllmRouterSettings,
    factory=KvAwareVllmRouter,
    grid={"speculative_s": (0.0, 0.5, 2.0, 10.0)},
)
