"""FleetMind on line: the site with the least cost among trusted ones, unless home is nearly as good."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from data.plan import TrafficShare
from data.types import Outcome, Status
from router.sites.base import SiteContext
from router.sites.cost import Asked, Parts, asked_of, parts_of, queue_s
from router.sites.sessions import SessionSites
from router.sites.settings import FleetMindSettings
from router.sites.shares import ShareBook
from router.sites.trust import Trust
from router.sites.types import Reach, SiteCost, SiteOption
from router.sites.unreported import Unreported
from router.types import RouteRequest

MOST_FAILED = 10_000
AWAY_SHARE = 0.2
"""A retry pays this share of its allowed time to go where its last attempt failed."""


@dataclass(frozen=True, slots=True)
class _Chosen:
    """What the latest choice expects of its site; picked up when the request is sent."""

    key: tuple[int, int]
    site: str
    ttft_s: float
    prefill_s: float


@dataclass(slots=True, eq=False)
class _Weighed:
    """One option with all that it costs; ``home`` says why it is at home, "" = it is not."""

    option: SiteOption
    parts: Parts
    share_s: float
    trust_s: float
    stay_s: float
    total_s: float
    may: bool
    home: str


class FleetMind:
    """The rule; see :class:`router.sites.types.SiteRule` for the methods.

    Among the options that may be sent to, the one with the least cost (:mod:`router.sites.cost`) wins; home has a
    bonus of ``margin_s + margin·cost``. Home is where the session was last served, if that may be sent to, else
    the site of the request's origin. If no option may be sent to, all are: a doubtful site beats a refusal.

    Args:
        settings: Knobs.
        context: Fleet and seed.
    """

    name = "fleetmind"
    reach: Reach = "all"

    def __init__(self, settings: FleetMindSettings, context: SiteContext) -> None:
        self.settings = settings
        self.trust = Trust(settings.dwell_s, settings.silence_s, settings.trial)
        self._shares = ShareBook()
        self._sessions = SessionSites()
        self._unreported = Unreported()
        self._failed: OrderedDict[int, str] = OrderedDict()
        self._origins = frozenset(site.name for site in context.fleet.sites)
        self._random = np.random.default_rng([context.seed, 0xF1EE])
        self._chosen: _Chosen | None = None

    def choose(self, request: RouteRequest, options: Sequence[SiteOption], now_s: float) -> int:
        """Position of the option with the least cost, ties at random."""
        weighed = self._weigh(request, options, now_s)
        some = [one for one in weighed if one.may] or weighed
        least = min(one.total_s for one in some)
        best = [one for one in some if one.total_s <= least]
        chosen = best[0] if len(best) == 1 else best[int(self._random.random() * len(best))]
        self._chosen = _Chosen(_key(request), chosen.option.site, chosen.parts.ttft_s, chosen.parts.prefill_s)
        return weighed.index(chosen)

    def explain(self, request: RouteRequest, options: Sequence[SiteOption], now_s: float) -> list[SiteCost]:
        """The cost of every option."""
        origin = self._origin(request)
        return [
            _site_cost(one, one.home or self._doubt(origin, one.option.site, one.may, now_s))
            for one in self._weigh(request, options, now_s)
        ]

    def sent(self, request: RouteRequest, site: str, now_s: float) -> None:
        """Charge the way, the session and the plan's shares."""
        chosen, key = self._chosen, _key(request)
        known = chosen is not None and chosen.key == key and chosen.site == site
        ttft_s, prefill_s = (chosen.ttft_s, chosen.prefill_s) if chosen is not None and known else (0.0, 0.0)
        self.trust.sent(key, self._origin(request), site, now_s, ttft_s)
        self._unreported.sent(site, request.model, prefill_s, now_s)
        self._shares.sent(request, site, now_s)
        self._sessions.served(request.tenant, request.model, request.session_id, site, request.input_tokens, now_s)

    def first_token(self, request: RouteRequest, site: str, now_s: float, ttft_s: float) -> None:
        """A sign of life."""
        self.trust.first_token(_key(request), self._origin(request), site, now_s, ttft_s)

    def finished(self, request: RouteRequest, site: str, outcome: Outcome) -> None:
        """Learn from how the attempt ended."""
        status, now_s = outcome.status, outcome.finished_s
        answered = outcome.ttft_s == outcome.ttft_s
        way = _key(request), self._origin(request), site, now_s
        if status is Status.COMPLETED:
            self.trust.ended(*way, "good")
        elif status is Status.FAILED:
            self.trust.ended(*way, "bad")
            self._failed[request.request_id] = site
            if len(self._failed) > MOST_FAILED:
                self._failed.popitem(last=False)
            return
        else:
            self.trust.ended(*way, "given_up" if status is Status.CANCELLED and not answered else "other")
        self._failed.pop(request.request_id, None)

    def failed(self, site: str, now_s: float, origin: str = "") -> None:
        """Shut the way, or all ways to the site."""
        self.trust.failed(site, now_s, origin if origin in self._origins else "")

    def plan_changed(self, shares: Sequence[TrafficShare]) -> None:
        """Follow another plan's shares."""
        self._shares.plan(shares)

    def _weigh(self, request: RouteRequest, options: Sequence[SiteOption], now_s: float) -> list[_Weighed]:
        origin, sites, settings = self._origin(request), [option.site for option in options], self.settings
        slowness = self.trust.slowness(origin, sites)
        may = [self.trust.may_send(origin, site, now_s) for site in sites]
        home, why = self._home(request, options, may, now_s)
        asked, away = asked_of(request), self._failed.get(request.request_id)
        excess = self._shares.excess(request, sites) if settings.share_price else [0.0] * len(sites)
        weighed = []
        for place, option in enumerate(options):
            parts = self._parts(request, asked, option, slowness[place], now_s)
            share_s = settings.share_price * asked.allowed_s * excess[place]
            away_s = AWAY_SHARE * asked.allowed_s if away == option.site else 0.0
            total_s = parts.total_s + share_s + away_s
            stay_s = settings.margin_s + settings.margin * max(total_s, 0.0) if place in home else 0.0
            at_home = why if place in home else ""
            weighed.append(
                _Weighed(
                    option, parts, share_s, parts.slow_s + away_s, stay_s, total_s - stay_s, may[place], at_home
                )
            )
        return weighed

    def _parts(
        self, request: RouteRequest, asked: Asked, option: SiteOption, slowness: float, now_s: float
    ) -> Parts:
        site, capacity, hits, unreported_s = option.site, option.capacity, option.hit_tokens, 0.0
        age_s = max(now_s - capacity.at_s, 0.0)
        if not capacity.counts_own:
            unreported_s = self._unreported.since(site, request.model, capacity.at_s)[1]
            session = (request.tenant, request.model, request.session_id)
            hits = max(hits, float(self._sessions.tokens_at(*session, site, now_s)))
        hits = min(max(hits, 0.0), max(asked.input_tokens - 1.0, 0.0))
        wait_s = queue_s(option, unreported_s, age_s)
        return parts_of(option, asked, hits, wait_s, slowness, age_s, self.settings)

    def _home(
        self, request: RouteRequest, options: Sequence[SiteOption], may: Sequence[bool], now_s: float
    ) -> tuple[set[int], str]:
        """Places of the options where the request would stay, and why; none if they may not be sent to."""
        site = self._sessions.site(request.tenant, request.model, request.session_id, now_s)
        held = {place for place, option in enumerate(options) if may[place] and option.site == site}
        if held:
            return held, "session"
        return {place for place, option in enumerate(options) if may[place] and option.local}, "local"

    def _doubt(self, origin: str, site: str, may: bool, now_s: float) -> str:
        state = self.trust.state(origin, site, now_s)
        return "trial" if state == "trial" else "" if may else "shunned"

    def _origin(self, request: RouteRequest) -> str:
        # Names that callers make up share one way: what is remembered is bounded by the fleet file.
        return request.origin if request.origin in self._origins else ""


def _site_cost(one: _Weighed, reason: str) -> SiteCost:
    parts = one.parts
    return SiteCost(
        site=one.option.site,
        network_s=parts.network_s,
        queue_s=parts.queue_s,
        compute_s=parts.compute_s,
        saved_s=parts.saved_s,
        harm_s=parts.harm_s,
        late_s=parts.late_s,
        price_s=parts.price_s,
        share_s=one.share_s,
        trust_s=one.trust_s,
        stay_s=one.stay_s,
        total_s=one.total_s,
        open=one.may,
        reason=reason,
    )


def _key(request: RouteRequest) -> tuple[int, int]:
    return request.request_id, request.attempt
