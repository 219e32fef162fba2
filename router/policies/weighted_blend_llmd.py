"""llm-d's weighted blend: queue, KV use and prefix match as scores from 0 to 1."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from data.types import FloatArray, IntArray
from router.policies.base import PolicyBase, PolicyContext, PolicyEntry, known
from router.policies.own_index import OwnIndex
from router.policies.settings import Checked, at_least
from router.types import FleetView, RouteRequest


@dataclass(frozen=True, slots=True)
class WeightedBlendLlmdSettings(Checked):
    """Weights of the scores.

    Attributes:
        queue_weight: Of 1 − min-max-normalised waiting requests (all equal: 1).
        kv_weight: Of 1 − KV use.
        prefix_weight: Of matched blocks / blocks of the prompt.
        no_hit_lru_weight: Of "least recently used first" for prompts that nobody holds; 0 = off.
    """

    queue_weight: float = at_least(0, 2.0)
    kv_weight: float = at_least(0, 2.0)
    prefix_weight: float = at_least(0, 3.0)
    no_hit_lru_weight: float = at_least(0, 0.0)


class WeightedBlendLlmd(PolicyBase):
    """argmax of the weighted sum; reports only, own dispatches are not added, a missing report counts as 0."""

    name = "weighted_blend_llmd"

    def __init__(self, settings: WeightedBlendLlmdSettings, context: PolicyContext) -> None:
        super().__init__(context)
        self._settings = settings
        self._own = OwnIndex(context.table)
        self._cold_turn = np.zeros(len(context.table))
        self._turns = 0

    def choose(self, request: RouteRequest, candidates: IntArray, view: FleetView) -> int:
        """The candidate with the highest sum, ties at random."""
        settings, table = self._settings, view.endpoints
        queue = 1.0 - min_max(known(table.waiting[candidates]))
        kv = 1.0 - known(table.kv_use[candidates])
        matched = self._own.matched(request)[candidates]
        share = matched / max(len(request.block_hashes), 1)
        total = settings.queue_weight * queue + settings.kv_weight * kv + settings.prefix_weight * share
        if settings.no_hit_lru_weight and not matched.any():
            total += settings.no_hit_lru_weight * (1.0 - min_max(self._cold_turn[candidates]))
        return self.least(candidates, -total)

    def dispatched(self, request: RouteRequest, endpoint: int, view: FleetView) -> None:  # noqa: ARG002
        """Record the prompt; a cold one makes its endpoint the most recently used."""
        if not self._own.matched(request).any():
            self._turns += 1
            self._cold_turn[endpoint] = self._turns
        self._own.insert(request, endpoint)

    def endpoint_reset(self, endpoint: int) -> None:
        """Forget what it was believed to hold."""
        self._own.reset(endpoint)
        self._cold_turn[endpoint] = 0.0


def min_max(values: FloatArray) -> FloatArray:
    """Values scaled to 0 to 1; all 0 where they are equal."""
    least = values.min()
    span = values.max() - least
    scaled: FloatArray = (values - least) / span if span > 0 else np.zeros(len(values))
    return scaled


ENTRY = PolicyEntry(
    name=WeightedBlendLlmd.name,
    summary="Highest 2 · queue score + 2 · KV score + 3 · matched share of the prompt.",
    sees="scraped waiting requests and KV use, own prefix index sized to each engine's KV memory",
    source="llm-d scheduler profile",
    ties="random",
    settings=WeightedBlendLlmdSettings,
    factory=WeightedBlendLlmd,
    grid={
        "queue_weight": (1.0, 2.0, 4.0),
        "kv_weight": (0.0, 1.0, 2.0),
        "prefix_weight": (1.0, 3.0, 6.0),
        "no_hit_lru_weight": (0.0, 2.0),
    },
)
