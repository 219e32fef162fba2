"""The service chooses and our statement of its rule is asked the same: how often would it have chosen likewise?

Two forms of our rule are asked. One is the policy ``kv_cost_dynamo`` as every contest runs it: it counts in blocks
of the trace, a partial last one as a whole one. The other counts as the service does, in complete blocks of the
service's size; any difference that it has would be one of rule or state.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from benchmarks.proof.dynamo_arm.policy import DynamoSelection
from data.types import FloatArray, IntArray, Outcome
from planner.sim.kv_cache import Notices
from router.policies.active_blocks import ActiveBlocks
from router.policies.base import PolicyContext
from router.policies.kv_cost_dynamo import KvCostDynamo, KvCostDynamoSettings
from router.types import FleetView, PrefixLookup, RouteRequest

ROUNDING = 1e-9
OWN_BLOCKS = 1 << 63
"""Ids of blocks that nobody shares begin here."""


class OurRule(KvCostDynamo):
    """Our statement of the rule; counts how the choices of another compare with its own.

    Attributes:
        likewise: Choices with the least cost by this rule too; of equal costs either may choose any.
        ties: Choices where this rule sees more than one least cost.
        excess_blocks: Cost of the other's choices above the least by this rule, in all.
    """

    def __init__(self, settings: KvCostDynamoSettings, context: PolicyContext) -> None:
        super().__init__(settings, context)
        self.likewise = 0
        self.ties = 0
        self.excess_blocks = 0.0
        self._seen = self.rows
        self._costs: FloatArray = self.rows.astype(float)

    def least(self, candidates: IntArray, costs: FloatArray) -> int:
        """As the rule has it; the costs are kept."""
        self._seen, self._costs = candidates, costs
        return super().least(candidates, costs)

    def judge(self, chosen: int) -> None:
        """The other's choice, where this rule was asked just before."""
        least = self._costs.min()
        excess = float(self._costs[int(self._seen.searchsorted(chosen))] - least)
        self.likewise += excess <= ROUNDING
        self.ties += int((self._costs <= least + ROUNDING).sum()) > 1
        self.excess_blocks += excess


class CompleteBlocks(ActiveBlocks):
    """A prompt shorter than a block counts as none."""

    def added(self, request: RouteRequest) -> FloatArray:
        """Blocks the request would add at each endpoint."""
        return super().added(request) if request.block_hashes else np.zeros_like(self.total)

    def enter(self, request: RouteRequest, endpoint: int) -> None:
        """The request starts to use its blocks at the endpoint."""
        if request.block_hashes:
            super().enter(request, endpoint)


class OurRuleInTheirBlocks(OurRule):
    """The same in complete blocks of ``block_tokens``, which divides the trace's block."""

    def __init__(self, settings: KvCostDynamoSettings, context: PolicyContext, block_tokens: int) -> None:
        super().__init__(settings, context)
        self._blocks = CompleteBlocks(len(context.table))
        self._block_tokens = block_tokens

    def choose(self, request: RouteRequest, candidates: IntArray, view: FleetView) -> int:
        """The rule over smaller blocks."""
        return super().choose(self._smaller(request), candidates, self._view(request, view))

    def dispatched(self, request: RouteRequest, endpoint: int, view: FleetView) -> None:
        """Charge in smaller blocks."""
        super().dispatched(self._smaller(request), endpoint, self._view(request, view))

    def finished(self, request: RouteRequest, outcome: Outcome) -> None:
        """Release in smaller blocks."""
        super().finished(self._smaller(request), outcome)

    def _smaller(self, request: RouteRequest) -> RouteRequest:
        size = self._block_tokens
        count, parts = request.input_tokens // size, request.block_tokens // size
        if request.block_hashes:
            ids = (block * parts + part for block in request.block_hashes for part in range(parts))
            hashes = tuple(number & 0xFFFFFFFFFFFFFFFF for number, _ in zip(ids, range(count), strict=False))
        else:
            first = OWN_BLOCKS + (request.request_id << 20)
            hashes = tuple(range(first, first + count))
        return replace(request, block_hashes=hashes, block_tokens=size)

    def _view(self, request: RouteRequest, view: FleetView) -> FleetView:
        parts = request.block_tokens // self._block_tokens
        return replace(view, prefixes=SmallerBlocks(view.prefixes, request.block_hashes, parts))


class SmallerBlocks:
    """What the router's index knows of one prompt, told in smaller blocks."""

    def __init__(self, prefixes: PrefixLookup, block_hashes: tuple[int, ...], parts: int) -> None:
        self._prefixes, self._hashes, self._parts = prefixes, block_hashes, parts

    def matched_blocks(self, block_hashes: tuple[int, ...]) -> IntArray:  # noqa: ARG002
        """Leading smaller blocks held by each endpoint; the prompt is the one given at construction."""
        held: IntArray = self._prefixes.matched_blocks(self._hashes) * self._parts
        return held


class Compared:
    """A policy that does what the service says; both forms of our rule are asked and told the same."""

    def __init__(self, theirs: DynamoSelection, ours: OurRule, in_their_blocks: OurRule) -> None:
        self.name = theirs.name
        self._theirs, self._ours, self._in_their_blocks = theirs, ours, in_their_blocks
        self._all = (ours, in_their_blocks, theirs)

    def figures(self) -> dict[str, float]:
        """Shares and means over all decisions; times of the service in milliseconds."""
        theirs, ours = self._theirs, self._ours
        n = max(theirs.decisions, 1)
        return {
            "likewise": ours.likewise / n,
            "likewise_in_their_blocks": self._in_their_blocks.likewise / n,
            "ties": self._in_their_blocks.ties / n,
            "excess_blocks": ours.excess_blocks / n,
            "seen_ms": 1e3 * theirs.seen_s / n,
            "chosen_ms": 1e3 * theirs.chosen_s / n,
        }

    def choose(self, request: RouteRequest, candidates: IntArray, view: FleetView) -> int:
        """The service's choice."""
        self._ours.choose(request, candidates, view)
        self._in_their_blocks.choose(request, candidates, view)
        chosen = self._theirs.choose(request, candidates, view)
        self._ours.judge(chosen)
        self._in_their_blocks.judge(chosen)
        return chosen

    def dispatched(self, request: RouteRequest, endpoint: int, view: FleetView) -> None:
        """All are told."""
        for each in self._all:
            each.dispatched(request, endpoint, view)

    def first_token(self, request: RouteRequest, endpoint: int, now_s: float, ttft_s: float) -> None:
        """All are told."""
        for each in self._all:
            each.first_token(request, endpoint, now_s, ttft_s)

    def finished(self, request: RouteRequest, outcome: Outcome) -> None:
        """All are told."""
        for each in self._all:
            each.finished(request, outcome)

    def endpoint_reset(self, endpoint: int) -> None:
        """All are told."""
        for each in self._all:
            each.endpoint_reset(endpoint)

    def blocks_changed(self, endpoint: int, notices: Notices | None) -> None:
        """Ours read the router's index; the service has its own."""
        self._theirs.blocks_changed(endpoint, notices)


def compared(theirs: DynamoSelection, context: PolicyContext, scale: float, block_tokens: int) -> Compared:
    """The service beside both forms of our rule at the same scale."""
    settings = KvCostDynamoSettings(scale=scale)
    return Compared(theirs, OurRule(settings, context), OurRuleInTheirBlocks(settings, context, block_tokens))
