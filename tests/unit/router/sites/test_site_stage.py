"""The site stage inside the decision core: hard filters first and alike, then the site, then the policy."""

from __future__ import annotations

import numpy as np
import pytest

from data.types import RefusalReason, Slo, Status
from router.core import Decision, RouterCore
from router.filters import FilterRules, FilterSettings
from router.leases import LeaseBook
from router.prefix import EventPrefixIndex
from router.registry import make_policy
from router.sites.base import SiteContext, SiteRuleBase
from router.sites.registry import site_rule_factory
from router.sites.stage import SiteStage


@pytest.fixture
def make_core(make_table, site_fleet):
    """Two endpoints at each of B, C and D, least request inside the site."""

    def build(rule="fleetmind", settings=None, ceiling=None, made=None):
        table = make_table(6, sites=("B", "C", "D"), max_seqs=10)
        rules = FilterRules(site_fleet, table, FilterSettings(ceiling))
        chosen = made or site_rule_factory(rule, settings or {})(SiteContext(site_fleet))
        stage = SiteStage(chosen, site_fleet, table, rules)
        policy = make_policy("least_request", {}, table, 1)
        return RouterCore(table, EventPrefixIndex(6), rules, policy, LeaseBook(table), stage)

    return build


def decide(core, view_of, request, now_s=0.0, rows=None):
    return core.decide(request, view_of(core.table, now_s, core.prefixes), rows=rows)


def site(core, decision):
    assert isinstance(decision, Decision)
    return core.table.specs[decision.endpoint].site


def test_home_first_then_least_loaded_inside(make_core, make_view, make_request):
    core = make_core()
    sent = []
    for number in range(4):
        request = make_request(number, slo=Slo())
        decision = decide(core, make_view, request)
        core.dispatch(request, decision)
        sent.append(core.table.specs[decision.endpoint].endpoint_id)
        assert decision.candidates == 6
    assert sent[:2] in (["B/c/0", "B/c/3"], ["B/c/3", "B/c/0"])
    assert core.sites.counts.chosen["B"] >= 2


@pytest.mark.parametrize(("tenant", "sites"), [("east", {"B", "C"}), ("west", {"D"}), ("t", {"B", "C", "D"})])
def test_permission_comes_before_any_cost(make_core, make_view, make_request, tenant, sites):
    core = make_core()
    core.table.inflight[[0, 1, 3, 4]] = 9.0
    core.table.inflight_uncached_tokens[[0, 1, 3, 4]] = 1e6
    core.table.waiting_prefill_s[[0, 1, 3, 4]] = 100.0
    assert site(core, decide(core, make_view, make_request(tenant=tenant))) in sites


def test_nothing_leaves_the_zone_when_every_permitted_site_is_lost(make_core, make_view, make_request):
    """F113: B is down and C at its ceiling; the idle site in the other zone is never used, whatever attempt."""
    core = make_core(ceiling=0.5)
    core.table.ready[[0, 3]] = False
    core.table.inflight[[1, 4]] = 5.0
    for attempt in range(4):
        refused = decide(core, make_view, make_request(tenant="east", attempt=attempt))
        assert refused is RefusalReason.OVERLOADED
    assert site(core, decide(core, make_view, make_request(tenant="t"))) == "D"
    core.table.ready[[1, 4]] = False
    assert decide(core, make_view, make_request(tenant="east")) is RefusalReason.NO_PERMITTED_SITE


def test_a_cut_link_is_a_hard_filter_for_its_origin_alone(make_core, make_view, make_request):
    core = make_core()
    core.rules.set_link("A", "B", up=False)
    assert site(core, decide(core, make_view, make_request())) == "C"
    assert site(core, decide(core, make_view, make_request(origin="B"))) == "B"
    core.rules.set_link("A", "C", up=False)
    assert decide(core, make_view, make_request(tenant="east")) is RefusalReason.NO_ENDPOINT
    core.rules.set_link("A", "B", up=True)
    core.rules.set_link("A", "C", up=True)
    assert core.rules.linked("A") is None
    assert site(core, decide(core, make_view, make_request())) == "B"


def test_the_cut_is_known_for_endpoints_that_come_later(make_core, make_table, make_request):
    core = make_core()
    core.rules.set_link("A", "B", up=False)
    assert core.rules.linked("A").tolist() == [False, True, True, False, True, True]
    core.table.put(1, make_table(1, sites=("B",)).specs[0])
    assert core.rules.linked("A").tolist() == [False, False, True, False, True, True]


def test_a_flow_control_that_has_closed_home_lets_the_request_spill(make_core, make_view, make_request):
    core = make_core()
    open_rows = np.array([2, 4])
    assert site(core, decide(core, make_view, make_request(), rows=open_rows)) in ("C", "D")
    assert site(core, decide(core, make_view, make_request(), rows=np.array([4]))) == "C"


def test_local_only_waits_at_home_and_never_spills(make_core, make_view, make_request):
    core = make_core("local_only")
    assert core.candidates(make_request()).tolist() == [0, 3]
    assert core.candidates(make_request(tenant="west")).tolist() == [2, 5], "the nearest permitted site"
    core.table.ready[[0, 3]] = False
    assert isinstance(decide(core, make_view, make_request()), RefusalReason)


def test_the_rule_is_told_of_every_end_exactly_once(make_core, make_view, make_request, make_outcome):
    told = []

    class Listening(SiteRuleBase):
        name = "listening"

        def costs(self, request, options, now_s):
            return [option.rtt_s for option in options]

        def sent(self, request, site, now_s):
            told.append(("sent", request.request_id, site))

        def first_token(self, request, site, now_s, ttft_s):
            told.append(("first", request.request_id, site))

        def finished(self, request, site, outcome):
            told.append(("finished", request.request_id, site))

    core = make_core(made=Listening(SiteContext(None)))
    request = make_request(1)
    decision = decide(core, make_view, request)
    lease = core.dispatch(request, decision)
    # The engine leaves meanwhile: the end still belongs to the site that the request was sent to.
    core.table.specs = tuple(spec for spec in core.table.specs)
    core.first_token(request, decision.endpoint, lease, 0.5, 0.5)
    core.finished(request, lease, make_outcome(request, decision.endpoint, Status.COMPLETED))
    assert told == [("sent", 1, "B"), ("first", 1, "B"), ("finished", 1, "B")]
    assert not core.sites._sent


def test_a_rule_that_names_no_option_is_an_error(make_core, make_view, make_request):
    class Wrong(SiteRuleBase):
        def choose(self, request, options, now_s):
            return len(options)

    with pytest.raises(RuntimeError, match="chose option 3 of 3"):
        decide(make_core(made=Wrong(SiteContext(None))), make_view, make_request())


def test_explaining_changes_nothing(make_core, make_view, make_request):
    core, request = make_core(), make_request()
    view = make_view(core.table)
    first = core.sites.explain(request, np.arange(6), view)
    assert [cost.site for cost in first] == ["B", "C", "D"]
    assert core.sites.explain(request, np.arange(6), view) == first
    best = min(first, key=lambda cost: cost.total_s)
    assert site(core, decide(core, make_view, request)) == best.site
