"""Network between the origin of a request and the site of an endpoint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from data.errors import TraceError
from data.fleet.types import Fleet
from data.types import FloatArray
from router.endpoints import EndpointSpec
from router.types import BoolArray

BYTES_PER_TOKEN = 4.0
"""What one prompt token weighs on the wire: about four characters of text."""


@dataclass(frozen=True, slots=True)
class Paths:
    """From one origin to every endpoint.

    A request is sent over a connection that is open already: the prompt arrives ``rtt/2 + tokens · 4 bytes /
    bandwidth`` after the decision, and everything that comes back is ``rtt/2`` under way.

    Attributes:
        rtt_s: Shape (endpoints,); infinite where there is no link.
        half_rtt_s: Half of it, as plain numbers.
        s_per_token: Transfer time of one prompt token.
        reachable: ``None`` = all endpoints are.
    """

    rtt_s: FloatArray
    half_rtt_s: tuple[float, ...]
    s_per_token: tuple[float, ...]
    reachable: BoolArray | None


class Network:
    """Paths of every origin, computed when an origin is first seen.

    Args:
        fleet: Its links.
        specs: The endpoints.
    """

    def __init__(self, fleet: Fleet, specs: Sequence[EndpointSpec]) -> None:
        self._fleet = fleet
        self._sites = [spec.site for spec in specs]
        self._paths: dict[str, Paths] = {}
        entries = [site.name for site in fleet.sites if site.role == "entry"]
        self.default_origin = (entries or [site.name for site in fleet.sites])[0]
        """Origin of requests that name none: the first entry site, or else the first site."""

    def paths(self, origin: str) -> Paths:
        """Paths from ``origin`` ("" = the default one).

        Raises:
            TraceError: If the fleet has no site of that name.
        """
        found = self._paths.get(origin)
        if found is None:
            found = self._paths[origin] = self._compute(origin or self.default_origin)
        return found

    def _compute(self, origin: str) -> Paths:
        names = [site.name for site in self._fleet.sites]
        if origin not in names:
            raise TraceError("unknown site", field="origin", value=origin, expected=", ".join(names))
        links = {site: self._fleet.link(origin, site) for site in set(self._sites)}
        rtt, per_token = [], []
        for site in self._sites:
            link = links[site]
            rtt.append(float("inf") if link is None else link.rtt_s)
            per_token.append(0.0 if link is None else BYTES_PER_TOKEN / (link.bandwidth_gbps * 1e9 / 8))
        rtt_s = np.array(rtt)
        reachable = np.isfinite(rtt_s)
        return Paths(
            rtt_s, tuple(value / 2 for value in rtt), tuple(per_token), None if reachable.all() else reachable
        )
