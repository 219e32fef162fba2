"""Network facts, homes and the shares of a plan."""

from __future__ import annotations

import pytest

from data.plan import TrafficShare
from router.sites.paths import SitePaths
from router.sites.sessions import SessionSites
from router.sites.shares import ShareBook
from router.sites.unreported import MOST, Unreported


def test_facts_follow_the_links(site_fleet):
    paths = SitePaths(site_fleet)
    facts = paths.to("A")["C"]
    assert facts.rtt_s == 0.012
    assert facts.transfer_s_per_token == pytest.approx(4 / 5e9)
    assert paths.to("") == paths.to("A")
    assert paths.to("B")["B"].rtt_s == 0.0
    assert "D" not in paths.to("B")
    assert paths.to("nowhere") == {}


@pytest.mark.parametrize(
    ("origin", "permitted", "home"),
    [
        ("A", {"B", "C", "D"}, {"B"}),
        ("A", {"D"}, {"D"}),
        ("C", {"B", "C"}, {"C"}),
        ("B", {"D"}, set()),
        ("nowhere", {"B"}, set()),
        ("A", set(), set()),
    ],
)
def test_home_is_the_nearest_permitted_site(site_fleet, origin, permitted, home):
    assert SitePaths(site_fleet).home(origin, permitted) == home


def share(site: str, value: float) -> TrafficShare:
    return TrafficShare("m@1", "interactive", "t", "A", site, value)


def test_excess_is_what_was_sent_less_what_was_planned(make_request):
    book = ShareBook()
    book.plan([share("B", 0.6), share("C", 0.2)])  # a fifth is unserved: 3 to 1
    request = make_request()
    assert book.planned(request, ["B", "C", "D"]) == pytest.approx([0.75, 0.25, 0.0])
    assert book.excess(request, ["B", "C"]) == pytest.approx([-0.75, -0.25])
    for _ in range(3):
        book.sent(request, "B", 0.0)
    book.sent(request, "C", 0.0)
    assert book.excess(request, ["B", "C"]) == pytest.approx([0.0, 0.0])
    book.sent(request, "C", 60.0)  # what was sent a minute ago counts half
    assert book.excess(request, ["B", "C"]) == pytest.approx([0.5 - 0.75, 0.5 - 0.25])


def test_shares_of_sites_that_are_gone_go_to_those_that_are_there(make_request):
    book = ShareBook()
    book.plan([share("B", 0.5), share("C", 0.25), share("D", 0.25)])
    assert book.planned(make_request(), ["C", "D"]) == [0.5, 0.5]
    assert book.planned(make_request(), ["E"]) is None
    assert book.planned(make_request(tenant="other"), ["B"]) is None
    assert book.excess(make_request(tenant="other"), ["B"]) == [0.0]


def test_a_new_plan_replaces_the_old_one_and_nothing_made_up_is_counted(make_request):
    book = ShareBook()
    book.plan([share("B", 1.0)])
    for number in range(100):
        book.sent(make_request(tenant=f"made-up-{number}"), "B", 0.0)
    book.sent(make_request(), "B", 0.0)
    book.plan([share("B", 0.5), share("C", 0.5)])
    assert book.excess(make_request(), ["B", "C"]) == [0.5, -0.5]
    assert len(book._sent) == 1
    book.plan([])
    assert book.planned(make_request(), ["B"]) is None
    assert not book._sent


def test_sessions_are_remembered_by_tenant_and_bounded():
    sessions = SessionSites(most=2)
    sessions.served("t", "m@1", "s", "C", 700, 0.0)
    assert sessions.site("t", "m@1", "s", 1.0) == "C"
    assert sessions.tokens_at("t", "m@1", "s", "C", 1.0) == 700
    assert sessions.tokens_at("t", "m@1", "s", "B", 1.0) == 0
    assert sessions.site("other", "m@1", "s", 1.0) == ""
    assert sessions.site("t", "m@1", "s", 1e6) == ""
    sessions.served("t", "m@1", "", "C", 1, 0.0)
    assert len(sessions) == 1
    for number in range(5):
        sessions.served("t", "m@1", f"s{number}", "C", 1, 0.0)
    assert len(sessions) == 2
    assert sessions.site("t", "m@1", "s", 1.0) == ""


def test_unreported_work_ends_with_a_newer_report():
    work = Unreported()
    assert work.since("B", "m@1", 0.0) == (0, 0.0)
    work.sent("B", "m@1", 0.1, 1.0)
    work.sent("B", "m@1", 0.2, 2.0)
    assert work.since("B", "m@1", 0.5) == (2, pytest.approx(0.3))
    assert work.since("B", "m@1", 1.0) == (1, pytest.approx(0.2))
    assert work.since("B", "m@1", 2.0) == (0, 0.0)
    for number in range(MOST + 10):
        work.sent("B", "m@1", 1.0, 3.0 + number)
    assert work.since("B", "m@1", 2.5)[0] == MOST
