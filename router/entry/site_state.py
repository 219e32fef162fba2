"""What an entry router knows of one site, and how old that is by the entry's own clock."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from data.catalog.types import ServiceTimes
from router.entry.settings import EntrySettings
from router.pb.v1 import router_pb2 as pb
from router.serving.capacity_wire import Limits, read_capacity
from router.sites.types import ReadyCapacity

Times = Mapping[str, ServiceTimes]
NO_TIMES = ServiceTimes(p0=0.0, p1=0.0, p2=0.0, d0=0.0, d1=0.0, d2=0.0)


class Freshness(enum.StrEnum):
    """How far what is known of a site can be believed."""

    FRESH = "fresh"
    STALE = "stale"
    GONE = "gone"
    NEVER_SEEN = "never_seen"


@dataclass(slots=True)
class SiteState:
    """One site as its router told of it.

    Attributes:
        site: Its name.
        pools: What it can do, by model.
        limits: Largest prompts that it takes, by model; unknown of an older router.
        heard_s: When its router was last heard, on the entry's clock; minus infinity = never.
        sequence: Number of its last report.
        lease_base: Of the router's process; 0 = not known.
        draining: Its router goes down.
        older: Its router can't tell its capacity: how many replicas are ready is all that is known.
        trouble: Why it can't be heard now; empty = it can.
        plan_id: Plan that it follows.
    """

    site: str
    pools: dict[str, ReadyCapacity] = field(default_factory=dict)
    limits: dict[str, Limits] = field(default_factory=dict)
    heard_s: float = -math.inf
    sequence: int = 0
    lease_base: int = 0
    draining: bool = False
    older: bool = False
    trouble: str = ""
    plan_id: str = ""

    def age_s(self, now_s: float) -> float:
        """Time since its router was last heard; infinite = never."""
        return now_s - self.heard_s

    def freshness(self, now_s: float, settings: EntrySettings) -> Freshness:
        """How far it can be believed."""
        age_s = self.age_s(now_s)
        if math.isinf(age_s):
            return Freshness.NEVER_SEEN
        if age_s > settings.gone_s:
            return Freshness.GONE
        return Freshness.STALE if age_s > settings.stale_s or self.older else Freshness.FRESH

    def usable(self, now_s: float, settings: EntrySettings) -> bool:
        """Whether requests may go there: heard of not too long ago, and not going down."""
        return not self.draining and self.freshness(now_s, settings) in (Freshness.FRESH, Freshness.STALE)

    def take(self, report: pb.CapacityReport, now_s: float) -> bool:
        """Take a report in as of ``now_s``; gives whether it is newer than what is known.

        Only lengths of time in the report count: when it was made is this clock less the age that it states. What
        it says of other sites is not this router's to say, and is left out.
        """
        if report.lease_base == self.lease_base and report.sequence <= self.sequence:
            return False
        capacities, limits = read_capacity(report, now_s)
        self.pools = {one.model: one for one in capacities if one.site == self.site}
        self.limits = {model: limit for (site, model), limit in limits.items() if site == self.site}
        self.heard_s, self.sequence, self.lease_base = now_s, report.sequence, report.lease_base
        self.draining, self.plan_id = report.draining, report.plan_id
        self.older, self.trouble = False, ""
        return True

    def take_watched(self, event: pb.WatchEvent, heard_s: float, old_s: float, times: Times) -> None:
        """Take in what an older router tells: which endpoints are up, and nothing of their load.

        Args:
            event: What it told.
            heard_s: When, on the entry's clock.
            old_s: What is guessed of their load counts as this old, so as uncertain.
            times: Service times of each model at this site, as the catalog has them.
        """
        ready: dict[str, int] = {}
        for endpoint in event.endpoints:
            if endpoint.site == self.site and endpoint.ready and endpoint.healthy and not endpoint.draining:
                ready[endpoint.model] = ready.get(endpoint.model, 0) + 1
        self.pools = {
            model: _unknown_load(self.site, model, count, heard_s - old_s, times.get(model, NO_TIMES))
            for model, count in ready.items()
        }
        self.limits = {}
        self.heard_s, self.plan_id = heard_s, event.plan_id
        self.lease_base = self.sequence = 0
        self.draining, self.older, self.trouble = False, True, ""


def _unknown_load(site: str, model: str, ready: int, at_s: float, times: ServiceTimes) -> ReadyCapacity:
    # As many free places as replicas, none of them idle: neither empty nor full.
    return ReadyCapacity(
        site=site,
        model=model,
        ready=ready,
        idle=0,
        free_slots=float(ready),
        load=0.5,
        queue_s=times.p0,
        fixed_s=times.p0,
        prefill_s_per_token=times.p1,
        prefill_s_per_token2=times.p2,
        tpot_s=times.d0 + times.d1,
        busy=1.0,
        at_s=at_s,
    )
