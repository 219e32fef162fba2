"""Network round trips from the site where a request entered to every endpoint."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from data.fleet.types import Fleet
from data.types import FloatArray
from router.endpoints import EndpointTable
from router.types import BoolArray


@dataclass(frozen=True, slots=True)
class Path:
    """From one origin to every row of the endpoint table.

    Attributes:
        rtt_s: Shape (endpoints,); infinite where there is no link.
        reachable: ``None`` = all endpoints are.
    """

    rtt_s: FloatArray
    reachable: BoolArray | None


class PathTable:
    """Paths of every site, computed when a site is first asked for and again when the table changes.

    Args:
        fleet: Its sites and links.
        table: The endpoints.
    """

    def __init__(self, fleet: Fleet, table: EndpointTable) -> None:
        self._fleet = fleet
        self._table = table
        self._sites = {site.name for site in fleet.sites}
        self._paths: dict[str, Path] = {}
        self._version = table.version
        entries = [site.name for site in fleet.sites if site.role == "entry"]
        self.default_origin = (entries or [site.name for site in fleet.sites])[0]
        """Origin of requests that name none: the first entry site, or else the first site."""

    def known(self, origin: str) -> bool:
        """Whether the fleet has a site of that name."""
        return origin in self._sites

    def of(self, origin: str) -> Path:
        """Path from a known site."""
        if self._version != self._table.version:
            self._paths.clear()
            self._version = self._table.version
        found = self._paths.get(origin)
        if found is None:
            found = self._paths[origin] = self._compute(origin)
        return found

    def _compute(self, origin: str) -> Path:
        # A vacant row has no site; it is no candidate either.
        rtt = {"": 0.0}
        for site in self._sites:
            link = self._fleet.link(origin, site)
            rtt[site] = float("inf") if link is None else link.rtt_s
        rtt_s = np.array([rtt.get(spec.site, float("inf")) for spec in self._table.specs])
        reachable = np.isfinite(rtt_s)
        return Path(rtt_s, None if reachable.all() else reachable)
