"""Why a request would go to a site, on the wire."""

from __future__ import annotations

import math
from collections.abc import Sequence

from router.pb.v1 import router_pb2 as pb
from router.sites.types import SiteCost, SiteOption

PARTS = (
    "network_s",
    "queue_s",
    "compute_s",
    "saved_s",
    "harm_s",
    "late_s",
    "price_s",
    "share_s",
    "trust_s",
    "stay_s",
    "total_s",
)
"""Parts of a cost, by the same names in ``SiteCost`` and on the wire."""


def site_choice(
    rule: str, options: Sequence[SiteOption], costs: Sequence[SiteCost], now_s: float
) -> pb.SiteChoice:
    """What each option would cost; the least one of those that may be chosen is marked.

    Args:
        rule: Name of the rule.
        options: Never empty.
        costs: One for each option, in the same order.
        now_s: The clock.
    """
    may = [cost for cost in costs if cost.open] or list(costs)
    chosen = min(may, key=lambda cost: cost.total_s).site
    return pb.SiteChoice(
        rule=rule,
        chosen=chosen,
        options=[_option(one, cost, chosen, now_s) for one, cost in zip(options, costs, strict=True)],
    )


def _option(option: SiteOption, cost: SiteCost, chosen: str, now_s: float) -> pb.SiteOption:
    capacity = option.capacity
    age_s = now_s - capacity.at_s
    return pb.SiteOption(
        site=option.site,
        chosen=option.site == chosen,
        open=cost.open,
        reason=cost.reason,
        age_s=0.0 if math.isnan(age_s) else age_s,
        ready=capacity.ready,
        free_slots=capacity.free_slots,
        load=capacity.load,
        **{part: getattr(cost, part) for part in PARTS},
    )
