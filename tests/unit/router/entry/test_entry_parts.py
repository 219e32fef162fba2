"""Parts of an entry router by themselves: what a site told and its age, filters over pools, held outcomes."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.errors import SettingError
from data.fleet.reference import reference_fleet
from data.types import RefusalReason
from router.entry.lease_sites import LEASE_BITS, MOST_PROCESSES, LeaseSites
from router.entry.settings import EntrySettings
from router.entry.site_pools import SitePools
from router.entry.site_reports import HeldReports
from router.entry.site_state import Freshness, SiteState
from router.filters import FilterSettings
from router.pb.v1 import router_pb2 as pb
from router.serving.capacity_wire import Limits, capacity_report, read_capacity
from router.sites.types import ReadyCapacity
from router.types import RouteRequest

FLEET = reference_fleet("four-sites")
SETTINGS = EntrySettings(period_s=0.25, stale_s=1.0, gone_s=2.0)


def capacity(site: str = "B", model: str = "assistant@v1", **fields: Any) -> ReadyCapacity:
    made = ReadyCapacity(site, model, 2, 1, 40.0, 0.2, 0.05, 0.01, 5e-5, 1e-9, 0.02, 3.0, at_s=100.0)
    return replace(made, **fields)


def report(*capacities: ReadyCapacity, now_s: float = 100.0, **fields: Any) -> pb.CapacityReport:
    made = capacity_report(capacities, {}, now_s)
    made.MergeFrom(pb.CapacityReport(**{"sequence": 1, "lease_base": 7 << LEASE_BITS, **fields}))
    return made


def asked(tenant: str, **fields: Any) -> RouteRequest:
    slo = FLEET.classes[0].slo
    request = RouteRequest(1, "assistant@v1", tenant, "interactive", "A", 1000, 200, 100.0, (), 16, "", slo)
    return replace(request, **fields)


def heard(sites: Sequence[str], now_s: float = 10.0) -> dict[str, SiteState]:
    states = {site: SiteState(site) for site in sites}
    for site, state in states.items():
        assert state.take(report(capacity(site)), now_s)
    return states


@given(
    clocks=st.tuples(st.floats(-1e9, 1e9), st.floats(-1e9, 1e9)),
    age_s=st.floats(0, 1000),
    queue_s=st.floats(0, 1e5),
)
def test_a_report_is_as_old_as_it_says_whatever_the_two_clocks_show(
    clocks: tuple[float, float], age_s: float, queue_s: float
) -> None:
    sender_s, receiver_s = clocks
    sent = report(capacity(at_s=sender_s - age_s, queue_s=queue_s), now_s=sender_s)
    (got,), _ = read_capacity(pb.CapacityReport.FromString(sent.SerializeToString()), receiver_s)
    assert receiver_s - got.at_s == pytest.approx(age_s, abs=1e-5)
    assert got.queue_s == queue_s
    assert (got.sequence, got.incarnation) == (1, 7 << LEASE_BITS)


@pytest.mark.parametrize("wrong", [{"queue_s": -1.0}, {"load": math.nan}, {"tpot_s": math.inf}, {"age_s": -5.0}])
def test_an_entry_that_makes_no_sense_is_left_out(wrong: dict[str, float]) -> None:
    sent = report(capacity(), capacity(model="coder@v1"))
    for name, value in wrong.items():
        setattr(sent.sites[0], name, value)
    found, _ = read_capacity(sent, 5.0)
    assert [one.model for one in found] == ["coder@v1"]


def test_times_that_are_not_known_are_told_as_old_and_limits_travel() -> None:
    sent = capacity_report([capacity(at_s=math.nan)], {("B", "assistant@v1"): Limits(8192.0, math.inf)}, 50.0)
    (got,), limits = read_capacity(sent, 0.0)
    assert got.at_s == -86_400.0
    assert limits["B", "assistant@v1"] == Limits(8192.0, math.inf)


def test_a_late_report_of_the_same_process_is_not_taken_and_a_new_process_is() -> None:
    state = SiteState("B")
    assert state.take(report(capacity(ready=5), sequence=9), 1.0)
    assert not state.take(report(capacity(ready=1), sequence=8), 2.0)
    assert (state.pools["assistant@v1"].ready, state.heard_s) == (5, 1.0)
    assert state.take(report(capacity(ready=1), sequence=1, lease_base=8 << LEASE_BITS), 3.0)
    assert state.pools["assistant@v1"].ready == 1


def test_what_a_router_says_of_other_sites_does_not_count() -> None:
    state = SiteState("B")
    state.take(report(capacity("C", ready=9), capacity("B")), 1.0)
    assert {model: pool.site for model, pool in state.pools.items()} == {"assistant@v1": "B"}


def test_stale_is_not_gone_and_gone_is_not_used() -> None:
    state = SiteState("B")
    assert state.freshness(0.0, SETTINGS) is Freshness.NEVER_SEEN
    state.take(report(capacity()), 10.0)
    ages = {0.9: Freshness.FRESH, 1.1: Freshness.STALE, 2.1: Freshness.GONE}
    assert {age: state.freshness(10.0 + age, SETTINGS) for age in ages} == ages
    assert [state.usable(10.0 + age, SETTINGS) for age in ages] == [True, True, False]
    state.draining = True
    assert not state.usable(10.1, SETTINGS)


def test_settings_must_stand_in_order() -> None:
    with pytest.raises(SettingError, match="each above the one before"):
        EntrySettings(stale_s=3.0, gone_s=2.0)


@given(
    tenant=st.sampled_from([t.name for t in FLEET.tenants]),
    silent=st.sets(st.sampled_from("BCD")),
    troubled=st.sets(st.sampled_from("BCD")),
    tried=st.sets(st.sampled_from("BCD")),
)
def test_only_permitted_sites_that_were_heard_of_are_ever_candidates(
    tenant: str, silent: set[str], troubled: set[str], tried: set[str]
) -> None:
    """Residency: first choices and fallbacks pass the same filter, whatever is down."""
    pools, states = SitePools(FLEET, "BCD", FilterSettings()), heard("BCD")
    for site in silent:
        states[site].heard_s = 0.0
    for site in troubled:
        states[site].trouble = "refused"
    pools.refresh(states, 10.5, SETTINGS)
    found = set(pools.candidates(asked(tenant), tried))
    who = FLEET.tenant(tenant)
    allowed = {site.name for site in FLEET.sites if FLEET.may_use(who, site, "assistant@v1")}
    may = (allowed & set("BCD")) - silent - tried
    assert found == (may - troubled or may)
    if not may and not tried:
        assert pools.refusal_reason(asked(tenant)) in (
            RefusalReason.NO_PERMITTED_SITE,
            RefusalReason.NO_ENDPOINT,
        )


def test_limits_and_the_load_ceiling_of_a_site_are_filters_too() -> None:
    pools, states = SitePools(FLEET, "BC", FilterSettings(0.9)), heard("BC")
    states["B"].limits["assistant@v1"] = Limits(1100.0, math.inf)
    pools.refresh(states, 10.0, SETTINGS)
    assert pools.candidates(asked("shop")) == ["C"]
    assert pools.candidates(asked("shop", output_budget=50)) == ["B", "C"]
    states["C"].pools["assistant@v1"] = capacity("C", load=0.95)
    pools.refresh(states, 10.0, SETTINGS)
    assert pools.candidates(asked("shop")) == []
    assert pools.refusal_reason(asked("shop", output_budget=50), ["B"]) is RefusalReason.OVERLOADED


def test_a_lease_tells_its_site_and_only_so_many_processes_are_remembered() -> None:
    sites = LeaseSites()
    sites.learn((5 << LEASE_BITS) + 77, "B")
    assert sites.site((5 << LEASE_BITS) + 1_000_000) == "B"
    assert sites.site(6 << LEASE_BITS) == ""
    for process in range(10, 10 + MOST_PROCESSES):
        sites.learn(process << LEASE_BITS, "C")
    assert len(sites) == MOST_PROCESSES
    assert sites.site(5 << LEASE_BITS) == ""


@dataclass
class FailingError(Exception):
    code: grpc.StatusCode


@dataclass
class Site:
    """Takes deliveries, or fails."""

    error: Exception | None = None
    got: list[tuple[str, list[int]]] = field(default_factory=list)

    async def __call__(self, events: Sequence[pb.ReportEvent], owner: str) -> pb.ReportSummary:
        if self.error is not None:
            raise self.error
        self.got.append((owner, [event.lease_id for event in events]))
        return pb.ReportSummary(accepted=len(events))


def events(*numbers: int) -> list[pb.ReportEvent]:
    return [pb.ReportEvent(lease_id=number) for number in numbers]


def test_held_outcomes_keep_order_and_owner_and_are_bounded_in_number_and_age() -> None:
    clock = [0.0]
    held = HeldReports(EntrySettings(held_reports=4, held_s=10.0), lambda: clock[0])
    held.hold(events(1, 2, 3), "one")
    held.hold(events(4, 5), "two")
    assert (len(held), held.dropped) == (4, 1)
    down, up = Site(FailingError(grpc.StatusCode.UNAVAILABLE)), Site()
    asyncio.run(held.deliver(down))
    assert len(held) == 4
    asyncio.run(held.deliver(up))
    assert up.got == [("one", [2, 3]), ("two", [4, 5])]
    held.hold(events(6), "one")
    clock[0] = 11.0
    held.hold(events(7), "one")
    asyncio.run(held.deliver(up))
    assert up.got[2:] == [("one", [7])]
    assert held.dropped == 2
    held.hold(events(8), "one")
    asyncio.run(held.deliver(Site(FailingError(grpc.StatusCode.PERMISSION_DENIED))))
    assert (len(held), held.dropped) == (0, 3)
