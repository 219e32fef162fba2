"""Network facts between sites: round trip, transfer time and price, and where a request is at home."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from data.fleet.types import Fleet

BYTES_PER_TOKEN = 4.0
"""What one token weighs on the wire: about four characters of text."""


@dataclass(frozen=True, slots=True)
class PathFacts:
    """From one origin to one site.

    Attributes:
        rtt_s: Round trip.
        transfer_s_per_token: Transfer time of one prompt token.
        price_per_gb: Price of the traffic.
    """

    rtt_s: float
    transfer_s_per_token: float
    price_per_gb: float


UNLINKED = PathFacts(float("inf"), 0.0, 0.0)
"""Where there is no link; a candidate has one, unless its caller has not looked."""


class SitePaths:
    """Paths between the sites of a fleet.

    Args:
        fleet: Its sites and links.
    """

    def __init__(self, fleet: Fleet) -> None:
        names = [site.name for site in fleet.sites]
        entries = [site.name for site in fleet.sites if site.role == "entry"]
        self.default_origin = (entries or names)[0]
        """Origin of requests that name none: the first entry site, or else the first site."""
        self._paths: dict[str, dict[str, PathFacts]] = {name: {} for name in names}
        for origin in names:
            for site in names:
                link = fleet.link(origin, site)
                if link is not None:
                    per_token_s = BYTES_PER_TOKEN / (link.bandwidth_gbps * 1e9 / 8)
                    self._paths[origin][site] = PathFacts(link.rtt_s, per_token_s, link.price_per_gb)

    def to(self, origin: str) -> dict[str, PathFacts]:
        """Facts of every site that ``origin`` ("" = the default one) has a link to; none for an unknown one."""
        return self._paths.get(origin or self.default_origin, {})

    def home(self, origin: str, permitted: Collection[str]) -> frozenset[str]:
        """The nearest of the ``permitted`` sites: its own one where it is permitted, else the shortest round trip.

        Several that are equally near are all at home; none that is linked gives none.
        """
        near = {site: facts.rtt_s for site, facts in self.to(origin).items() if site in permitted}
        least = min(near.values(), default=0.0)
        return frozenset(site for site, rtt_s in near.items() if rtt_s == least)
