"""The plan's shares and nothing else: what a fleet does that trusts its planner between two plans."""

from __future__ import annotations

from collections.abc import Sequence

from data.plan import TrafficShare
from router.policies.settings import NoSettings
from router.sites.base import SiteContext, SiteRuleBase
from router.sites.shares import ShareBook
from router.sites.types import SiteOption
from router.types import RouteRequest


class SharesOnly(SiteRuleBase):
    """The site that lags most behind its planned share; the nearest one where the plan says nothing."""

    name = "shares_only"

    def __init__(self, settings: NoSettings, context: SiteContext) -> None:  # noqa: ARG002
        super().__init__(context)
        self._shares = ShareBook()

    def costs(self, request: RouteRequest, options: Sequence[SiteOption], now_s: float) -> list[float]:  # noqa: ARG002
        """Sent share less planned share."""
        sites = [option.site for option in options]
        if self._shares.planned(request, sites) is None:
            return [option.rtt_s for option in options]
        return self._shares.excess(request, sites)

    def sent(self, request: RouteRequest, site: str, now_s: float) -> None:
        """Count its work."""
        self._shares.sent(request, site, now_s)

    def plan_changed(self, shares: Sequence[TrafficShare]) -> None:
        """Follow another plan."""
        self._shares.plan(shares)
