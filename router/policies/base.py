"""What every policy shares: no-op notices, a seeded generator, tie-breaking, and its entry in the registry."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np

from data.types import FloatArray, IntArray, Outcome
from models.base import LatencyPredictor
from router.endpoints import EndpointTable
from router.policies.settings import Checked, Setting
from router.types import BoolArray, FleetView, Policy, RouteRequest

Ties = Literal["random", "rotating", "first_index", "draw", "hash"]
"""How a rule settles equal candidates.

``random``: a seeded uniform draw. ``rotating``: in turn. ``first_index``: the first in the list, as the peer does.
``draw``: the rule itself is a random draw. ``hash``: equal load goes where the prompt's hash points.
"""


@dataclass(frozen=True, slots=True)
class PolicyContext:
    """What a factory may use to build a policy.

    Attributes:
        table: The endpoint table; its identity columns do not change.
        seed: Seed of the policy's own generator.
        predictor: Latency predictor for the policies that use one; ``None`` = the closed-form prior.
    """

    table: EndpointTable
    seed: int
    predictor: LatencyPredictor | None = None


@dataclass(frozen=True, slots=True)
class PolicyEntry:
    """One registered policy.

    Attributes:
        summary: The rule in one line.
        sees: What the rule may look at.
        source: Where the rule comes from.
        ties: How equal candidates are settled.
        ties_note: Why, where it is not a plain random draw.
        grid: Values to try for each setting when the policy is tuned.
        settings: The checked settings class; its defaults are the peer's.
        factory: Builds the policy from checked settings.
    """

    name: str
    summary: str
    sees: str
    source: str
    ties: Ties
    settings: type[Checked]
    factory: Callable[[Any, PolicyContext], Policy]
    ties_note: str = ""
    grid: Mapping[str, tuple[Setting, ...]] = field(default_factory=dict)


class PolicyBase:
    """A policy whose notices do nothing and whose randomness comes from one seed."""

    name: ClassVar[str] = ""

    def __init__(self, context: PolicyContext) -> None:
        self.table = context.table
        self.rows: IntArray = np.arange(len(context.table))
        self._random = np.random.default_rng(context.seed)

    def dispatched(self, request: RouteRequest, endpoint: int, view: FleetView) -> None:
        """Nothing to remember."""

    def first_token(self, request: RouteRequest, endpoint: int, now_s: float, ttft_s: float) -> None:
        """Nothing to learn."""

    def finished(self, request: RouteRequest, outcome: Outcome) -> None:
        """Nothing to release."""

    def endpoint_reset(self, endpoint: int) -> None:
        """Nothing to forget."""

    def draw(self, n: int) -> int:
        """A uniform draw from 0 to n - 1."""
        return int(self._random.random() * n)

    def pick(self, rows: IntArray) -> int:
        """One of ``rows``, uniformly."""
        return int(rows[self.draw(len(rows))]) if len(rows) > 1 else int(rows[0])

    def least(self, candidates: IntArray, costs: FloatArray) -> int:
        """The candidate with the least cost, ties at random."""
        return self.pick(candidates[costs == costs.min()])


def least_first(candidates: IntArray, costs: FloatArray) -> int:
    """The candidate with the least cost, ties to the first."""
    return int(candidates[costs.argmin()])


def known(values: FloatArray) -> FloatArray:
    """Reports as a peer reads them that takes a missing value for 0."""
    return np.where(np.isnan(values), 0.0, values)


def held_share(request: RouteRequest, blocks: IntArray) -> FloatArray:
    """Matched share of the prompt, 0 to 1; a last, partial block counts with its own length."""
    share: FloatArray = np.minimum(blocks * float(request.block_tokens), request.input_tokens)
    share /= request.input_tokens
    return share


def members(mask: int, candidates: IntArray) -> BoolArray:
    """Which candidates are in a bit mask of rows."""
    return np.array([mask >> row & 1 for row in candidates.tolist()], dtype=bool)
