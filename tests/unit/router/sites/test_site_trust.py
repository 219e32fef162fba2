"""Failures and silence shut a way; it comes back step by step; slowness is learned."""

from __future__ import annotations

from itertools import pairwise

import pytest

from router.sites.trust import FULL_TRIAL, MOST_SLOW, Trust


@pytest.fixture
def trust() -> Trust:
    return Trust(dwell_s=10.0, silence_s=5.0, trial=4)


def fail(trust: Trust, number: int, now_s: float, site: str = "C", origin: str = "A") -> None:
    trust.sent((number, 0), origin, site, now_s, 0.1)
    trust.ended((number, 0), origin, site, now_s, "bad")


def serve(trust: Trust, number: int, now_s: float, site: str = "C", ttft_s: float = 0.1) -> None:
    trust.sent((number, 0), "A", site, now_s, 0.1)
    trust.first_token((number, 0), "A", site, now_s, ttft_s)
    trust.ended((number, 0), "A", site, now_s, "good")


def test_one_failure_shuts_nothing_and_many_do(trust):
    fail(trust, 0, 0.0)
    fail(trust, 1, 0.0)
    assert trust.state("A", "C", 0.0) == "open"
    fail(trust, 2, 0.0)
    assert trust.state("A", "C", 0.0) == "shunned"
    assert not trust.may_send("A", "C", 9.9)
    assert trust.state("B", "C", 0.0) == "open", "another way to the same site"


def test_few_failures_among_many_good_ones_shut_nothing(trust):
    for number in range(100):
        serve(trust, number, 0.0)
    for number in range(100, 150):
        fail(trust, number, 0.0)
    assert trust.state("A", "C", 0.0) == "open", "a third of what ended lately, by one crash perhaps"
    for number in range(150, 210):
        fail(trust, number, 0.0)
    assert trust.state("A", "C", 0.0) == "shunned"


def test_failures_in_a_row_shut_a_way_that_was_good_for_long(trust):
    for number in range(1000):
        serve(trust, number, 0.01 * number)
    for number in range(1000, 1010):
        fail(trust, number, 10.5)
    assert trust.state("A", "C", 10.5) == "open", "the last sign of life is half a second old"
    fail(trust, 1010, 11.5)
    assert trust.state("A", "C", 11.5) == "shunned"


def test_return_is_careful(trust):
    for number in range(3):
        fail(trust, number, 0.0)
    assert trust.state("A", "C", 10.0) == "trial"
    sent = 0
    while trust.may_send("A", "C", 10.0):
        trust.sent((100 + sent, 0), "A", "C", 10.0, 0.1)
        sent += 1
    assert sent == 4
    trust.first_token((100, 0), "A", "C", 10.1, 0.1)
    assert trust.may_send("A", "C", 10.1), "a first token lets in one more"
    trust.sent((200, 0), "A", "C", 10.1, 0.1)
    assert not trust.may_send("A", "C", 10.1)
    for number in range(101, 104):
        trust.first_token((number, 0), "A", "C", 10.2, 0.1)
    for number in range(1000, 1000 + FULL_TRIAL):
        serve(trust, number, 10.3)
    assert trust.state("A", "C", 10.3) == "open"


def test_a_relapse_in_the_trial_doubles_the_dwell_time(trust):
    now_s = 0.0
    for number in range(3):
        fail(trust, number, now_s)
    dwells = []
    for number in range(10, 17):
        since = now_s
        while trust.state("A", "C", now_s) == "shunned":
            now_s += 1.0
        dwells.append(now_s - since)
        fail(trust, number, now_s)
    assert dwells == [10.0, 20.0, 40.0, 80.0, 160.0, 160.0, 160.0]


def test_errors_that_come_and_go_switch_once_a_dwell_time_at_most():
    """F114: the error rate of a site toggles every 20 s; the way flips at most once in each dwell time."""
    trust = Trust(dwell_s=10.0, silence_s=5.0, trial=4)
    shut_at, until_s = [], 0.0
    for number in range(3000):
        now_s = number * 0.2
        if trust.may_send("A", "C", now_s):
            if int(now_s // 20) % 2:
                fail(trust, number, now_s)
            else:
                serve(trust, number, now_s)
        if trust.state("A", "C", now_s) == "shunned" and trust.way("A", "C").until_s != until_s:
            until_s = trust.way("A", "C").until_s
            shut_at.append(now_s)
    gaps = [later - earlier for earlier, later in pairwise(shut_at)]
    assert len(shut_at) >= 3
    assert min(gaps) >= 10.0


def test_silence_shuts_before_any_client_gives_up(trust):
    """A site that takes requests and never answers; it would look idle."""
    serve(trust, 0, 0.0)
    for number in range(1, 20):
        trust.sent((number, 0), "A", "C", 1.0 + 0.1 * number, 0.1)
    assert trust.state("A", "C", 6.0) == "open"
    assert trust.state("A", "C", 6.2) == "shunned"


def test_callers_who_tell_of_no_first_tokens_are_no_silence(trust):
    """The end of a request is all that is ever known: a long answer shuts nothing, and a trial counts ends."""
    for number in range(5):
        trust.sent((number, 0), "A", "C", 0.0, 0.1)
    assert trust.state("A", "C", 60.0) == "open"
    trust.failed("C", 60.0, "A")
    for number in range(10, 10 + FULL_TRIAL):
        assert trust.may_send("A", "C", 70.0)
        trust.sent((number, 0), "A", "C", 70.0, 0.1)
        trust.ended((number, 0), "A", "C", 80.0, "good")
    assert trust.state("A", "C", 80.0) == "open"


def test_waiting_behind_a_long_queue_is_no_silence(trust):
    serve(trust, 0, 0.0, "B")
    trust.sent((1, 0), "A", "C", 0.0, 8.0)
    assert trust.state("A", "C", 20.0) == "open"
    assert trust.state("A", "C", 24.5) == "shunned"
    other = Trust(10.0, 5.0, 4)
    other.sent((1, 0), "A", "C", 0.0, 0.1)
    other.sent((2, 0), "A", "C", 0.0, 0.1)
    other.first_token((2, 0), "A", "C", 4.0, 4.0)
    assert other.state("A", "C", 8.0) == "open", "the site lives"


def test_what_was_sent_before_the_way_was_shut_does_not_judge_its_trial(trust):
    for number in range(20):
        trust.sent((number, 0), "A", "C", 0.0, 0.1)
    for number in range(3):
        trust.ended((number, 0), "A", "C", 1.0, "bad")
    assert trust.state("A", "C", 11.0) == "trial"
    trust.first_token((3, 0), "A", "C", 11.5, 11.5)
    assert trust.way("A", "C").allowed == 4, "a sign of life, but no request of the trial"
    for number in range(3, 20):
        trust.ended((number, 0), "A", "C", 12.0, "bad")
    assert trust.state("A", "C", 12.0) == "trial"
    assert not trust.way("A", "C").judged


def test_only_clients_that_waited_far_too_long_are_evidence(trust):
    for number in range(10):
        trust.sent((number, 0), "A", "C", 0.0, 0.1)
        trust.ended((number, 0), "A", "C", 0.5, "given_up")
    assert trust.state("A", "C", 0.5) == "open", "impatient clients"
    for number in range(10, 14):
        trust.sent((number, 0), "A", "C", 1.0, 0.1)
    for number in range(10, 14):
        trust.ended((number, 0), "A", "C", 5.5, "given_up")
    assert trust.state("A", "C", 5.5) == "shunned"


def test_a_known_failure_shuts_one_way_or_all_of_them(trust):
    for origin in ("A", "B"):
        trust.state(origin, "C", 0.0)
    trust.failed("C", 1.0, "A")
    assert [trust.state(origin, "C", 1.0) for origin in ("A", "B")] == ["shunned", "open"]
    trust.failed("C", 2.0)
    assert trust.state("B", "C", 2.0) == "shunned"
    trust.failed("D", 3.0, "A")
    assert trust.state("A", "D", 3.0) == "shunned"


def test_a_site_that_slows_by_half_is_seen_as_twice_as_slow(trust):
    """Step response: 100 requests after the step the learned factor is within a tenth of the truth."""
    for number in range(200):
        serve(trust, number, 0.1 * number, "B")
        serve(trust, 1000 + number, 0.1 * number, "C", 0.12)
    assert trust.slowness("A", ["B", "C"]) == pytest.approx([1.0, 1.2], rel=0.01)
    for number in range(100):
        serve(trust, 2000 + number, 20.0, "C", 0.24)
    assert trust.slowness("A", ["B", "C"])[1] == pytest.approx(2.4, rel=0.1)
    for number in range(200):
        serve(trust, 3000 + number, 20.0, "C", 0.12)
    assert trust.slowness("A", ["B", "C"])[1] == pytest.approx(1.2, rel=0.05), "and forgets again"


def test_slowness_needs_something_to_compare_with_and_is_bounded(trust):
    for number in range(500):
        serve(trust, number, 0.0, "C", 100.0)
    assert trust.slowness("A", ["B", "C"]) == [1.0, 1.0]
    for number in range(500, 1000):
        serve(trust, number, 0.0, "B", 1e-3)
    assert trust.slowness("A", ["B", "C", "D"]) == [1.0, MOST_SLOW, 1.0]
