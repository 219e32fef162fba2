"""What an entry router knows: its fleet, its sites, what is under way; and how that changes while it runs.

Every change is checked first and swapped in as a whole. Nothing here that a restart loses is needed to answer
requests or to hand outcomes on: which site holds a lease is told by the lease's number, and whose lease it is, by
the site's own router.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from data.plan import PlanDocument
from data.types import RefusalReason, Status
from router.entry.lease_sites import LeaseSites
from router.entry.question import EntryLease
from router.entry.settings import EntrySettings
from router.entry.site_fleet import SiteFleet
from router.entry.site_link import SiteLink
from router.entry.site_state import SiteState
from router.pb.v1 import router_pb2 as pb
from router.serving.attempt_end import EXPIRED, AttemptEnd, InvalidEventError, read_end, seconds
from router.serving.first_token_tellers import FirstTokenTellers
from router.serving.lease_reports import attempt_outcome
from router.serving.live_listener import LiveListener
from router.serving.live_state import Serving
from router.serving.open_leases import OpenLeases
from router.serving.replies import refusal
from router.sites.types import SiteRule


@dataclass(frozen=True, slots=True)
class EntryParts:
    """What an entry router is put together from.

    Attributes:
        fleet: What follows from the fleet file.
        links: The way to each site, by name.
        rule: Chooses among the sites that the filters leave.
        listener: Told of everything.
        clock: Seconds that only go forward.
        settings: What is waited for.
        seed: Of the jitter of retry hints.
    """

    fleet: SiteFleet
    links: Mapping[str, SiteLink]
    rule: SiteRule
    listener: LiveListener
    clock: Callable[[], float]
    settings: EntrySettings
    seed: int = 0


class EntryState:
    """Everything that an entry decides on. All calls come from one event loop.

    Attributes:
        states: What each site's router has told, by site.
        serving: Versions that serve now.
        draining: New requests are refused.
        leases: Placements whose end has not been told, as far as they are remembered.
        holders: Which site holds a lease.
        tellers: Callers that tell of first tokens.
        choices: Hand-overs by (origin, site, whether the site is a home of the origin).
        fallbacks: Attempts that went on to another site, by (site that failed, why).
        breaches: Placements of a site where the tenant may not go, each taken back; by site that was asked.
    """

    def __init__(self, parts: EntryParts) -> None:
        self.fleet = parts.fleet
        self.links = parts.links
        self.rule = parts.rule
        self.listener = parts.listener
        self.clock = parts.clock
        self.settings = parts.settings
        self.states: dict[str, SiteState] = {site: link.state for site, link in parts.links.items()}
        self.serving = Serving()
        self.draining = False
        self.leases = OpenLeases(0)
        self.holders = LeaseSites()
        self.tellers = FirstTokenTellers()
        self.choices: Counter[tuple[str, str, bool]] = Counter()
        self.fallbacks: Counter[tuple[str, str]] = Counter()
        self.breaches: Counter[str] = Counter()
        self._rng = np.random.default_rng([parts.seed, 0xE17])

    def safe(self) -> bool:
        """Whether a request may be asked for: some site can be reached and the entry is not going down."""
        now_s = self.clock()
        return not self.draining and any(state.usable(now_s, self.settings) for state in self.states.values())

    def heard(self, link: SiteLink) -> None:
        """A site has reported, or its link is in trouble."""
        state = link.state
        if state.trouble:
            self.rule.failed(link.site, self.clock())
        elif state.lease_base:
            self.holders.learn(state.lease_base, link.site)
        self.serving.changed("endpoints")

    def apply_fleet(self, fleet: SiteFleet) -> None:
        """Swap in another fleet file's state; what is known of sites and ways stays."""
        self.fleet = fleet
        for site, link in self.links.items():
            link.times = fleet.times.get(site, {})
        self.serving.changed("fleet")

    def apply_plan(self, plan: PlanDocument) -> None:
        """Follow a plan's traffic shares."""
        self.rule.plan_changed(plan.shares)
        self.serving.plan_id = plan.plan_id
        self.serving.changed("plan")

    def begin_drain(self) -> None:
        """Refuse new requests from now on; outcomes are handed on until the end."""
        self.draining = True
        self.serving.changed("endpoints")

    def tick(self) -> None:
        """Upkeep, a few times a second: forget placements whose time is over."""
        now_s = self.clock()
        for lease in self.leases.expired(now_s):
            self._end(lease, AttemptEnd(Status.FAILED, EXPIRED, 0), now_s)

    def refuse(self, request_id: str, reason: RefusalReason, message: str = "") -> pb.RouteReply:
        """A refusal of the entry's own."""
        self.listener.refused(reason)
        return pb.RouteReply(
            request_id=request_id,
            refusal=refusal(reason, float(self._rng.random()), message),
            plan_id=self.serving.plan_id,
        )

    def site_of(self, lease_id: int) -> str:
        """Where a lease is held: as remembered, else by its number; empty = not known."""
        lease = self.leases.get(lease_id)
        return lease.site if isinstance(lease, EntryLease) else self.holders.site(lease_id)

    def reported(self, event: pb.ReportEvent, owner: str) -> None:
        """An outcome is on its way to its site: tell the rule, if the placement is remembered.

        What the site's router makes of the outcome is its own affair; a wrong one says nothing here.
        """
        lease = self.leases.get(event.lease_id)
        if not isinstance(lease, EntryLease) or lease.owner != owner:
            return
        try:
            end = read_end(event, not math.isnan(lease.first_token_s))
            told_s = seconds("first_token.ttft_s", event.first_token, "ttft_s") if end is None else end.ttft_s
        except InvalidEventError:
            return
        now_s = self.clock()
        if math.isnan(lease.first_token_s) and (end is None or end.output_tokens > 0):
            self._first_token(lease, told_s, end is not None, now_s)
        if end is None:
            self.leases.renew(lease, now_s)
        else:
            self._end(lease, end, now_s)

    def _first_token(self, lease: EntryLease, told_s: float, late: bool, now_s: float) -> None:
        if math.isnan(told_s) and not late:
            told_s = now_s - lease.decided_s
        lease.first_token_s = now_s
        lease.ttft_s = max(told_s - lease.rtt_s, 0.0)  # NaN stays NaN: told late and without a time
        if not late:
            self.tellers.told(lease.owner)
        if lease.observed and not math.isnan(lease.ttft_s):
            self.rule.first_token(lease.request, lease.site, now_s, lease.ttft_s + lease.rtt_s)
        self.listener.first_token(lease, now_s)

    def _end(self, lease: object, end: AttemptEnd, now_s: float) -> None:
        assert isinstance(lease, EntryLease)  # an entry opens no other ones
        self.leases.remove(lease)
        outcome = attempt_outcome(lease, end, now_s)
        if lease.observed:
            self.rule.finished(lease.request, lease.site, outcome)
        if end.status is Status.COMPLETED:
            self.fleet.reader.lengths.learn(lease.request.workload_class, end.output_tokens)
        self.listener.ended(lease, end, now_s)
