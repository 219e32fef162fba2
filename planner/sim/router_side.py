"""The router inside a run: the same filters, leases, reports and index as in the service."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from data.fleet.types import Fleet
from data.plan import TrafficShare
from data.types import IntArray, Outcome, RefusalReason, Status
from models.output_length import LengthQuery, OutputLengthPredictor
from planner.sim.flight import Flight
from planner.sim.observation import HearsBlocks, Observer, Truth
from planner.sim.settings import SimSettings
from router.core import Decision, RouterCore
from router.endpoints import EndpointSpec, EndpointTable
from router.filters import FilterRules
from router.leases import LeaseBook
from router.prefix import EventPrefixIndex
from router.sites.base import SiteContext
from router.sites.stage import SiteStage
from router.sites.types import SiteRule
from router.types import FleetView, Policy, RouteRequest

SiteRuleFactory = Callable[[SiteContext], SiteRule]
"""Makes the rule of site choice of one run."""


class RouterSide:
    """What the router knows and does; it is never shown an engine.

    Args:
        fleet: Permissions and weights.
        specs: The endpoints; rows of ``table``.
        policy: Chooses among the endpoints that pass the hard filters.
        settings: Delays of what it sees.
        table: The endpoint table that the policy was built on.
        truth: What the observer samples.
        lengths: Predicts the output of each request and learns from those that complete; ``None`` = the mean of
            its class. It bears on all that ``expected_output_tokens`` does: score, worth and charged tokens.
        sites: Makes the rule that chooses the site first; ``None`` = the policy sees all sites at once.
        shares: Traffic shares of the plan that the rule follows.
    """

    def __init__(
        self,
        fleet: Fleet,
        specs: Sequence[EndpointSpec],
        policy: Policy,
        settings: SimSettings,
        table: EndpointTable,
        truth: Truth,
        lengths: OutputLengthPredictor | None = None,
        sites: SiteRuleFactory | None = None,
        shares: Sequence[TrafficShare] = (),
    ) -> None:
        self.policy = policy
        self.table = table
        self.book = LeaseBook(table)
        self.index = EventPrefixIndex(len(specs))
        self.rules = FilterRules(fleet, table)
        self.sites: SiteStage | None = None
        if sites is not None:
            self.sites = SiteStage(sites(SiteContext(fleet, settings.seed)), fleet, table, self.rules)
            self.sites.plan_changed(shares)
        self.core = RouterCore(table, self.index, self.rules, policy, self.book, self.sites)
        hears = policy if isinstance(policy, HearsBlocks) else None
        self.observer = Observer(settings, truth, table, self.book, self.index, policy.endpoint_reset, hears)
        self._lengths = lengths
        self._asked_s = 0.0
        self._class_weights = {kind.name: kind.weight for kind in fleet.classes}
        self._tenant_weights = {tenant.name: tenant.weight for tenant in fleet.tenants}

    def request(self, flight: Flight) -> RouteRequest:
        """The request as the router sees it: an expected output, never its own output length."""
        asked, kind = flight.request, flight.state.kind
        return RouteRequest(
            request_id=asked.request_id,
            model=flight.model,
            tenant=flight.tenant,
            workload_class=kind.name,
            origin=flight.paths.origin,
            input_tokens=asked.input_tokens,
            output_budget=asked.output_budget,
            expected_output_tokens=self._expected_tokens(flight),
            block_hashes=asked.block_hashes,
            block_tokens=asked.block_tokens,
            session_id=asked.session_id,
            slo=kind.slo,
            weight=self._class_weights.get(kind.name, 1.0) * self._tenant_weights.get(flight.tenant, 1.0),
            attempt=flight.attempt,
        )

    def view(self, flight: Flight, now_s: float) -> FleetView:
        """Everything that is visible now; late reports and events that are due are taken in first."""
        self.observer.refresh(now_s)
        return FleetView(now_s, self.table, self.index, flight.paths.rtt_s)

    def decide(
        self, route: RouteRequest, flight: Flight, view: FleetView, rows: IntArray | None = None
    ) -> Decision | RefusalReason:
        """Filter and choose; ``rows`` is what a flow control has left of the candidates."""
        return self.core.decide(route, view, flight.paths.reachable, rows)

    def dispatch(self, route: RouteRequest, decision: Decision) -> int:
        """Charge the choice and tell the policy; gives the lease."""
        return self.core.dispatch(route, decision)

    def first_token(self, flight: Flight, now_s: float) -> None:
        """The first token has passed the router."""
        assert flight.route is not None
        self.core.first_token(flight.route, flight.endpoint, flight.lease, now_s, now_s - flight.decided_s)

    def finished(self, flight: Flight, outcome: Outcome) -> None:
        """The attempt has ended: release what it held and tell the policy."""
        assert flight.route is not None
        self.core.finished(flight.route, flight.lease, outcome)
        if self._lengths is not None and outcome.status is Status.COMPLETED:
            self._lengths.observe(self._length_query(flight), outcome.output_tokens)

    def site_figures(self) -> dict[str, float]:
        """Requests sent to each site, and those sent away from home; empty without a choice of site."""
        if self.sites is None:
            return {}
        counts = self.sites.counts
        sent = {f"sent_to_{site}": float(n) for site, n in sorted(counts.chosen.items())}
        return {**sent, "sent_away": float(sum(counts.away.values()))}

    def left(self, now_s: float, endpoint: int) -> None:
        """A drained endpoint has gone; the router did it itself, so it knows at once."""
        self.observer.refresh(now_s)
        self.table.ready[endpoint] = False
        self.observer.left(endpoint)

    def _expected_tokens(self, flight: Flight) -> float:
        if self._lengths is None:
            return min(flight.state.expected_output_tokens, float(flight.request.output_budget))
        return self._lengths.predict(self._length_query(flight)).mean

    def _length_query(self, flight: Flight) -> LengthQuery:
        asked = flight.request
        # A retry carries its first arrival, but the predictor's clock must not run backwards.
        self._asked_s = max(self._asked_s, flight.arrival_s)
        return LengthQuery(
            workload_class=flight.state.kind.name,
            tenant=flight.tenant,
            model=flight.model,
            input_tokens=asked.input_tokens,
            output_budget=asked.output_budget,
            session_id=asked.session_id,
            now_s=self._asked_s,
        )
