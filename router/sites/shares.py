"""The traffic shares of a plan, and how far the traffic that was sent is from them."""

from __future__ import annotations

from collections.abc import Sequence

from data.plan import TrafficShare
from router.types import RouteRequest

HALF_LIFE_S = 60.0
Commodity = tuple[str, str, str, str]
"""Model, class, tenant, origin: what a share is a share of."""


def commodity_of(request: RouteRequest) -> Commodity:
    """The commodity that a request belongs to."""
    return request.model, request.workload_class, request.tenant, request.origin


class ShareBook:
    """Planned shares, and work sent of late by commodity and site: sums that halve each minute."""

    def __init__(self) -> None:
        self._planned: dict[Commodity, dict[str, float]] = {}
        self._sent: dict[Commodity, dict[str, float]] = {}
        self._at_s: dict[Commodity, float] = {}

    def plan(self, shares: Sequence[TrafficShare]) -> None:
        """Put a plan's shares in force; shares of what it serves. What was sent still counts."""
        planned: dict[Commodity, dict[str, float]] = {}
        for one in shares:
            sites = planned.setdefault((one.model, one.workload_class, one.tenant, one.origin), {})
            sites[one.site] = sites.get(one.site, 0.0) + max(one.share, 0.0)
        totals = {key: sum(sites.values()) for key, sites in planned.items()}
        self._planned = {
            key: {site: share / totals[key] for site, share in sites.items()}
            for key, sites in planned.items()
            if totals[key] > 0
        }
        self._sent = {key: sent for key, sent in self._sent.items() if key in self._planned}
        self._at_s = {key: at_s for key, at_s in self._at_s.items() if key in self._planned}

    def planned(self, request: RouteRequest, sites: Sequence[str]) -> list[float] | None:
        """Planned shares of the request's commodity, scaled to the ``sites`` that are there.

        ``None`` = the plan says nothing about it, or gives nothing to any of these sites.
        """
        shares = self._planned.get(commodity_of(request))
        if shares is None:
            return None
        found = [shares.get(site, 0.0) for site in sites]
        total = sum(found)
        return [share / total for share in found] if total > 0 else None

    def excess(self, request: RouteRequest, sites: Sequence[str]) -> list[float]:
        """Sent share less planned share of each site, -1 to 1; 0 where the plan says nothing."""
        planned = self.planned(request, sites)
        if planned is None:
            return [0.0] * len(sites)
        sent = self._sent.get(commodity_of(request), {})
        amounts = [sent.get(site, 0.0) for site in sites]
        total = sum(amounts)
        if total <= 0.0:
            return [-share for share in planned]
        return [amount / total - share for amount, share in zip(amounts, planned, strict=True)]

    def sent(self, request: RouteRequest, site: str, now_s: float) -> None:
        """Count the work of a request: prompt and expected output tokens."""
        key = commodity_of(request)
        if key not in self._planned:
            return
        amounts = self._sent.setdefault(key, {})
        fade = 0.5 ** (max(now_s - self._at_s.get(key, now_s), 0.0) / HALF_LIFE_S)
        for name in amounts:
            amounts[name] *= fade
        self._at_s[key] = max(now_s, self._at_s.get(key, now_s))
        amounts[site] = amounts.get(site, 0.0) + request.input_tokens + request.expected_output_tokens
