"""What a rule that chooses a site is given, what it answers and what it is told: the same at one and two levels.

At one level the router sees every endpoint and sums them up itself (``router.sites.summary``). At two levels the
router of each site sends its sums to the entry, which sees no endpoint at all. A rule cannot tell the difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from data.plan import TrafficShare
from data.types import Outcome
from router.types import RouteRequest


@dataclass(frozen=True, slots=True)
class ReadyCapacity:
    """What one site can do for one model version now. Only replicas that take new requests count.

    Attributes:
        site: Name in the fleet file.
        model: Key ``name@version``; another version is another model.
        ready: Replicas that are ready, healthy and not draining; at least 1 in an option.
        idle: Those of them without a request that waits for its first token.
        free_slots: Requests that they may still take before the load ceiling (or ``max_seqs``) is reached.
        load: Requests in flight as a share of all places under the ceiling; 0 or more, may exceed 1.
        queue_s: Predicted wait before the prefill of a new request begins, at the replica where it ends soonest.
        fixed_s: Fixed time of its prefill there, whatever its length.
        prefill_s_per_token: Prefill time of one uncached token there.
        prefill_s_per_token2: Factor of ``uncached · (cached + uncached / 2)`` in the prefill time there.
        tpot_s: Predicted time of one output token for one more request there.
        busy: Requests that a new prefill would hold up there: those that generate and those that wait.
        at_s: When this was true, on the *receiver's* clock: it stamps a report on arrival, less the age that the
            report itself states. Clocks of two machines are never compared.
        counts_own: What the asker itself has sent there is in these figures whenever it was sent, as at one level;
            otherwise only what was sent before ``at_s``, and a rule adds the rest.
        sequence: Counts up with each report of the site; a report with a lower number is an old one. A new
            ``incarnation`` of the site's router starts again.
        incarnation: Changes whenever the site's router starts anew.
    """

    site: str
    model: str
    ready: int
    idle: int
    free_slots: float
    load: float
    queue_s: float
    fixed_s: float
    prefill_s_per_token: float
    prefill_s_per_token2: float
    tpot_s: float
    busy: float
    at_s: float
    counts_own: bool = False
    sequence: int = 0
    incarnation: int = 0


@dataclass(frozen=True, slots=True)
class SiteOption:
    """One site that may serve one request: it has passed every hard filter.

    Attributes:
        capacity: What it can do for the model.
        hit_tokens: Prompt tokens that its best replica is predicted to hold; 0 = none, or not known.
        rtt_s: Round trip from the request's origin to the site.
        transfer_s_per_token: Transfer time of one prompt token on that path.
        price_per_gb: Price of the link's traffic.
        price_per_token: Price of one output token at the site.
        local: The request is at home here: the nearest permitted site of its origin, see
            :meth:`router.sites.paths.SitePaths.home`.
    """

    capacity: ReadyCapacity
    hit_tokens: float
    rtt_s: float
    transfer_s_per_token: float = 0.0
    price_per_gb: float = 0.0
    price_per_token: float = 0.0
    local: bool = False

    @property
    def site(self) -> str:
        """Name of the site."""
        return self.capacity.site


@dataclass(frozen=True, slots=True)
class SiteCost:
    """Why a site stands where it stands in one decision; seconds, the least ``total_s`` wins.

    ``total_s`` is the sum of the other times, less ``stay_s`` at the site where the request would stay.

    Attributes:
        site: Which one.
        network_s: Round trip and transfer of the prompt.
        queue_s: Predicted wait, what was sent there since the report included.
        compute_s: Prefill of the tokens that are not cached, and the decode steps.
        saved_s: Prefill time that the cache saves; told for information, ``compute_s`` is less by it already.
        harm_s: Delay that its prefill lays on the requests already there.
        late_s: Price of missing the targets there.
        price_s: Money, in seconds.
        share_s: Above 0 where the plan's share is used up, below 0 where it is not.
        trust_s: Price of failures, slowness and an old report.
        stay_s: Bonus of the site where the request, its session or its origin is at home.
        total_s: The cost.
        open: Whether the site may be chosen: not while it is shunned or its trial places are taken, as long as
            another one may.
        reason: Why not, or why it is preferred; one of ``REASONS``.
    """

    site: str
    network_s: float
    queue_s: float
    compute_s: float
    saved_s: float
    harm_s: float
    late_s: float
    price_s: float
    share_s: float
    trust_s: float
    stay_s: float
    total_s: float
    open: bool
    reason: str


REASONS = ("", "local", "session", "shunned", "trial")
"""Words of ``SiteCost.reason``: nothing special; home of the origin; home of the session; kept out after failures;
back on trial, with few requests at a time."""


Reach = Literal["all", "home"]


class SiteRule(Protocol):
    """Chooses a site among those that the hard filters have left.

    It must never be asked about, and cannot name, a site that a filter refused: first tries, retries and
    fallbacks alike give it options of permitted sites alone. Time is an argument everywhere.
    """

    @property
    def name(self) -> str:
        """Registry name."""
        ...

    @property
    def reach(self) -> Reach:
        """What the rule may be shown: all options, or those at home alone, whatever becomes of them."""
        ...

    def choose(self, request: RouteRequest, options: Sequence[SiteOption], now_s: float) -> int:
        """Position of the chosen option; ``options`` is never empty."""
        ...

    def explain(self, request: RouteRequest, options: Sequence[SiteOption], now_s: float) -> list[SiteCost]:
        """The cost of every option, in the order of ``options``; nothing is changed and nothing drawn."""
        ...

    def sent(self, request: RouteRequest, site: str, now_s: float) -> None:
        """The request's current attempt was sent to ``site``."""
        ...

    def first_token(self, request: RouteRequest, site: str, now_s: float, ttft_s: float) -> None:
        """Its first token came, ``ttft_s`` after it was sent."""
        ...

    def finished(self, request: RouteRequest, site: str, outcome: Outcome) -> None:
        """The attempt ended at ``outcome.finished_s``, however it ended; exactly once for each ``sent``.

        A failure, or a cancel before the first token, is evidence against the site; a refusal is not.
        """
        ...

    def failed(self, site: str, now_s: float, origin: str = "") -> None:
        """Something is known to be wrong with the site or the way to it that belongs to no request.

        For example its stream of reports broke, or a connection was refused. ``origin`` "" = seen from anywhere.
        """
        ...

    def plan_changed(self, shares: Sequence[TrafficShare]) -> None:
        """A new plan's traffic shares; empty = no plan, no preference."""
        ...
