"""What site rules share: the context they are built on, and a base whose notices do nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from data.fleet.types import Fleet
from data.plan import TrafficShare
from data.types import Outcome
from router.sites.types import Reach, SiteCost, SiteOption
from router.types import RouteRequest


@dataclass(frozen=True, slots=True)
class SiteContext:
    """What a factory may use to build a rule.

    Attributes:
        fleet: Its sites.
        seed: Seed of the rule's own generator.
    """

    fleet: Fleet
    seed: int = 0


class SiteRuleBase:
    """A rule that picks the option with the least of its own costs and learns nothing.

    Args:
        context: Fleet and seed.
    """

    name: ClassVar[str] = ""
    reach: Reach = "all"

    def __init__(self, context: SiteContext) -> None:
        self._random = np.random.default_rng([context.seed, 0x51E5])

    def costs(self, request: RouteRequest, options: Sequence[SiteOption], now_s: float) -> list[float]:
        """Cost of every option, the least wins."""
        raise NotImplementedError

    def choose(self, request: RouteRequest, options: Sequence[SiteOption], now_s: float) -> int:
        """Position of the option with the least cost, ties at random."""
        costs = self.costs(request, options, now_s)
        least = min(costs)
        best = [place for place, cost in enumerate(costs) if cost <= least]
        return best[0] if len(best) == 1 else best[int(self._random.random() * len(best))]

    def explain(self, request: RouteRequest, options: Sequence[SiteOption], now_s: float) -> list[SiteCost]:
        """The cost of every option, without its parts."""
        costs = self.costs(request, options, now_s)
        return [plain_cost(option, cost) for option, cost in zip(options, costs, strict=True)]

    def sent(self, request: RouteRequest, site: str, now_s: float) -> None:
        """Nothing to remember."""

    def first_token(self, request: RouteRequest, site: str, now_s: float, ttft_s: float) -> None:
        """Nothing to learn."""

    def finished(self, request: RouteRequest, site: str, outcome: Outcome) -> None:
        """Nothing to release."""

    def failed(self, site: str, now_s: float, origin: str = "") -> None:
        """Nothing to learn."""

    def plan_changed(self, shares: Sequence[TrafficShare]) -> None:
        """Nothing to follow."""


def plain_cost(option: SiteOption, total_s: float) -> SiteCost:
    """A cost without parts but the network's."""
    return SiteCost(
        site=option.site,
        network_s=option.rtt_s,
        queue_s=option.capacity.queue_s,
        compute_s=0.0,
        saved_s=0.0,
        harm_s=0.0,
        late_s=0.0,
        price_s=0.0,
        share_s=0.0,
        trust_s=0.0,
        stay_s=0.0,
        total_s=total_s,
        open=True,
        reason="local" if option.local else "",
    )
