"""Histograms, timeline and groups."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.types import Outcome, Slo, Status
from planner.sim.histogram import Histogram
from planner.sim.meter import Meter
from planner.sim.timeline import MOST_POINTS, TimelineMeter


@given(st.lists(st.floats(1e-4, 1e5), min_size=1, max_size=300), st.sampled_from([0.5, 0.9, 0.99]))
def test_quantiles_are_within_one_percent(values: list[float], share: float) -> None:
    histogram = Histogram()
    for value in values:
        histogram.add(value)
    exact = sorted(values)[max(math.ceil(share * len(values) - 1e-9) - 1, 0)]
    assert histogram.quantile(share) == pytest.approx(exact, rel=0.0101)
    distribution = histogram.distribution()
    assert distribution.count == len(values)
    assert distribution.mean == pytest.approx(float(np.mean(values)))
    edges, counts = histogram.edges_and_counts()
    assert counts.sum() == len(values)
    assert len(edges) == len(counts) + 1
    assert edges[0] <= min(values) * 1.0001
    assert edges[-1] >= max(values) * 0.9999


def test_an_empty_histogram_knows_nothing() -> None:
    distribution = Histogram().distribution()
    assert distribution.count == 0
    assert math.isnan(distribution.p50)
    assert math.isnan(distribution.mean)
    assert Histogram().edges_and_counts()[1].size == 0


def test_zero_is_a_time() -> None:
    histogram = Histogram()
    histogram.add(0.0)
    assert histogram.quantile(0.5) == 0.0


def test_timeline_doubles_its_step_and_keeps_means_and_tokens() -> None:
    timeline = TimelineMeter(100.0, 1.0, ("B",))
    for second in range(2000):
        while timeline.next_s <= 100.0 + second:
            level = np.array([float(second)])
            timeline.sample(level, level * 2, level * 0)
        timeline.good_tokens(100.0 + second, 3)
    result = timeline.result()
    assert result.step_s == 4.0
    assert len(result.waiting) <= MOST_POINTS
    assert (result.goodput_tokens_per_s * result.step_s).sum() == pytest.approx(6000)
    assert result.waiting[10, 0] == pytest.approx(np.mean([40, 41, 42, 43]))
    assert np.allclose(result.running, result.waiting * 2)


def outcome(status: Status, ttft_s: float, e2e_s: float, tokens: int) -> Outcome:
    return Outcome(0, 0, status, "chat", "t", 0, 0.0, e2e_s, ttft_s, e2e_s, 100, 0, tokens)


def test_goodput_counts_only_what_met_its_targets() -> None:
    meter = Meter()
    groups = meter.groups("chat", "t")
    slo = Slo(ttft_s=1.0, tpot_s=0.1)
    for group in groups:
        group.offered += 5
    assert meter.completed(groups, slo, outcome(Status.COMPLETED, 0.5, 1.4, 10)) == 10
    assert meter.completed(groups, slo, outcome(Status.COMPLETED, 1.5, 2.4, 10)) == 0
    assert meter.completed(groups, slo, outcome(Status.COMPLETED, 0.5, 3.0, 10)) == 0
    meter.gave_up(groups, Status.FAILED)
    result = meter.by_class["chat"].result(10.0)
    assert (result.completed, result.met, result.failed, result.running) == (3, 1, 1, 1)
    assert result.goodput_tokens_per_s == 1.0
    assert result.output_tokens_per_s == 3.0
    assert result.attainment_finished == pytest.approx(1 / 3)
    assert result.attainment_offered == pytest.approx(1 / 5)
    assert meter.total.result(10.0) == result == meter.by_tenant["t"].result(10.0)


def test_an_empty_group_has_no_rates() -> None:
    result = Meter().total.result(0.0)
    assert result.goodput_tokens_per_s == 0.0
    assert result.hit_rate == 0.0
