"""The site stage of a one-level router: from the candidates to those of one site.

The order is always the same, for first tries, retries, and rows that a flow control has left open:
hard filters → (flow control) → site → policy. A flow control may have closed the site that would have been chosen
while another is open: then the choice is made among the open ones. A closed gate at home means that waiting there
costs more than its queue tells, and leaving for an open site is what spilling over is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from data.fleet.types import Fleet
from data.plan import TrafficShare
from data.types import IntArray, Outcome
from router.endpoints import EndpointTable
from router.filters import FilterRules
from router.sites.paths import SitePaths
from router.sites.summary import SiteSummary
from router.sites.types import SiteCost, SiteOption, SiteRule
from router.types import FleetView, RouteRequest


@dataclass(slots=True)
class SiteCounts:
    """What the stage has done since the start.

    Attributes:
        chosen: Requests sent to each site.
        away: Those of them that were not at home there.
    """

    chosen: dict[str, int]
    away: dict[str, int]


class SiteStage:
    """Chooses the site of each request over one endpoint table.

    Args:
        rule: The rule.
        fleet: Its links.
        table: The endpoints.
        rules: The hard filters of the same table: they say which sites are permitted at all.
    """

    def __init__(self, rule: SiteRule, fleet: Fleet, table: EndpointTable, rules: FilterRules) -> None:
        self.rule = rule
        self.counts = SiteCounts({}, {})
        self._table = table
        self._summary = SiteSummary(table, rules.settings.load_ceiling)
        self._sent: dict[tuple[int, int], str] = {}
        self.fleet_changed(fleet, rules)

    def fleet_changed(self, fleet: Fleet, rules: FilterRules) -> None:
        """Another fleet file is in force; what the rule has learned stays."""
        self._paths = SitePaths(fleet)
        self._rules = rules
        self._homes: dict[tuple[str, str, str], frozenset[str]] = {}
        self._version = self._table.version

    def allowed(self, request: RouteRequest, rows: IntArray) -> IntArray:
        """Those of the candidates that the rule may ever use: all, or the ones at home."""
        if self.rule.reach == "all" or not len(rows):
            return rows
        home = self._home(request)
        names = self._summary.names
        site_of = self._summary.site_of
        inside = np.array([name in home for name in names], dtype=bool)
        found: IntArray = rows[inside[site_of[rows]]]
        return found

    def narrowed(self, request: RouteRequest, rows: IntArray, view: FleetView) -> IntArray:
        """Those of ``rows`` (not empty) that stand at the chosen site.

        Raises:
            RuntimeError: The rule names no option.
        """
        options = self.options(request, rows, view)
        place = self.rule.choose(request, options, view.now_s)
        if not 0 <= place < len(options):
            raise RuntimeError(f"site rule {self.rule.name} chose option {place} of {len(options)}")
        return rows if len(options) == 1 else self._summary.rows_at(options[place].site, rows)

    def options(self, request: RouteRequest, rows: IntArray, view: FleetView) -> list[SiteOption]:
        """The sites of the candidates, with what each can do."""
        return self._summary.options(request, rows, view, self._paths.to(request.origin), self._home(request))

    def explain(self, request: RouteRequest, rows: IntArray, view: FleetView) -> list[SiteCost]:
        """The cost of every site of the candidates; nothing is changed."""
        return self.rule.explain(request, self.options(request, rows, view), view.now_s)

    def sent(self, request: RouteRequest, endpoint: int, now_s: float) -> None:
        """The request was dispatched to ``endpoint``."""
        site = self._table.specs[endpoint].site
        self._sent[request.request_id, request.attempt] = site
        self.counts.chosen[site] = self.counts.chosen.get(site, 0) + 1
        if site not in self._home(request):
            self.counts.away[site] = self.counts.away.get(site, 0) + 1
        self.rule.sent(request, site, now_s)

    def first_token(self, request: RouteRequest, now_s: float, ttft_s: float) -> None:
        """Its first token came."""
        site = self._sent.get((request.request_id, request.attempt))
        if site is not None:
            self.rule.first_token(request, site, now_s, ttft_s)

    def finished(self, request: RouteRequest, outcome: Outcome) -> None:
        """Its attempt ended."""
        site = self._sent.pop((request.request_id, request.attempt), None)
        if site is not None:
            self.rule.finished(request, site, outcome)

    def plan_changed(self, shares: Sequence[TrafficShare]) -> None:
        """Another plan's traffic shares."""
        self.rule.plan_changed(shares)

    def _home(self, request: RouteRequest) -> frozenset[str]:
        if self._version != self._table.version:
            self._homes.clear()
            self._version = self._table.version
        key = request.origin, request.tenant, request.model
        found = self._homes.get(key)
        if found is None:
            mask = self._rules.permitted(request.tenant, request.model).mask
            permitted = {self._table.specs[row].site for row in np.flatnonzero(mask).tolist()}
            found = self._paths.home(request.origin, permitted)
            if found:
                # Names that callers make up are at home nowhere and not remembered.
                self._homes[key] = found
        return found
