"""Every request stays at home, whatever happens there: what a fleet does without any choice of site."""

from __future__ import annotations

from collections.abc import Sequence

from router.policies.settings import NoSettings
from router.sites.base import SiteContext, SiteRuleBase
from router.sites.types import Reach, SiteOption
from router.types import RouteRequest


class LocalOnly(SiteRuleBase):
    """Shown the options at home alone; several that are equally near share by chance."""

    name = "local_only"
    reach: Reach = "home"

    def __init__(self, settings: NoSettings, context: SiteContext) -> None:  # noqa: ARG002
        super().__init__(context)

    def costs(self, request: RouteRequest, options: Sequence[SiteOption], now_s: float) -> list[float]:  # noqa: ARG002
        """Round trips."""
        return [option.rtt_s for option in options]
