"""GORGO's cross-region cost as a choice of site: round trip, queued prefill and own prefill of the uncached part.

``rtt_aware_gorgo`` among the routing policies is the same rule over all replicas of all sites at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from router.policies.settings import Checked, at_least
from router.sites.base import SiteContext, SiteRuleBase
from router.sites.types import SiteOption
from router.types import RouteRequest


@dataclass(frozen=True, slots=True)
class GorgoSettings(Checked):
    """Settings of the cost.

    Attributes:
        rtt_weight: Factor of the round trip.
        queue_weight: Factor of the queued prefill time.
    """

    rtt_weight: float = at_least(0, 1.0)
    queue_weight: float = at_least(0, 1.0)


class Gorgo(SiteRuleBase):
    """argmin over sites of round trip + queue + prefill of the uncached part at the site's best replica."""

    name = "gorgo"

    def __init__(self, settings: GorgoSettings, context: SiteContext) -> None:
        super().__init__(context)
        self._settings = settings

    def costs(self, request: RouteRequest, options: Sequence[SiteOption], now_s: float) -> list[float]:  # noqa: ARG002
        """Predicted TTFT at each site."""
        return [self._cost(request, option) for option in options]

    def _cost(self, request: RouteRequest, option: SiteOption) -> float:
        capacity, settings = option.capacity, self._settings
        uncached = request.input_tokens - option.hit_tokens
        prefill = uncached * (
            capacity.prefill_s_per_token + capacity.prefill_s_per_token2 * (option.hit_tokens + 0.5 * uncached)
        )
        own = capacity.fixed_s + prefill
        return settings.rtt_weight * option.rtt_s + settings.queue_weight * capacity.queue_s + own
