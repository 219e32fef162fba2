"""Ready capacity by site, against plain sums over the table."""

from __future__ import annotations

import numpy as np
import pytest

from data.types import Slo
from models.physics import PriorPredictor
from router.candidate_features import CandidateFeatures
from router.endpoints import VACANT
from router.leases import LeaseBook
from router.prefix import EventPrefixIndex
from router.reports import apply_reports
from router.sites.paths import SitePaths
from router.sites.summary import SiteSummary


@pytest.fixture
def loaded(make_table, make_request):
    """Six endpoints at B and C in turn, with work in flight and reports of different loads."""
    table = make_table(6, sites=("B", "C"), max_seqs=10)
    book, index = LeaseBook(table), EventPrefixIndex(6)
    for row, count in enumerate((0, 3, 1, 0, 2, 5)):
        for number in range(count):
            book.open(make_request(100 * row + number), row, 0.0, 0.5)
    index.stored(3, (1, 2, 3))
    rows = np.arange(6)
    apply_reports(table, book, rows, 1.0, np.arange(6.0), np.zeros(6), np.full(6, 0.1))
    return table, index


def test_counts_are_sums_and_times_those_of_the_best_replica(loaded, make_view, make_request, site_fleet):
    table, index = loaded
    view = make_view(table, 1.5, index)
    request, rows = make_request(slo=Slo(ttft_s=2.0)), np.arange(6)
    options = SiteSummary(table, 0.5).options(request, rows, view, SitePaths(site_fleet).to("A"), {"B"})
    assert [(option.site, option.local, option.rtt_s) for option in options] == [
        ("B", True, 0.002),
        ("C", False, 0.012),
    ]
    features = CandidateFeatures(table, PriorPredictor().codes).build(
        request, rows, np.zeros(6), view, PriorPredictor().codes
    )
    times = PriorPredictor().predict(features)
    for option, site_rows in zip(options, ([0, 2, 4], [1, 3, 5]), strict=True):
        capacity = option.capacity
        # Nothing has had a first token; a report counts what is in flight from here, and what others sent.
        waiting, taken = (
            table.inflight[site_rows],
            np.maximum(table.inflight[site_rows], np.arange(6.0)[site_rows]),
        )
        assert capacity.ready == 3
        assert capacity.idle == int((waiting < 0.5).sum())
        assert capacity.load == pytest.approx(taken.sum() / 15)
        assert capacity.free_slots == pytest.approx(np.maximum(5.0 - taken, 0.0).sum())
        assert capacity.at_s == pytest.approx(1.0)
        assert capacity.counts_own
        first = capacity.queue_s + capacity.fixed_s + 1000 * capacity.prefill_s_per_token
        assert np.isclose(times.ttft_s[site_rows, 0], first).any(), "one replica's time to first token"
        assert np.isclose(times.tpot_s[site_rows, 0], capacity.tpot_s).any()


def test_hits_are_those_of_the_replica_that_would_take_it(loaded, make_view, make_request, site_fleet):
    table, index = loaded
    request = make_request(block_hashes=(1, 2, 3, 4), block_tokens=100)
    view, paths = make_view(table, 1.5, index), SitePaths(site_fleet).to("A")
    summary = SiteSummary(table)
    held = {one.site: one.hit_tokens for one in summary.options(request, np.arange(6), view, paths, ())}
    assert held == {"B": 0.0, "C": 300.0}
    without = summary.options(request, np.array([0, 1, 5]), view, paths, ())
    assert {one.site: one.hit_tokens for one in without} == {"B": 0.0, "C": 0.0}


def test_sites_without_a_candidate_are_no_option(loaded, make_view, make_request, site_fleet):
    table, index = loaded
    view, paths = make_view(table, 1.5, index), SitePaths(site_fleet).to("A")
    options = SiteSummary(table).options(make_request(), np.array([1, 5]), view, paths, ())
    assert [option.site for option in options] == ["C"]
    assert options[0].capacity.ready == 2


def test_endpoints_that_are_no_candidates_change_nothing(loaded, make_view, make_request, site_fleet):
    """F005: sums are over the candidates alone; a broken or forbidden endpoint beside them is as good as none."""
    table, index = loaded
    view, paths, rows = make_view(table, 1.5, index), SitePaths(site_fleet).to("A"), np.array([0, 1, 2])
    before = SiteSummary(table).options(make_request(), rows, view, paths, ())
    table.healthy[3:], table.inflight[3:], table.waiting[3:], table.kv_use[3:] = False, 200.0, 90.0, 1.0
    assert SiteSummary(table).options(make_request(), rows, view, paths, ()) == before


def test_a_site_is_as_old_as_its_newest_report(loaded, make_view, make_request, site_fleet):
    table, index = loaded
    table.reported_at_s[[0, 2]] = (0.2, 1.4)  # B's rows are 0, 2 and 4
    table.reported_at_s[[1, 3]] = (0.9, 0.1)
    view, paths = make_view(table, 1.5, index), SitePaths(site_fleet).to("A")
    options = SiteSummary(table).options(make_request(), np.array([0, 1, 2, 3]), view, paths, ())
    assert [option.capacity.at_s for option in options] == pytest.approx([1.4, 0.9])


def test_never_reported_is_old_and_not_full(make_table, make_view, make_request, site_fleet):
    table = make_table(2, sites=("B", "C"))
    view = make_view(table, 100.0)
    for option in SiteSummary(table).options(
        make_request(), np.arange(2), view, SitePaths(site_fleet).to("A"), ()
    ):
        assert option.capacity.at_s == pytest.approx(40.0)
        assert option.capacity.queue_s == pytest.approx(0.0, abs=0.02)
        assert option.capacity.load == 0.0


def test_an_entry_gets_the_same_sums_without_its_own_counts(loaded):
    table, _ = loaded
    found = SiteSummary(table).capacities("m@1", np.arange(6), 1.5)
    assert [(one.site, one.ready, one.counts_own, one.model) for one in found] == [
        ("B", 3, False, "m@1"),
        ("C", 3, False, "m@1"),
    ]
    assert SiteSummary(table).capacities("m@1", np.arange(0), 1.5) == []


def test_a_table_that_changes_is_summed_up_anew(make_table, make_view, make_request, site_fleet):
    table = make_table(3, sites=("B", "C"))
    summary, paths = SiteSummary(table), SitePaths(site_fleet).to("A")
    moved = make_table(1, sites=("D",)).specs[0]
    table.put(0, VACANT)
    table.grow(4)
    table.put(3, moved)
    options = summary.options(make_request(), np.array([1, 2, 3]), make_view(table), paths, ())
    assert {option.site: option.capacity.ready for option in options} == {"B": 1, "C": 1, "D": 1}
    assert summary.rows_at("D", np.array([1, 2, 3])).tolist() == [3]
