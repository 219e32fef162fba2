"""Cut links inside a run: who cannot be reached from where, and what was under way when it happened.

Nothing passes a cut link, and nobody is told. A sender notices after a while that its connection is dead: what was
in flight fails then, and so does what is sent while the link is cut. Until then engines go on with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from data.errors import SettingError
from data.fleet.types import Fleet
from planner.sim.events import EventQueue
from planner.sim.flight import Flight
from planner.sim.settings import SiteFailure
from router.types import BoolArray

OnBroken = Callable[[float, Flight], None]
"""Moment, and a flight whose current attempt has a dead connection."""


class Links:
    """The cut links of one run, and the flights that cross sites.

    Args:
        fleet: Its sites.
        sites: Site of each endpoint.
        events: Where cuts are put.

    Attributes:
        sites: Site of each endpoint.
        on_broken: Told of each flight whose connection is dead; set by whoever puts the run together.
        on_changed: Told of the moment of each cut and mend; the same.
    """

    def __init__(self, fleet: Fleet, sites: Sequence[str], events: EventQueue) -> None:
        self._names = {site.name for site in fleet.sites}
        self.sites = tuple(sites)
        self._events = events
        self._cut: dict[frozenset[str], list[SiteFailure]] = {}
        self._crossing: dict[frozenset[str], dict[Flight, int]] = {}
        self.watching = False
        """Whether any link is cut during the run; without one, nothing here costs anything."""
        self.on_broken: OnBroken
        self.on_changed: Callable[[float], None]

    def begin(self, start_s: float, failures: Sequence[SiteFailure]) -> None:
        """Put the cuts among ``failures`` into the queue.

        Raises:
            SettingError: A site is unknown.
        """
        for failure in failures:
            if failure.kind != "link_cut":
                continue
            for name in (failure.site, failure.peer):
                if name not in self._names:
                    expected = ", ".join(sorted(self._names))
                    raise SettingError("unknown site", field="site_failures", value=name, expected=expected)
            self.watching = True
            self._events.push(max(failure.at_s, start_s), self._on_cut, failure)

    def cut(self, origin: str, endpoint: int) -> bool:
        """Whether a link on the way from ``origin`` to an endpoint is cut now."""
        return self.watching and frozenset((origin, self.sites[endpoint])) in self._cut

    def silent(self, origin: str) -> BoolArray | None:
        """Endpoints whose reports do not reach ``origin`` now; ``None`` = none."""
        if not self._cut:
            return None
        away = {name for name in self._names if frozenset((origin, name)) in self._cut}
        return np.array([site in away for site in self.sites], dtype=bool) if away else None

    def sent(self, flight: Flight, now_s: float) -> None:
        """The flight's attempt was dispatched to its endpoint."""
        if not self.watching:
            return
        pair = frozenset((flight.paths.origin, self.sites[flight.endpoint]))
        self._crossing.setdefault(pair, {})[flight] = flight.attempt
        if pair in self._cut:
            self._break(now_s, flight, self._cut[pair][0].notice_s)

    def ended(self, flight: Flight) -> None:
        """Its attempt has ended."""
        if self.watching:
            pair = frozenset((flight.paths.origin, self.sites[flight.endpoint]))
            self._crossing.get(pair, {}).pop(flight, None)

    def _on_cut(self, now_s: float, failure: SiteFailure) -> None:
        pair = frozenset((failure.site, failure.peer))
        self._cut.setdefault(pair, []).append(failure)
        for flight in self._crossing.get(pair, {}):
            self._break(now_s, flight, failure.notice_s)
        self._events.push(now_s + failure.duration_s, self._on_mend, failure)
        self.on_changed(now_s)

    def _on_mend(self, now_s: float, failure: SiteFailure) -> None:
        pair = frozenset((failure.site, failure.peer))
        self._cut[pair].remove(failure)
        if not self._cut[pair]:
            del self._cut[pair]
        self.on_changed(now_s)

    def _break(self, now_s: float, flight: Flight, notice_s: float) -> None:
        flight.broken = True
        self._events.push(now_s + notice_s, self._noticed, (flight, flight.attempt))

    def _noticed(self, now_s: float, argument: tuple[Flight, int]) -> None:
        flight, attempt = argument
        if flight.active and flight.attempt == attempt:
            self.on_broken(now_s, flight)
