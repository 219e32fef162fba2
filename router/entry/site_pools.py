"""All sites and models as rows of an endpoint table, so that the router's own hard filters choose who may serve.

A row is the pool of one model version at one site. It is *ready* while the site's router has been heard of and has
a replica of that version; permission, residency, context limit and the rest are the same code as everywhere, for
first choices and for fallbacks alike.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from data.catalog.types import ServiceTimes
from data.fleet.types import Fleet
from data.types import IntArray, RefusalReason
from router.endpoints import EndpointSpec, EndpointTable
from router.entry.settings import EntrySettings
from router.entry.site_state import SiteState
from router.filters import FilterRules, FilterSettings, eligible, refusal_reason
from router.serving.capacity_wire import NO_LIMITS, Limits
from router.sites.paths import SitePaths
from router.sites.types import Reach, SiteOption
from router.types import RouteRequest

UNLIMITED_TOKENS = 2**53
"""Stands for "not known": the site's own router still holds its limits."""
_TIMES = ServiceTimes(p0=0.0, p1=0.0, p2=0.0, d0=0.0, d1=0.0, d2=0.0)


class SitePools:
    """Pools of one fleet at the sites that have a router.

    Args:
        fleet: Who may use what and where, and the links.
        sites: Sites that have a router.
        filters: Settings of the hard filters; the load ceiling is held against the load that a site tells.
    """

    def __init__(self, fleet: Fleet, sites: Sequence[str], filters: FilterSettings) -> None:
        specs = [_spec(site, model.key, NO_LIMITS) for site in sites for model in fleet.models]
        self.fleet = fleet
        self.table = EndpointTable(specs)
        self.table.ready[:] = False
        self.rules = FilterRules(fleet, self.table, filters)
        self.paths = SitePaths(fleet)
        self._rows = {(spec.site, spec.model): row for row, spec in enumerate(specs)}
        self._steady = np.zeros(len(specs), dtype=bool)
        self._limits = [NO_LIMITS] * len(specs)

    def refresh(self, states: Mapping[str, SiteState], now_s: float, settings: EntrySettings) -> None:
        """Take over what is known of the sites as of ``now_s``."""
        table = self.table
        for (site, model), row in self._rows.items():
            state = states[site]
            pool = state.pools.get(model)
            self._limit(row, state.limits.get(model, NO_LIMITS))
            table.ready[row] = pool is not None and pool.ready > 0 and state.usable(now_s, settings)
            table.inflight[row] = 0.0 if pool is None else pool.load
            self._steady[row] = not state.trouble

    def candidates(self, request: RouteRequest, without: Collection[str] = ()) -> list[str]:
        """Sites that may serve the request now, less ``without``; those without trouble, if there are any."""
        linked = self.paths.to(request.origin)
        rows = [row for row in eligible(request, self.table, self.rules).tolist() if self._site(row) in linked]
        left = [row for row in rows if self._site(row) not in without]
        steady = [row for row in left if self._steady[row]]
        return [self._site(row) for row in steady or left]

    def refusal_reason(self, request: RouteRequest, without: Collection[str] = ()) -> RefusalReason:
        """Why no site but those of ``without`` may serve the request; no link to any counts as no endpoint."""
        table, ready = self.table, self.table.ready.copy()
        table.ready &= np.array([self._site(row) not in without for row in range(len(table))])
        try:
            return refusal_reason(request, table, self.rules) or RefusalReason.NO_ENDPOINT
        finally:
            table.ready[:] = ready

    def permitted(self, tenant: str, model: str) -> frozenset[str]:
        """Sites where this tenant's requests for this model may be served at all."""
        rows: IntArray = np.flatnonzero(self.rules.permitted(tenant, model).mask)
        return frozenset(self._site(row) for row in rows.tolist())

    def options(
        self, request: RouteRequest, sites: Sequence[str], states: Mapping[str, SiteState], reach: Reach
    ) -> list[SiteOption]:
        """What a rule of this reach is given of ``sites``, which have passed the filters."""
        paths = self.paths.to(request.origin)
        home = self.paths.home(request.origin, self.permitted(request.tenant, request.model))
        return [
            SiteOption(
                states[site].pools[request.model],
                hit_tokens=0.0,  # prefixes are known to the sites' own routers; a session has its home in the rule
                rtt_s=paths[site].rtt_s,
                transfer_s_per_token=paths[site].transfer_s_per_token,
                price_per_gb=paths[site].price_per_gb,
                local=site in home,
            )
            for site in sites
            if reach == "all" or site in home
        ]

    def _site(self, row: int) -> str:
        return self.table.specs[row].site

    def _limit(self, row: int, limits: Limits) -> None:
        if limits != self._limits[row]:
            self._limits[row] = limits
            spec = self.table.specs[row]
            self.table.put(row, _spec(spec.site, spec.model, limits))


def _spec(site: str, model: str, limits: Limits) -> EndpointSpec:
    unlimited = EndpointSpec(
        f"{site}/{model}", site, model, "", "", 1, _TIMES, UNLIMITED_TOKENS, 1, 1, UNLIMITED_TOKENS
    )
    return replace(
        unlimited,
        context_limit_tokens=UNLIMITED_TOKENS if math.isinf(limits.context_tokens) else int(limits.context_tokens),
        kv_capacity_tokens=UNLIMITED_TOKENS if math.isinf(limits.kv_tokens) else int(limits.kv_tokens),
    )
