"""The choice of the site inside a router of one level: spill, retries, plans, reload, explanation, counts."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from data.plan import PlanDocument, PlanStatus, TrafficShare
from router.engines.aliases import KV_USE, RUNNING, WAITING, Reading
from router.observe.site_metrics import site_samples
from router.pb.v1 import router_pb2 as pb
from router.serving.explain import explain_route
from router.serving.fleet_state import FleetSettings
from router.serving.live_build import next_fleet_state
from router.serving.service_settings import ServiceSettings
from router.sites.registry import site_rule_factory
from router.slomax.registry import flow_factory

SITES = ["B", "B", "C", "C"]


@pytest.fixture(name="make_sites")
def _make_sites(make_world: Any, endpoint: Any) -> Any:
    def make(rule: str = "fleetmind", **given: Any) -> Any:
        knobs = given.pop("knobs", {})
        world = make_world(
            [endpoint(number, site) for number, site in enumerate(SITES)],
            sites=site_rule_factory(rule, knobs),
            **given,
        )
        world.tell_first = lambda reply: world.tell(
            reply.placement.lease_id, first_token=pb.FirstToken(ttft_s=0.1)
        )
        return world

    return make


def plan(*shares: tuple[str, float]) -> PlanDocument:
    return PlanDocument(
        plan_id="p1",
        parent_id=None,
        made_at="2026-01-01T00:00:00Z",
        valid_from="2026-01-01T00:00:00Z",
        valid_until="2026-01-01T01:00:00Z",
        fleet="test",
        input_digests={},
        status=PlanStatus.OPTIMAL,
        objective=1.0,
        goodput_tokens_per_s=1.0,
        bound=1.0,
        bound_name="lp",
        replicas=(),
        shares=tuple(TrafficShare("m@1", "interactive", "shop", "A", site, share) for site, share in shares),
    )


def sites_of(world: Any, count: int, **fields: Any) -> Counter[str]:
    return Counter(world.ask(**fields).placement.site for _ in range(count))


def test_a_fleet_with_one_compute_site_has_nothing_to_choose(make_sites: Any, fleet: Any) -> None:
    from dataclasses import replace

    one = replace(fleet, sites=fleet.sites[:2], links=fleet.links[:1])
    world = make_sites(fleet=one)
    assert world.live.core.sites is None
    assert world.ask().placement.site == "B"
    live = world.live
    live.apply_fleet(next_fleet_state(live, fleet, "f2", FleetSettings()), live.rows.endpoints())
    assert live.core.sites is live.sites


def test_home_is_kept_until_it_is_full_and_residency_outlasts_that(make_sites: Any) -> None:
    world = make_sites()
    assert sites_of(world, 4) == {"B": 4}
    table = world.live.core.table
    table.inflight_uncached_tokens[:2] += 2_000_000
    table.waiting_prefill_s[:2] += 100.0
    assert sites_of(world, 3) == {"C": 3}
    assert sites_of(world, 3, tenant="bank") == {"B": 3}
    samples = {sample.labels: sample.value for sample in site_samples(world.live)}
    assert samples == {("B", "yes"): 7.0, ("B", "no"): 0.0, ("C", "yes"): 0.0, ("C", "no"): 3.0}


def test_every_flow_admits_across_sites_and_keeps_residency(make_sites: Any) -> None:
    world = make_sites(flow=flow_factory("slomax", {}))
    table = world.live.core.table
    table.inflight[:2] = table.max_seqs[:2]
    assert sites_of(world, 2) == {"C": 2}, "home has no room, the other site has"
    assert world.ask(tenant="bank").refusal.http_status == 429


def test_a_retry_after_failures_at_home_goes_on_and_never_to_a_forbidden_site(make_sites: Any) -> None:
    world = make_sites()
    world.tell_first(world.ask(request_id="first"))
    for number in range(6):
        reply = world.ask(request_id=f"r{number}")
        world.tell(reply.placement.lease_id, error=pb.Error(http_status=503))
    assert world.ask(request_id="r0", attempt=1).placement.site == "C"
    told = explain_route(world.live, pb.RouteRequest(model="m@1", tenant="shop", input_tokens=1000))
    by_site = {option.site: option for option in told.site_choice.options}
    assert (by_site["B"].open, by_site["B"].reason) == (False, "shunned")
    assert world.ask(tenant="bank", attempt=1).placement.site in ("B", "")


def test_a_plan_s_shares_are_followed_and_a_new_plan_replaces_them(make_sites: Any) -> None:
    world = make_sites("shares_only")
    for shares in ((("B", 0.25), ("C", 0.75)), (("B", 0.8), ("C", 0.2))):
        world.live.apply_plan(plan(*shares))
        world.live.rows.drain([])  # the plan of this test names no replicas
    seen = sites_of(world, 20)
    assert seen == {"B": pytest.approx(16, abs=2), "C": pytest.approx(4, abs=2)}


def test_what_was_learned_and_what_is_in_flight_outlive_a_reload(make_sites: Any, fleet: Any) -> None:
    world = make_sites()
    session = world.ask(session_id="s", origin="C")
    world.tell_first(session)
    assert session.placement.site == "C"
    live = world.live
    stage = live.core.sites
    live.apply_fleet(next_fleet_state(live, fleet, "f2", FleetSettings()), live.rows.endpoints())
    assert live.core.sites is stage
    told = explain_route(live, pb.RouteRequest(model="m@1", tenant="shop", input_tokens=1000, session_id="s"))
    assert {one.site: one.reason for one in told.site_choice.options}["C"] == "session"
    assert world.tell(session.placement.lease_id, finished=pb.Finished(output_tokens=5)) == "accepted"
    assert not stage._sent


def test_the_table_may_grow_by_endpoints_of_a_new_site(make_sites: Any, endpoint: Any) -> None:
    world = make_sites()
    world.live.apply_endpoints([*world.live.rows.endpoints(), *(endpoint(n, "C") for n in range(10, 20))])
    world.live.core.table.inflight[:2] = 1e6
    world.live.core.table.waiting_prefill_s[:2] = 100.0
    assert sites_of(world, 3) == {"C": 3}
    assert {one.site for one in world.live.capacity.report().sites} == {"B", "C"}


def test_silence_of_callers_that_never_tell_first_tokens_shuts_no_site(make_sites: Any) -> None:
    world = make_sites()
    for _ in range(3):
        assert world.ask(owner="quiet").placement.site == "B"
    world.clock.now_s += 30.0
    told = explain_route(world.live, pb.RouteRequest(model="m@1", tenant="shop", input_tokens=1000))
    assert all(option.open for option in told.site_choice.options)
    for _ in range(2):  # the first one only tells that this caller tells
        talking = world.ask(owner="talks")
        world.tell(talking.placement.lease_id, owner="talks", first_token=pb.FirstToken(ttft_s=0.1))
    silent = world.ask(owner="talks").placement.site
    world.clock.now_s += 30.0
    told = explain_route(world.live, pb.RouteRequest(model="m@1", tenant="shop", input_tokens=1000))
    assert {option.site: option.open for option in told.site_choice.options}[silent] is False


def test_an_endpoint_that_leaves_ends_what_the_rule_waits_for(make_sites: Any) -> None:
    world = make_sites()
    world.tell_first(world.ask(owner="", request_id="a"))
    world.ask(request_id="b")
    world.live.apply_endpoints(world.live.rows.endpoints()[2:])
    assert not world.live.core.sites._sent
    world.clock.now_s += 30.0
    assert world.ask(tenant="shop").placement.site == "C"


def test_explain_shows_the_options_and_who_stands_elsewhere(make_sites: Any) -> None:
    world = make_sites()
    told = explain_route(world.live, pb.RouteRequest(model="m@1", tenant="shop", input_tokens=1000))
    choice = told.site_choice
    assert (choice.rule, choice.chosen) == ("fleetmind", "B")
    assert [(one.site, one.chosen, one.reason) for one in choice.options] == [
        ("B", True, "local"),
        ("C", False, ""),
    ]
    near, far = choice.options
    assert far.network_s > near.network_s
    assert near.total_s < far.total_s
    assert {one.endpoint_id for one in told.rejected if one.reason == "other_site"} == {"C/c/2", "C/c/3"}
    assert told.decision.placement.site == "B"
    assert not world.live.core.sites._sent, "nothing is remembered"


def test_reports_that_stop_crossing_a_link_do_not_empty_the_site_behind_it(make_sites: Any) -> None:
    world = make_sites()
    for row, pause_s in ((0, 0.0), (1, 0.0), (2, 2.0), (3, 0.0)):
        world.clock.now_s += pause_s
        world.live.states.page(row, Reading({RUNNING: 0.0, WAITING: 0.0, KV_USE: 0.0}, (), 0), world.clock())
    near, far = world.ask(), world.ask(origin="C")
    assert (near.placement.site, list(near.degraded)) == ("B", ["stale_metrics"])
    assert (far.placement.site, list(far.degraded)) == ("C", [])


def test_capacity_reports_count_up_and_hold_no_time_of_day(make_sites: Any) -> None:
    world = make_sites()
    first = world.live.capacity.report()
    assert world.live.capacity.report() == first, "asked for twice at a time, computed once"
    world.clock.now_s += 0.1
    second = world.live.capacity.report()
    assert second.sequence == first.sequence + 1
    assert second.lease_base == first.lease_base > 0
    b, c = second.sites
    assert (b.site, b.model, b.ready, b.idle, c.site) == ("B", "m@1", 2, 2, "C")
    assert b.context_limit_tokens == 8192
    assert max(value for _, value in b.ListFields() if isinstance(value, float)) < 100_000
    world.live.begin_drain()
    assert world.live.capacity.report().draining


def test_the_service_s_default_and_how_it_is_turned_off(tmp_path: Any) -> None:
    given = ServiceSettings(tmp_path)
    made = given.make_sites()
    assert made is not None
    assert made.name == "fleetmind"
    assert ServiceSettings(tmp_path, sites="none").make_sites() is None
    assert ServiceSettings(tmp_path, only_site="B").make_sites() is None
