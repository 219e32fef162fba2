"""The rule: home while it is nearly as good, shares as a bias, retries elsewhere, trust before cost."""

from __future__ import annotations

import pytest

from data.plan import TrafficShare
from data.types import Slo, Status
from router.sites.registry import SITE_RULES, site_rule_factory


def site_of(rule, request, options, now_s=0.0):
    return options[rule.choose(request, options, now_s)].site


def send(rule, request, options, now_s=0.0):
    site = site_of(rule, request, options, now_s)
    rule.sent(request, site, now_s)
    return site


def test_home_is_left_only_for_a_site_that_is_better_by_the_margin(make_fleetmind, make_option, make_request):
    rule = make_fleetmind(margin=0.1, margin_s=0.03)
    request = make_request(slo=Slo(), expected_output_tokens=100.0)
    cost = 0.01 + 0.1 + 1.0  # fixed part, prefill, decode: the same at both
    for queue_s, site in ((0.0, "B"), (0.13, "B"), (0.18, "C"), (2.0, "C")):
        options = [make_option("B", local=True, queue_s=queue_s), make_option("C")]
        assert site_of(rule, request, options) == site, queue_s
        home, away = rule.explain(request, options, 0.0)
        assert home.reason == "local"
        assert home.stay_s == pytest.approx(0.03 + 0.1 * (cost + queue_s))
        assert away.total_s == pytest.approx(cost)


def test_load_that_swings_within_the_margin_moves_nobody(make_fleetmind, make_option, make_request):
    rule, sites = make_fleetmind(margin=0.1, margin_s=0.03), set()
    for number in range(100):
        request = make_request(number, slo=Slo())
        swing = 0.1 * (number % 2)
        options = [make_option("B", local=True, queue_s=swing), make_option("C", queue_s=0.1 - swing)]
        sites.add(send(rule, request, options))
    assert sites == {"B"}


def test_a_session_stays_where_it_was_served(make_fleetmind, make_option, make_request):
    rule = make_fleetmind()
    first, later = make_request(1, session_id="s", slo=Slo()), make_request(2, session_id="s", slo=Slo())
    busy = [make_option("B", local=True, queue_s=1.0), make_option("C")]
    assert send(rule, first, busy) == "C"
    free = [make_option("B", local=True), make_option("C")]
    assert site_of(rule, later, free) == "C"
    assert rule.explain(later, free, 0.0)[1].reason == "session"
    assert site_of(rule, make_request(3, session_id="other", slo=Slo()), free) == "B"
    assert site_of(rule, make_request(4, session_id="s", tenant="other", slo=Slo()), free) == "B"


def test_a_cached_prefix_is_worth_its_prefill_time(make_fleetmind, make_option, make_request):
    rule = make_fleetmind(margin=0.0, margin_s=0.0)
    request = make_request(input_tokens=8000, slo=Slo())
    held = [make_option("B"), make_option("C", rtt_s=0.05, hit_tokens=6000.0)]
    assert site_of(rule, request, held) == "C"
    far = [make_option("B"), make_option("C", rtt_s=0.7, hit_tokens=6000.0)]
    assert site_of(rule, request, far) == "B"


def test_an_entry_guesses_what_a_session_left_in_the_cache(make_fleetmind, make_option, make_request):
    rule = make_fleetmind(margin=0.0, margin_s=0.0)
    options = [make_option("B", counts_own=False), make_option("C", counts_own=False, rtt_s=0.05)]
    rule.sent(make_request(1, session_id="s", input_tokens=6000), "C", 0.0)
    saved = rule.explain(make_request(2, session_id="s", input_tokens=8000), options, 0.0)
    assert [cost.saved_s for cost in saved] == pytest.approx([0.0, 0.6])


def test_an_entry_does_not_send_everything_to_the_site_of_the_last_report(
    make_fleetmind, make_option, make_request
):
    """F008: what was sent after the report's own time counts besides it, so the burst is shared."""
    rule = make_fleetmind(margin=0.0, margin_s=0.0)
    options = [make_option("B", counts_own=False), make_option("C", counts_own=False, queue_s=0.01)]
    sent = [send(rule, make_request(number, slo=Slo()), options, 0.001 * (number + 1)) for number in range(100)]
    assert 40 <= sent.count("B") <= 60


@pytest.mark.parametrize("planned", [0.2, 0.5, 0.8])
def test_shares_steer_where_the_costs_are_equal(make_fleetmind, make_option, make_request, planned):
    rule = make_fleetmind(margin=0.0, margin_s=0.0)
    rule.plan_changed(
        [
            TrafficShare("m@1", "interactive", "t", "A", "B", planned),
            TrafficShare("m@1", "interactive", "t", "A", "C", 1.0 - planned),
        ]
    )
    options = [make_option("B"), make_option("C")]
    sent = [send(rule, make_request(number), options) for number in range(200)]
    assert sent.count("B") / 200 == pytest.approx(planned, abs=0.02)


def test_shares_are_a_bias_and_no_rule(make_fleetmind, make_option, make_request):
    rule = make_fleetmind()
    rule.plan_changed([TrafficShare("m@1", "interactive", "t", "A", "C", 1.0)])
    assert site_of(rule, make_request(), [make_option("B"), make_option("C")]) == "C"
    assert site_of(rule, make_request(), [make_option("B"), make_option("C", queue_s=30.0)]) == "B"


def test_a_retry_goes_elsewhere_unless_there_is_nowhere_else(
    make_fleetmind, make_option, make_request, make_outcome
):
    rule = make_fleetmind()
    options = [make_option("B", local=True), make_option("C", rtt_s=0.05)]
    request = make_request(7)
    assert send(rule, request, options) == "B"
    rule.finished(request, "B", make_outcome(request, 0, Status.FAILED, ttft_s=float("nan")))
    retry = make_request(7, attempt=1)
    assert site_of(rule, retry, options, 2.0) == "C"
    assert site_of(rule, retry, options[:1], 2.0) == "B"
    assert site_of(rule, make_request(8), options, 2.0) == "B", "one failure is no verdict on the site"


def test_a_shunned_site_is_left_out_while_another_is_there(
    make_fleetmind, make_option, make_request, make_outcome
):
    """F114: failures move traffic away at once, and home is no reason to go on."""
    rule = make_fleetmind(dwell_s=10.0, trial=2)
    options = [make_option("B", local=True), make_option("C", queue_s=20.0)]
    for number in range(3):
        request = make_request(number)
        rule.sent(request, "B", 0.0)
        rule.finished(request, "B", make_outcome(request, 0, Status.FAILED, finished_s=1.0))
    assert site_of(rule, make_request(10), options, 1.0) == "C"
    home = rule.explain(make_request(10), options, 1.0)[0]
    assert (home.open, home.reason, home.stay_s) == (False, "shunned", 0.0)
    assert site_of(rule, make_request(10), options[:1], 1.0) == "B", "a doubtful site beats a refusal"
    back = [send(rule, make_request(20 + number), options, 11.0) for number in range(10)]
    assert back.count("B") == 2, "a trial of two"


def test_refusals_and_impatience_are_no_evidence(make_fleetmind, make_request, make_outcome):
    rule = make_fleetmind()
    for number in range(50):
        request = make_request(number)
        rule.sent(request, "B", 0.0)
        status = Status.REJECTED if number % 2 else Status.CANCELLED
        rule.finished(request, "B", make_outcome(request, 0, status, finished_s=0.5, ttft_s=float("nan")))
    assert rule.trust.state("A", "B", 1.0) == "open"


def test_memory_is_bounded_whatever_callers_make_up(make_fleetmind, make_request, make_outcome):
    rule = make_fleetmind()
    for number in range(1000):
        request = make_request(number, origin=f"nowhere-{number}", tenant=f"t{number}")
        rule.sent(request, "B", 0.0)
        rule.finished(request, "B", make_outcome(request, 0))
    assert len(rule.trust._ways) == 1
    assert not rule.trust.way("", "B").judged


def test_what_callers_did_wrong_is_no_evidence_either(make_fleetmind, make_request, make_outcome):
    """F006: results that a client has caused change no trust, whatever their number."""
    rule = make_fleetmind()
    for number in range(200):
        request = make_request(number)
        rule.sent(request, "B", 0.0)
        rule.finished(
            request, "B", make_outcome(request, 0, Status.CLIENT_ERROR, finished_s=5.0, ttft_s=float("nan"))
        )
    assert rule.trust.state("A", "B", 5.0) == "open"
    assert not rule.trust.way("A", "B").judged


def test_every_attempt_of_a_request_is_evidence_of_its_own(make_fleetmind, make_request, make_outcome):
    """F063: a request that fails at B, then at C, counts against both, and for D where it succeeds."""
    rule = make_fleetmind()
    for attempt, (site, status) in enumerate(
        (("B", Status.FAILED), ("C", Status.FAILED), ("D", Status.COMPLETED))
    ):
        request = make_request(5, attempt=attempt)
        rule.sent(request, site, float(attempt))
        rule.finished(request, site, make_outcome(request, 0, status, finished_s=attempt + 0.5))
    counts = {site: (rule.trust.way("A", site).bad, rule.trust.way("A", site).good) for site in "BCD"}
    assert counts == {"B": (1.0, 0.0), "C": (1.0, 0.0), "D": (0.0, 1.0)}


def test_equal_sites_share_equally(make_fleetmind, make_option, make_request):
    """F009: with nothing known, 1,000 tied choices go to each of four sites within three standard deviations."""
    rule = make_fleetmind(seed=4)
    options = [make_option(name) for name in "BCDE"]
    places = [rule.choose(make_request(number), options, 0.0) for number in range(1000)]
    for place in range(4):
        assert abs(places.count(place) - 250) <= 3 * (1000 * 0.25 * 0.75) ** 0.5


def test_with_old_reports_alone_the_router_still_answers(make_fleetmind, make_option, make_request):
    """F001: all stale is no reason to refuse, and one fresh site is preferred to an equal stale one."""
    rule, request = make_fleetmind(margin=0.0, margin_s=0.0), make_request(slo=Slo(ttft_s=0.3))
    old = [make_option("B", at_s=-300.0), make_option("C", at_s=-300.0)]
    assert rule.choose(request, old, 0.0) in (0, 1)
    mixed = [make_option("B", at_s=-300.0), make_option("C", at_s=-0.1)]
    assert site_of(rule, request, mixed) == "C"


def test_ties_are_drawn_from_the_seed(make_fleetmind, make_option, make_request):
    options = [make_option(name) for name in "BCD"]

    def drawn(seed):
        rule = make_fleetmind(seed)
        return [site_of(rule, make_request(number), options) for number in range(60)]

    assert drawn(1) == drawn(1) != drawn(2)
    assert set(drawn(1)) == {"B", "C", "D"}


@pytest.mark.parametrize("name", SITE_RULES)
def test_every_rule_keeps_the_contract(name, site_fleet, make_option, make_request, make_outcome):
    from router.sites.base import SiteContext

    rule = site_rule_factory(name, {})(SiteContext(site_fleet, 3))
    assert rule.name == name
    options = [make_option("B", local=True), make_option("C", rtt_s=0.01), make_option("D", rtt_s=0.03)]
    rule.plan_changed([TrafficShare("m@1", "interactive", "t", "A", "C", 1.0)])
    for number in range(20):
        request = make_request(number)
        before = rule.explain(request, options, 0.1 * number)
        place = rule.choose(request, options, 0.1 * number)
        assert 0 <= place < 3
        assert [cost.site for cost in before] == ["B", "C", "D"]
        assert before[place].total_s == min(cost.total_s for cost in before if cost.open)
        site = options[place].site
        rule.sent(request, site, 0.1 * number)
        rule.first_token(request, site, 0.1 * number + 0.05, 0.05)
        rule.finished(request, site, make_outcome(request, 0))
    rule.failed("C", 3.0)
    rule.plan_changed([])
    assert rule.choose(make_request(99), options[:1], 4.0) == 0
