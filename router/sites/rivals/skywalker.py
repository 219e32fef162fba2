"""SkyWalker's rule between regions: home while a replica there has nothing pending, else where most are free."""

from __future__ import annotations

from collections.abc import Sequence

from router.policies.settings import NoSettings
from router.sites.base import SiteContext, SiteRuleBase
from router.sites.types import SiteOption
from router.types import RouteRequest


class Skywalker(SiteRuleBase):
    """Home if a replica is free there, else the site with most free ones, else home.

    A replica is free if no request waits there for its first token. In the original a request waits at its home
    balancer while no replica anywhere is free; a flow control in front does that here.
    """

    name = "skywalker"

    def __init__(self, settings: NoSettings, context: SiteContext) -> None:  # noqa: ARG002
        super().__init__(context)

    def costs(self, request: RouteRequest, options: Sequence[SiteOption], now_s: float) -> list[float]:  # noqa: ARG002
        """Less the number of free replicas; home counts as having more than all others while one is free there."""
        most = max(option.capacity.idle for option in options) + 1
        return [-float(self._free(option, most)) for option in options]

    def _free(self, option: SiteOption, most: int) -> float:
        if option.local:
            return float(most) if option.capacity.idle else 0.5
        return float(option.capacity.idle)
