"""Charts as data: curves from any bins, odd model figures, and the two arms that are shown over time."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable

import numpy as np
import pytest

from planner.arm import Arm
from planner.compare import Comparison, compare
from planner.report.charts import difference_chart, goodput_chart, ttft_chart
from planner.report.data import ModelQuality, ReportData
from planner.report.page import script_json
from planner.report.time_charts import quality_charts, shown_over_time, site_charts
from planner.sim.result import RunResult


def test_ttft_curve_puts_bins_of_different_runs_together(
    run_maker: Callable[..., RunResult], report_maker: Callable[..., ReportData]
) -> None:
    """Runs report only the bins that they filled, so their edges differ; a run may have filled none."""
    bins = {
        0: (np.array([0.1, 0.2, 0.4]), np.array([3.0, 1.0])),
        1: (np.array([0.2, 0.4, 0.8, 1.6]), np.array([2.0, 0.0, 2.0])),
        2: (np.zeros(0), np.zeros(0)),
    }

    def run(arm: Arm, seed: int) -> RunResult:
        return dataclasses.replace(run_maker(arm, seed), ttft_histogram=bins[seed])

    result = compare([Arm("x", "x")], run, range(3), reference="x", workers=1)
    trace = ttft_chart(result, report_maker(result).fleet).traces[0]
    assert trace["x"] == [0.2, 0.4, 1.6]
    assert trace["y"] == [37.5, 75.0, 100.0]


def test_intervals_are_drawn_only_where_there_are_some(comparison_maker: Callable[..., Comparison]) -> None:
    for seeds, visible in ((5, True), (2, False)):
        result = comparison_maker(seeds=seeds)
        assert goodput_chart(result).traces[0]["error_x"]["visible"] is visible
        assert difference_chart(result).traces[0]["error_x"]["visible"] is visible


def test_best_and_reference_are_shown_over_time(comparison_maker: Callable[..., Comparison]) -> None:
    assert [entry.arm.name for entry in shown_over_time(comparison_maker())] == ["tokenpilot", "least_request"]
    beaten = comparison_maker(("least_request", "round_robin", "cache_aware"))
    assert [entry.arm.name for entry in shown_over_time(beaten)] == ["least_request", "cache_aware"]
    assert [entry.arm.name for entry in shown_over_time(comparison_maker(("tokenpilot",)))] == ["tokenpilot"]


def test_a_timeline_without_sites_is_drawn(run_maker: Callable[..., RunResult]) -> None:
    def run(arm: Arm, seed: int) -> RunResult:
        result = run_maker(arm, seed)
        flat = dataclasses.replace(
            result.timeline, sites=("B",), waiting=np.array([1.0, 2.0]), kv_use=np.array([0.5, 0.6])
        )
        return dataclasses.replace(result, timeline=flat)

    (chart,) = site_charts(compare([Arm("x", "x")], run, [0], reference="x", workers=1))
    assert chart.traces[0]["y"] == [1.0, 2.0]
    assert chart.traces[1]["y"] == [50.0, 60.0]


@pytest.mark.parametrize("rows", [0, 5, 40_000])
def test_model_figures_survive_gaps_and_any_size(rows: int) -> None:
    rng = np.random.default_rng(2)
    observed = rng.lognormal(0, 1, rows)
    if rows:
        observed[0] = np.nan
    quality = ModelQuality("TTFT", observed * 1.1, observed, ((0.5, 0.5), (0.9, float("nan"))), 0.1)
    scatter, coverage = quality_charts(quality)
    text = script_json([scatter.traces, coverage.traces])
    assert "null" not in text
    drawn = json.loads(text)
    assert len(drawn[0][0]["x"]) <= 1500
    assert drawn[1][0]["x"] == [50.0]
    assert "nan" not in coverage.alternative
