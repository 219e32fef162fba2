"""The sustained rate by load tests, what is remembered of it, and how it reaches the capacity table."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from data.catalog.load import Catalog
from data.catalog.types import ServiceTimes
from data.errors import InputError, SettingError
from data.fleet.types import Fleet
from data.types import Slo
from models.capacity import CapacitySettings, ClassShape, GroupRate, ReplicaLimits, group_rate
from models.capacity_check import (
    CHECKED_GROUP,
    CapacityCase,
    CheckedRate,
    checked_group_rate,
    grid_shape,
    pooling_law,
)
from planner.capacity_cache import CapacityCache
from planner.capacity_search import search, sustained_rate
from planner.capacity_table import capacity_table
from planner.demand import DemandTable
from planner.load_tests import LoadTests, SearchSettings, goodput_curve
from planner.settings import PlannerSettings

TIMES = ServiceTimes(p0=0.012, p1=1.0e-4, p2=1.7e-9, d0=0.017, d1=7e-5, d2=2.7e-8)
CASE = CapacityCase(
    TIMES, ReplicaLimits(300_000, 256, 8192), ClassShape(1024.0, 128.0, 0.0, 0.5), Slo(1.0, 0.05), 0.95, 32_768
)
FEW = SearchSettings(requests=400, target_error=0.03, seeds=4, most_seeds=16)


class Curve:
    """Load tests whose attainment is known: a logistic fall around a rate, with a shift of its own by seed."""

    def __init__(self, middle: float, noise: float, alone: float = 1.0, throughput: float = 1e9) -> None:
        self._middle, self._noise, self._alone, self._throughput = middle, noise, alone, throughput
        self.requests = 400
        self.asked: list[float] = []

    def attainment(self, seed: int, rate: float) -> float:
        """Falls through 0.95 at ``middle`` on average."""
        self.asked.append(rate)
        shift = self._noise * float(np.random.default_rng(seed).standard_normal())
        return 1.0 / (1.0 + math.exp(20.0 * (math.log(rate / self._middle) + shift) - math.log(19.0)))

    def throughput(self, seed: int) -> float:
        """As told, a little more or less by seed."""
        return self._throughput * (1.01 if seed % 2 else 0.99)

    def met_alone(self, seed: int) -> float:
        """As told."""
        return self._alone


@pytest.mark.parametrize("guess", [0.2, 3.0, 40.0])
def test_the_search_finds_the_crossing_from_any_start(guess: float) -> None:
    found = search(Curve(3.0, 0.0), CASE, guess, FEW)
    assert found.rate == pytest.approx(3.0, rel=0.01)
    assert found.error < 0.01


def test_more_noise_takes_more_tests_and_is_told() -> None:
    quiet, loud = Curve(3.0, 0.02), Curve(3.0, 0.3)
    settings = SearchSettings(target_error=0.01, seeds=4, most_seeds=64)
    first, second = search(quiet, CASE, 3.0, settings), search(loud, CASE, 3.0, settings)
    assert len(loud.asked) > len(quiet.asked)
    assert second.error > first.error
    assert first.rate == pytest.approx(3.0, rel=0.03)


def test_a_backlog_that_a_test_cannot_show_is_bounded_by_throughput() -> None:
    """With a deadline of ten minutes a short test meets it far beyond what the replica can work off."""
    lax = replace(CASE, slo=Slo(deadline_s=600.0))
    found = search(Curve(30.0, 0.0, throughput=2.0), lax, 1.0, FEW)
    assert found.rate == pytest.approx(2.0, rel=0.01)
    tight = search(Curve(1.0, 0.0, throughput=2.0), lax, 1.0, FEW)
    assert tight.rate == pytest.approx(1.0, rel=0.02)


def test_most_requests_missing_on_an_idle_replica_mean_no_capacity() -> None:
    assert search(Curve(3.0, 0.0, alone=0.4), CASE, 3.0, FEW).rate == 0.0
    impossible = sustained_rate(replace(CASE, slo=Slo(ttft_s=1e-3)), 1, 1.0, FEW)
    assert (impossible.rate, impossible.met_alone) == (0.0, 0.0)


def test_the_sustained_rate_keeps_the_targets_and_more_does_not() -> None:
    """Checked on tests that the search never saw."""
    found = sustained_rate(CASE, 1, 5.0, FEW)
    assert found.error <= 0.03
    fresh = LoadTests(CASE, 1, SearchSettings(requests=2000, seed=99))

    def reached(factor: float) -> float:
        return float(np.mean([fresh.attainment(seed, factor * found.rate) for seed in range(4)]))

    assert reached(0.9) > 0.95 > reached(1.1)


def test_the_goodput_curve_rises_with_load_and_falls_beyond_capacity() -> None:
    rate = sustained_rate(CASE, 1, 5.0, FEW).rate
    points = goodput_curve(CASE, 1, rate * np.array([0.25, 0.5, 1.0, 1.6]), FEW)
    assert [point.attainment for point in points] == sorted((p.attainment for p in points), reverse=True)
    good = [point.goodput_tokens_per_s for point in points]
    assert good[0] < good[1] < good[2]
    assert good[3] < good[2]
    assert good[0] == pytest.approx(0.25 * rate * 128, rel=0.1)


def test_the_pooling_law_goes_through_both_measured_sizes() -> None:
    law = pooling_law(100.0, 460.0)
    assert law.of(1) == pytest.approx(100.0)
    assert law.of(CHECKED_GROUP) == pytest.approx(460.0)
    assert 2 * 100 < law.of(2) < 2 * 115
    assert pooling_law(100.0, 380.0).of(8) == pytest.approx(800.0)
    assert pooling_law(0.0, 10.0) == GroupRate(0.0, 0.0)


def test_the_grid_keeps_powers_of_two_and_moves_others_little() -> None:
    assert grid_shape(ClassShape(2048.0, 256.0, 0.3, 1.0)) == ClassShape(2048.0, 256.0, 0.0, 1.0)
    for tokens in (1.0, 37.0, 999.0, 123_456.0):
        moved = grid_shape(ClassShape(tokens, tokens, 0.0, 0.6))
        assert moved.input_tokens == pytest.approx(tokens, rel=0.05)
    assert moved.length_variation == 0.5


def test_the_closed_form_carries_a_measured_rate_to_the_shape() -> None:
    """At the grid point the answer is the measured one; beside it, it moves as the closed form does."""
    asked: list[CapacityCase] = []

    def check(case: CapacityCase, closed: GroupRate) -> CheckedRate:
        asked.append(case)
        assert closed.of(1) > 0
        return CheckedRate(2.0, 9.0, 0.01, 0.01, 1.0)

    constants = CapacitySettings()
    law = checked_group_rate(CASE, constants, check)
    assert law is not None
    assert (law.of(1), law.of(4)) == pytest.approx((2.0 * 128, 9.0 * 128))
    longer = replace(CASE, shape=replace(CASE.shape, input_tokens=1060.0))
    moved = checked_group_rate(longer, constants, check)
    assert moved is not None
    assert asked[0] == asked[1]
    here = group_rate(TIMES, CASE.limits, longer.shape, CASE.slo, constants).rate
    there = group_rate(TIMES, CASE.limits, CASE.shape, CASE.slo, constants).rate
    assert moved.of(1) == pytest.approx(2.0 * 128 * here / there)
    hits = checked_group_rate(replace(CASE, shape=replace(CASE.shape, hit_share=0.5)), constants, check)
    assert hits is not None
    assert hits.of(1) > law.of(1)
    assert checked_group_rate(CASE, constants, lambda _case, _closed: None) is None


class Counting:
    """Stands in for the search and counts."""

    def __init__(self) -> None:
        self.cases = 0

    def __call__(self, case: CapacityCase, closed: GroupRate, settings: SearchSettings) -> CheckedRate:
        """Always the same rates."""
        self.cases += 1
        return CheckedRate(2.0, 9.0, 0.01, 0.01, 1.0)


def test_what_was_measured_is_kept_until_an_input_changes(tmp_path: Path) -> None:
    path, counting, law = tmp_path / "cache.json", Counting(), GroupRate(100.0, 0.1)
    first = CapacityCache(path, measure=counting)
    assert first(CASE, law) == first(CASE, law)
    again = CapacityCache(path, measure=counting)
    assert again(CASE, law) == CheckedRate(2.0, 9.0, 0.01, 0.01, 1.0)
    assert (first.measured, first.known, again.measured, again.known, counting.cases) == (1, 1, 0, 1, 1)
    again(replace(CASE, slo=Slo(ttft_s=2.0)), law)
    again(replace(CASE, times=replace(TIMES, d0=0.018)), law)
    CapacityCache(path, FEW, measure=counting)(CASE, law)
    assert counting.cases == 4


def test_a_step_without_time_left_takes_the_closed_form(
    fleet: Fleet, catalog: Catalog, demand: DemandTable
) -> None:
    clock = iter([0.0, 1.0, *[30.0] * 100])
    counting = Counting()
    check = CapacityCache(None, limit_s=20.0, clock=lambda: next(clock), measure=counting)
    table = capacity_table(fleet, catalog, demand, PlannerSettings(), check)
    closed = capacity_table(fleet, catalog, demand, PlannerSettings())
    assert counting.cases == check.measured == 1
    assert check.unknown > 0
    differs = [
        (name, kind)
        for name, config in table.configs.items()
        for kind, law in config.groups.items()
        if law != closed.configs[name].groups[kind]
    ]
    assert len(differs) == 1


@pytest.mark.parametrize(
    "content", ["nothing", "[]", '{"format": "tokenfleet-capacity-1", "cells": {"a": {"one": -1}}}']
)
def test_a_file_that_is_no_cache_is_refused_and_kept(tmp_path: Path, content: str) -> None:
    path = tmp_path / "cache.json"
    path.write_text(content)
    with pytest.raises(InputError, match=r"cache\.json"):
        CapacityCache(path)
    assert path.read_text() == content


def test_answers_of_another_search_are_measured_again(tmp_path: Path) -> None:
    path = tmp_path / "cache.json"
    path.write_text(json.dumps({"format": "tokenfleet-capacity-0", "cells": {}}))
    check = CapacityCache(path, measure=Counting())
    check(CASE, GroupRate(100.0, 0.1))
    assert json.loads(path.read_text())["format"] == "tokenfleet-capacity-1"


def test_settings_out_of_range_are_named() -> None:
    with pytest.raises(SettingError, match="requests"):
        SearchSettings(requests=5)
    with pytest.raises(SettingError, match="most_seeds"):
        SearchSettings(seeds=8, most_seeds=4)
    with pytest.raises(SettingError, match="limit_s"):
        CapacityCache(None, limit_s=-1.0)
