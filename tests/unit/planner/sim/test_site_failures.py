"""Sites and links that fail in a run: what is lost, what is seen, and what a choice of site makes of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from data.errors import SettingError
from data.fleet.types import Link
from data.plan import TrafficShare
from data.types import Status
from planner.arm import parse_arm, sites_of
from planner.sim.settings import SimSettings, SiteFailure, endpoint_failures
from router.endpoints import EndpointTable
from router.registry import make_policy

QUIET = SimSettings(step_noise=0.0)
SITES = ("B", "B", "C", "C")


def loss(at_s=10.0, duration_s=5.0, site="B"):
    return SiteFailure(at_s, site, "loss", duration_s)


def cut(at_s=10.0, duration_s=10.0, a="A", b="B", notice_s=1.0):
    return SiteFailure(at_s, a, "link_cut", duration_s, peer=b, notice_s=notice_s)


def run(world, requests, rule="fleetmind", sites=SITES, **settings):
    made = None if rule is None else sites_of(parse_arm(f"least_request@{rule}"))
    return world.run(requests, replace(QUIET, **settings), sites, site_rule=made)


def sent_to(ran, since_s=0.0, until_s=np.inf):
    """Site of each dispatch between two moments."""
    return [SITES[row] for at_s, _, _, row in ran.policy.routed if since_s <= at_s < until_s]


def test_a_lost_site_crashes_all_its_engines_and_comes_back(world, steady):
    ran = run(world, steady(300, 0.1), None, site_failures=(loss(),))
    failed = [outcome for outcome in ran.policy.outcomes if outcome.status is Status.FAILED]
    assert {SITES[outcome.endpoint] for outcome in failed} == {"B"}
    assert "B" in sent_to(ran, until_s=10.0)
    assert "B" not in sent_to(ran, 11.0, 20.0), "5 s down and 5 s of loading"
    assert "B" in sent_to(ran, 21.0)
    total = ran.result.total
    assert total.offered == total.completed + total.failed == 300


def test_failures_of_sites_are_checked():
    assert [one.endpoint for one in endpoint_failures((loss(site="C"),), SITES)] == [2, 3]
    assert endpoint_failures((cut(),), SITES) == ()
    assert endpoint_failures((SiteFailure(1.0, "B", "slow", 2.0, 3.0),), SITES)[0].factor == 3.0
    with pytest.raises(SettingError, match=r"no endpoint at this site.*'E'"):
        endpoint_failures((loss(site="E"),), SITES)
    for wrong in (
        {"kind": "link_cut"},
        {"kind": "loss", "peer": "C"},
        {"kind": "link_cut", "peer": "B"},
        {"kind": "fire"},
        {"kind": "loss", "at_s": -1.0},
        {"kind": "slow", "factor": 0.0},
    ):
        with pytest.raises(SettingError, match="failure out of range"):
            SiteFailure(**{"at_s": 0.0, "site": "B", "duration_s": 1.0, **wrong})


def test_a_cut_to_an_unknown_site_is_an_error(world, steady):
    with pytest.raises(SettingError, match=r"unknown site.*'E'"):
        run(world, steady(3, 0.1), None, site_failures=(cut(b="E"),))


def test_what_crosses_a_cut_link_fails_when_it_is_noticed(world, steady):
    ran = run(world, steady(200, 0.1), None, ("B", "C"), site_failures=(cut(),))
    failed = [outcome for outcome in ran.policy.outcomes if outcome.status is Status.FAILED]
    assert failed
    assert {outcome.reason for outcome in failed} == {"link_cut"}
    assert {outcome.endpoint for outcome in failed} == {0}
    assert all(11.0 <= outcome.finished_s <= 21.0 for outcome in failed)
    for outcome in failed:
        assert outcome.finished_s - max(outcome.arrival_s, 10.0) == pytest.approx(1.0)
    total = ran.result.total
    assert total.offered == total.completed + total.failed == 200


def test_a_cut_elsewhere_touches_nobody(world, steady):
    fleet_world = world
    ran = run(fleet_world, steady(100, 0.1), None, site_failures=(cut(a="B", b="C", at_s=1.0),))
    assert ran.result.total.completed == 100


def test_reports_and_events_stop_while_the_entry_is_cut_off_and_come_after(world, steady):
    hashes = {"block_hashes": (1, 2, 3), "block_tokens": 16, "input_tokens": 48}
    ran = run(world, steady(300, 0.1, **hashes), None, ("B", "C"), site_failures=(cut(10.0, 10.0),))
    reported = {0: [], 1: []}
    for (at_s, *_), view in zip(ran.policy.routed, ran.policy.views, strict=True):
        if 11.0 <= at_s < 20.0:
            for row in (0, 1):
                reported[row].append(view["reported_at_s"][row])
        assert view["ready"].all(), "a partition is no crash: nobody tells that the site is gone"
    assert set(reported[0]) <= {10.0, 9.75}
    assert len(set(reported[1])) > 30
    after = [
        view["reported_at_s"][0]
        for (at_s, *_), view in zip(ran.policy.routed, ran.policy.views, strict=True)
        if at_s > 21
    ]
    assert min(after) >= 20.0


def test_cache_events_of_a_site_that_is_cut_off_come_when_the_link_is_back(world, steady):
    """Requests that arise at B are served there all the time; the router at the entry hears of it later."""
    requests = steady(100, 0.1, origin="B", block_hashes=(1, 2, 3), block_tokens=16, input_tokens=64)
    ran = run(world, requests, None, ("B", "C"), site_failures=(cut(0.0, 6.0),))
    assert ran.result.total.completed == 100
    known = {at_s: hit for (at_s, *_), hit in zip(ran.policy.routed, ran.policy.hits, strict=True)}
    assert {hit for at_s, hit in known.items() if at_s < 6.0} == {0.0}
    assert {hit for at_s, hit in known.items() if at_s > 6.1} == {48.0}


def test_the_same_seed_gives_the_same_run_with_failures_of_all_kinds(world, steady):
    failures = (loss(5.0, 3.0, "C"), cut(8.0, 4.0), SiteFailure(2.0, "B", "slow", 9.0, 3.0))
    first, second = (
        run(world, steady(200, 0.1), site_failures=failures, retries=3, cancel_share=0.1) for _ in range(2)
    )
    assert replace(
        first.result, wall_s=0.0, timeline=None, ttft_histogram=None, endpoint_requests=None
    ) == replace(second.result, wall_s=0.0, timeline=None, ttft_histogram=None, endpoint_requests=None)
    assert first.policy.routed == second.policy.routed


def test_fallback_leaves_a_lost_site_at_once_and_comes_back_step_by_step(world, steady):
    """F114: no request of a retry storm is lost, and after the loss home gets a few requests at first."""
    world.rtt_s = 0.002
    ran = run(world, steady(600, 0.1), site_failures=(loss(10.0, 5.0),), retries=3)
    assert ran.result.total.completed == 600
    assert set(sent_to(ran, until_s=9.9)) == {"B", "C"} or set(sent_to(ran, until_s=9.9)) == {"B"}
    assert set(sent_to(ran, 11.0, 19.0)) == {"C"}
    assert "B" in sent_to(ran, 30.0, 60.0)


def test_a_partition_is_left_before_any_client_gives_up(world, steady):
    """What is sent into the dark is bounded by the first failures; then all goes to the other site."""
    ran = run(world, steady(1200, 0.05), site_failures=(cut(10.0, 15.0, notice_s=2.0),), retries=3)
    assert ran.result.total.completed == 1200
    in_the_dark = [site for site in sent_to(ran, 10.0, 25.0) if site == "B"]
    everything = sent_to(ran, 10.0, 25.0)
    assert len(in_the_dark) < 0.25 * len(everything)
    assert "B" not in sent_to(ran, 25.0, 40.0), "the trial failed, so the second dwell time is twice as long"
    assert "B" in sent_to(ran, 45.0)


def test_requests_leave_a_site_that_slows(world, steady):
    """Step response: steps at B take four times as long from 10 s on; its share falls, and recovers afterwards."""
    slow = SiteFailure(10.0, "B", "slow", 20.0, 4.0)
    requests = steady(1000, 0.05, input_tokens=400)
    shares = []
    for failures in ((), (slow,)):
        ran = run(world, requests, "fleetmind", site_failures=failures)
        during = sent_to(ran, 14.0, 30.0)
        shares.append(during.count("B") / len(during))
        assert ran.result.total.completed == 1000
    assert shares[1] < 0.6 * shares[0]


@pytest.mark.parametrize("origin", ["", "A"])
def test_the_plan_steers_where_requests_go(world, steady, origin):
    """A blank origin is the entry, also for the shares of the plan."""
    shares = [TrafficShare("m@1", "chat", "open", "A", site, share) for site, share in (("B", 0.25), ("C", 0.75))]
    made = sites_of(parse_arm("least_request@shares_only"))
    ran = world.run(steady(200, 0.1, origin=origin), QUIET, SITES, site_rule=made, shares=shares)
    assert sent_to(ran).count("C") == 150


def test_residency_holds_through_losses_cuts_and_retries(world, steady):
    """F113: the local tenant's only zone is lost; its requests fail or wait, and none goes to the other zone."""
    failures = (loss(3.0, 4.0), cut(14.0, 3.0))
    ran = run(world, steady(300, 0.1, tenant="local"), site_failures=failures, retries=3)
    assert set(sent_to(ran)) == {"B"}
    assert ran.result.residency_breaches == 0
    total = ran.result.total
    assert total.offered == total.completed + total.failed + total.rejected


def test_without_links_between_sites_only_the_reachable_ones_are_options(world, steady):
    fleet = replace(world.fleet(), links=(Link("A", "B", 0.0, 10.0),))
    specs = [world.spec(row, site) for row, site in enumerate(SITES)]
    from planner.sim.run import simulate

    table = EndpointTable(specs)
    result = simulate(
        fleet, specs, steady(50, 0.05), make_policy("least_request", {}, table, 1), QUIET, table=table,
        sites=sites_of(parse_arm("least_request@fleetmind")),
    )  # fmt: skip
    assert result.extra["sent_to_B"] == 50.0
    assert result.extra["sent_away"] == 0.0
