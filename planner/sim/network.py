"""Network between the origin of a request and the site of an endpoint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from data.errors import TraceError
from data.fleet.types import Fleet
from data.types import FloatArray
from router.endpoints import EndpointSpec
from router.sites.paths import UNLINKED, SitePaths
from router.types import BoolArray


@dataclass(frozen=True, slots=True)
class Paths:
    """From one origin to every endpoint.

    A request is sent over a connection that is open already: the prompt arrives ``rtt/2 + tokens · 4 bytes /
    bandwidth`` after the decision, and everything that comes back is ``rtt/2`` under way.

    Attributes:
        origin: Name of that site.
        rtt_s: Shape (endpoints,); infinite where there is no link.
        half_rtt_s: Half of it, as plain numbers.
        s_per_token: Transfer time of one prompt token.
        reachable: ``None`` = all endpoints are.
    """

    origin: str
    rtt_s: FloatArray
    half_rtt_s: tuple[float, ...]
    s_per_token: tuple[float, ...]
    reachable: BoolArray | None

    def sent_after_s(self, endpoint: int, tokens: int) -> float:
        """How long a prompt is under way to an endpoint."""
        return self.half_rtt_s[endpoint] + self.s_per_token[endpoint] * tokens


class Network:
    """Paths of every origin, computed when an origin is first seen.

    Args:
        fleet: Its links.
        specs: The endpoints.
    """

    def __init__(self, fleet: Fleet, specs: Sequence[EndpointSpec]) -> None:
        self._names = [site.name for site in fleet.sites]
        self._sites = [spec.site for spec in specs]
        self._links = SitePaths(fleet)
        self._paths: dict[str, Paths] = {}
        self.default_origin = self._links.default_origin
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
        if origin not in self._names:
            raise TraceError("unknown site", field="origin", value=origin, expected=", ".join(self._names))
        links = self._links.to(origin)
        facts = [links.get(site, UNLINKED) for site in self._sites]
        rtt_s = np.array([one.rtt_s for one in facts])
        reachable = np.isfinite(rtt_s)
        return Paths(
            origin,
            rtt_s,
            tuple(one.rtt_s / 2 for one in facts),
            tuple(one.transfer_s_per_token for one in facts),
            None if reachable.all() else reachable,
        )
