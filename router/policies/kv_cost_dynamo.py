"""Dynamo's KV router: one cost in KV blocks, prefill work scaled against decode load."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from data.types import IntArray, Outcome
from router.policies.active_blocks import ActiveBlocks
from router.policies.base import PolicyBase, PolicyContext, PolicyEntry
from router.policies.ledger import Ledger
from router.policies.settings import Checked, at_least
from router.types import FleetView, RouteRequest


@dataclass(frozen=True, slots=True)
class KvCostDynamoSettings(Checked):
    """Settings of the cost.

    Attributes:
        scale: Factor of the prefill blocks against the decode blocks.
        request_weight: Blocks charged for each request in flight.
        overlap_credit: Prefill blocks credited for each block held there.
    """

    scale: float = at_least(0, 1.0)
    request_weight: float = at_least(0, 0.0)
    overlap_credit: float = at_least(0, 1.0)


class KvCostDynamo(PolicyBase):
    """argmin of ``scale · max(0, active prefill + prompt − overlap) + active decode + added``, all in blocks."""

    name = "kv_cost_dynamo"

    def __init__(self, settings: KvCostDynamoSettings, context: PolicyContext) -> None:
        super().__init__(context)
        self._settings = settings
        self._prefill_tokens = Ledger(len(context.table))
        self._blocks = ActiveBlocks(len(context.table))

    def choose(self, request: RouteRequest, candidates: IntArray, view: FleetView) -> int:
        """The candidate with the least cost, ties at random."""
        settings = self._settings
        overlap = view.prefixes.matched_blocks(request.block_hashes)[candidates]
        tokens = self._prefill_tokens.total[candidates] + request.input_tokens
        prefill = np.maximum(tokens / request.block_tokens - settings.overlap_credit * overlap, 0.0)
        decode = self._blocks.total[candidates] + self._blocks.added(request)[candidates]
        cost = settings.scale * prefill + decode
        if settings.request_weight:
            cost += settings.request_weight * view.endpoints.inflight[candidates]
        return self.least(candidates, cost)

    def dispatched(self, request: RouteRequest, endpoint: int, view: FleetView) -> None:
        """Charge its uncached tokens to the prefill and its blocks to the decode load."""
        overlap = int(view.prefixes.matched_blocks(request.block_hashes)[endpoint])
        uncached = max(request.input_tokens - overlap * request.block_tokens, 0)
        self._prefill_tokens.charge(request, endpoint, uncached)
        self._blocks.enter(request, endpoint)

    def first_token(self, request: RouteRequest, endpoint: int, now_s: float, ttft_s: float) -> None:  # noqa: ARG002
        """Its prefill is done."""
        self._prefill_tokens.release(request)

    def finished(self, request: RouteRequest, outcome: Outcome) -> None:  # noqa: ARG002
        """Its blocks are free."""
        self._prefill_tokens.release(request)
        self._blocks.leave(request)

    def endpoint_reset(self, endpoint: int) -> None:
        """Nothing is active there any more."""
        self._prefill_tokens.reset(endpoint)
        self._blocks.reset(endpoint)


ENTRY = PolicyEntry(
    name=KvCostDynamo.name,
    summary="Least scale · max(0, active prefill + prompt − overlap) + active decode + added, in KV blocks.",
    sees="block events, own dispatches",
    source="Dynamo 1.6 KV router",
    ties="random",
    settings=KvCostDynamoSettings,
    factory=KvCostDynamo,
    grid={"scale": (1.0, 4.0, 16.0, 32.0), "request_weight": (0.0, 1.0, 4.0)},
)
