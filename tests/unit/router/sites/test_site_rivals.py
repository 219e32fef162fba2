"""Rivals of FleetMind, on invented options with answers by hand."""

from __future__ import annotations

import pytest

from data.errors import SettingError
from router.sites.base import SiteContext
from router.sites.registry import site_rule_factory


@pytest.fixture
def rule(site_fleet):
    return lambda name, **settings: site_rule_factory(name, settings)(SiteContext(site_fleet))


def test_gorgo_adds_round_trip_queue_and_own_prefill(rule, make_option, make_request):
    gorgo, request = rule("gorgo"), make_request(input_tokens=1000)
    near = make_option("B", rtt_s=0.0, queue_s=0.3)
    held = make_option("C", rtt_s=0.2, queue_s=0.1, hit_tokens=900.0)
    assert gorgo.costs(request, [near, held], 0.0) == pytest.approx([0.3 + 0.01 + 0.1, 0.2 + 0.1 + 0.01 + 0.01])
    assert gorgo.choose(request, [near, held], 0.0) == 1
    assert rule("gorgo", rtt_weight=2.0).choose(request, [near, held], 0.0) == 0


def test_skywalker_stays_home_while_a_replica_is_free_there(rule, make_option, make_request):
    skywalker = rule("skywalker")

    def site(home_idle, c_idle, d_idle):
        options = [
            make_option("B", local=True, idle=home_idle),
            make_option("C", idle=c_idle),
            make_option("D", idle=d_idle),
        ]
        return options[skywalker.choose(make_request(), options, 0.0)].site

    assert site(1, 4, 4) == "B"
    assert site(0, 2, 4) == "D"
    assert site(0, 3, 1) == "C"
    assert site(0, 0, 0) == "B"


def test_local_only_is_shown_home_alone_and_shares_by_chance(rule, make_option, make_request):
    local = rule("local_only")
    assert local.reach == "home"
    options = [make_option("B", rtt_s=0.01, local=True), make_option("C", rtt_s=0.01, local=True)]
    assert {local.choose(make_request(), options, 0.0) for _ in range(50)} == {0, 1}


def test_shares_only_looks_at_nothing_but_the_plan(rule, make_option, make_request):
    from data.plan import TrafficShare

    shares = rule("shares_only")
    options = [make_option("B", rtt_s=0.0), make_option("C", rtt_s=0.5, queue_s=9.0)]
    assert shares.choose(make_request(), options, 0.0) == 0, "nearest without a plan"
    shares.plan_changed(
        [TrafficShare("m@1", "interactive", "t", "A", site, share) for site, share in (("B", 0.25), ("C", 0.75))]
    )
    sent = []
    for number in range(40):
        place = shares.choose(make_request(number), options, 0.0)
        shares.sent(make_request(number), options[place].site, 0.0)
        sent.append(place)
    assert sum(sent) == 30


def test_unknown_rules_and_settings_are_refused():
    with pytest.raises(SettingError, match=r"unknown rule.*nearest.*fleetmind, local_only"):
        site_rule_factory("nearest", {})
    with pytest.raises(SettingError, match="unknown setting"):
        site_rule_factory("fleetmind", {"marginn": 0.1})
    with pytest.raises(SettingError, match="margin"):
        site_rule_factory("fleetmind", {"margin": 2.0})
