"""The decision core: filter, choose a site, choose an endpoint, charge, release.

The service and the simulator run this same code.

It knows neither engines nor callers. Whoever owns it keeps the endpoint table and the prefix index up to date and
tells it of first tokens and ends; time is an argument everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass

from data.types import IntArray, Outcome, RefusalReason
from router.endpoints import EndpointTable
from router.filters import FilterRules, eligible, refusal_reason
from router.leases import LeaseBook
from router.sites.stage import SiteStage
from router.types import BoolArray, FleetView, Policy, PrefixLookup, RouteRequest


@dataclass(frozen=True, slots=True)
class Decision:
    """One choice, not charged yet.

    Attributes:
        endpoint: Row of the table.
        candidates: Endpoints that passed the hard filters, at all sites.
        hit_tokens: Predicted prefix-hit tokens there.
        view: What was known; a decision is charged at its time.
    """

    endpoint: int
    candidates: int
    hit_tokens: float
    view: FleetView


class RouterCore:
    """Filters, a policy and the accounting of what is in flight, over one endpoint table.

    Args:
        table: The endpoints.
        prefixes: Index of what they hold.
        rules: Hard filters.
        policy: Chooses among the endpoints that pass; it was built on the same table.
        book: Accounting of the same table.
        sites: Chooses the site before the policy chooses among its endpoints; ``None`` = the policy is shown the
            endpoints of all sites at once.
    """

    def __init__(
        self,
        table: EndpointTable,
        prefixes: PrefixLookup,
        rules: FilterRules,
        policy: Policy,
        book: LeaseBook,
        sites: SiteStage | None = None,
    ) -> None:
        self.table = table
        self.prefixes = prefixes
        self.rules = rules
        self.policy = policy
        self.book = book
        self.sites = sites

    def decide(
        self,
        request: RouteRequest,
        view: FleetView,
        reachable: BoolArray | None = None,
        rows: IntArray | None = None,
    ) -> Decision | RefusalReason:
        """Filter and choose; nothing is charged.

        Args:
            request: What is routed.
            view: What is known now.
            reachable: Endpoints that the request's origin has a path to; ``None`` = all.
            rows: What a flow control has left of the candidates, filtered just now; ``None`` = filter here.

        Raises:
            RuntimeError: If the policy names an endpoint that is not a candidate.
        """
        candidates = self.candidates(request, reachable) if rows is None else rows
        if not len(candidates):
            return self.refusal_reason(request)
        shown = candidates if self.sites is None else self.sites.narrowed(request, candidates, view)
        endpoint = int(self.policy.choose(request, shown, view))
        place = int(shown.searchsorted(endpoint))
        if place == len(shown) or shown[place] != endpoint:
            raise RuntimeError(f"policy {self.policy.name} chose endpoint {endpoint}, which is not a candidate")
        return Decision(endpoint, len(candidates), self._hit_tokens(request, endpoint), view)

    def candidates(self, request: RouteRequest, reachable: BoolArray | None = None) -> IntArray:
        """Rows that may serve the request, ascending."""
        rows = eligible(request, self.table, self.rules)
        if reachable is not None:
            rows = rows[reachable[rows]]
        return rows if self.sites is None else self.sites.allowed(request, rows)

    def refusal_reason(self, request: RouteRequest) -> RefusalReason:
        """Why no endpoint may serve the request; one without a path to any counts as without an endpoint."""
        return refusal_reason(request, self.table, self.rules) or RefusalReason.NO_ENDPOINT

    def dispatch(self, request: RouteRequest, decision: Decision) -> int:
        """Charge the choice and tell the policy; gives the lease."""
        lease = self.book.open(request, decision.endpoint, decision.hit_tokens, decision.view.now_s)
        self.policy.dispatched(request, decision.endpoint, decision.view)
        if self.sites is not None:
            self.sites.sent(request, decision.endpoint, decision.view.now_s)
        return lease

    def first_token(self, request: RouteRequest, endpoint: int, lease: int, now_s: float, ttft_s: float) -> None:
        """The first token came, ``ttft_s`` after the dispatch."""
        self.book.first_token(lease, now_s)
        self.policy.first_token(request, endpoint, now_s, ttft_s)
        if self.sites is not None:
            self.sites.first_token(request, now_s, ttft_s)

    def finished(self, request: RouteRequest, lease: int, outcome: Outcome) -> None:
        """The attempt has ended: release what it held and tell the policy."""
        self.book.close(lease, outcome.finished_s, outcome.status)
        self.policy.finished(request, outcome)
        if self.sites is not None:
            self.sites.finished(request, outcome)

    def _hit_tokens(self, request: RouteRequest, endpoint: int) -> float:
        """``FleetView.hit_tokens`` of one endpoint, without the arithmetic for all others."""
        if not request.block_hashes:
            return 0.0
        blocks = int(self.prefixes.matched_blocks(request.block_hashes)[endpoint])
        return float(min(blocks * request.block_tokens, request.input_tokens - 1))
