"""Parts of the SLOMax and split benchmarks that their figures rest on."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.slomax_loads import ARMS, LOADS, LoadPoint, ahead, picture
from benchmarks.slomax_scenario import scenario
from benchmarks.slomax_window import in_window
from benchmarks.split_simulation import CLASSES, SharedOut, fleet_of, instance, quotas_of, streams
from planner.trace_source import SynthTrace
from solver.capacity import close_split
from solver.capacity_greedy import greedy_split
from solver.capacity_problem import CapacityProblem, CapacitySettings, CapacitySplit


@pytest.fixture(scope="module")
def problem() -> CapacityProblem:
    return instance(3, 1.6)


@pytest.fixture(scope="module")
def split(problem: CapacityProblem) -> CapacitySplit:
    settings = CapacitySettings()
    return close_split(problem, settings, *greedy_split(problem, settings), "greedy")


def test_every_split_sees_the_same_requests_and_sends_them_by_its_shares(problem: CapacityProblem) -> None:
    lines = SynthTrace(streams(problem), 20.0, "lines")
    first = np.tile([1.0, 1.0, 1.0], (len(problem.demand), 1))
    halves = np.tile([0.5, 0.5, 1.0], (len(problem.demand), 1))
    one, two = (
        [row for batch in SharedOut(lines, ("a", "b", "c"), upto).batches(1) for row in batch.rows()]
        for upto in (first, halves)
    )
    assert {row.model for row in one} == {"a"}
    assert [replace(row, model="") for row in one] == [replace(row, model="") for row in two]
    share = np.mean([row.model == "a" for row in two])
    assert share == pytest.approx(0.5, abs=0.05)
    assert {row.model for row in two} == {"a", "c"}


def test_lines_ask_for_their_demand(problem: CapacityProblem) -> None:
    lines = SynthTrace(streams(problem), 200.0, "lines")
    asked = sum(int(batch.output_tokens.sum()) for batch in lines.batches(2)) / 200.0
    assert asked == pytest.approx(float(problem.demand.sum()), rel=0.15)


def test_the_fleet_of_an_instance_permits_what_the_instance_permits(
    problem: CapacityProblem, split: CapacitySplit
) -> None:
    fleet = fleet_of(problem)
    for k, tenant in enumerate(fleet.tenants):
        allowed = {fleet.models[p].key for p in np.flatnonzero(problem.permitted[:, k])}
        assert set(tenant.models) == allowed
    assert sum(one.replicas for one in fleet.placement) == fleet.pools[0].count
    quotas = quotas_of(problem, split, fleet)
    assert set(quotas) == {(model.key, kind) for model in fleet.models for kind in CLASSES}
    for c, kind in enumerate(CLASSES):
        planned = split.quota[:, problem.workload_class == c].sum(axis=1)
        carried = np.array([quotas[model.key, kind] for model in fleet.models])
        assert (planned <= carried * (1 + 1e-9) + 1e-6).all()


def test_the_picture_has_a_line_for_each_arm_in_both_panels_and_a_lead_is_seed_by_seed() -> None:
    found = {
        name: [LoadPoint([scale * (1000.0 + i) for i in range(5)], [0.5] * 5, [1.0] * 5) for _ in LOADS]
        for name, scale in zip(ARMS, (2.0, 1.0, 0.5), strict=True)
    }
    drawing = ElementTree.fromstring(picture(found))
    lines = [one for one in drawing.iter() if one.tag.endswith("polyline")]
    assert len(lines) == 2 * len(ARMS)
    heights = [float(one.attrib["points"].split()[0].split(",")[1]) for one in lines[: len(ARMS)]]
    assert heights == sorted(heights)  # more Goodput stands higher, and y grows downwards
    assert ahead(found, 0, "none").mean == pytest.approx(3.0)


def test_a_window_is_counted_by_the_clock_of_the_run() -> None:
    case = in_window(scenario(), 2.0, 10.0)
    arrivals = [row.arrival_s for batch in case.trace.batches(1) for row in batch.rows()]
    assert 8.0 < max(arrivals) < 10.0
