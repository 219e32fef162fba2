"""Machine output: complete, exact, valid JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable

import numpy as np
import pytest

from planner import measures as m
from planner.arm import Arm
from planner.compare import Comparison
from planner.report.machine import comparison_values, run_values, to_json
from planner.sim.result import RunResult


def test_comparison_holds_every_figure_of_every_seed(comparison_maker: Callable[..., Comparison]) -> None:
    result = comparison_maker()
    values = json.loads(to_json(comparison_values(result)))
    assert [arm["name"] for arm in values["arms"]] == [entry.arm.name for entry in result.ranked()]
    first = values["arms"][0]
    assert set(first["figures"]) == {measure.key for measure in m.MEASURES}
    goodput = first["figures"]["goodput"]
    assert goodput["values"] == result.arm("tokenpilot").values(m.GOODPUT)
    assert goodput["low"] < goodput["mean"] < goodput["high"]
    assert goodput["relative_difference"]["mean"] == pytest.approx(result.relative_difference("tokenpilot").mean)
    assert set(first["by_class"]) == {"batch", "interactive", "long_context"}
    assert any("output tokens only" in note for note in values["notes"])


def test_too_few_seeds_are_null_intervals(comparison_maker: Callable[..., Comparison]) -> None:
    values = json.loads(to_json(comparison_values(comparison_maker(seeds=2))))
    assert values["arms"][0]["figures"]["goodput"]["low"] is None


def test_a_run_is_complete_and_nan_is_null(run_maker: Callable[..., RunResult]) -> None:
    run = run_maker(Arm("tokenpilot", "tokenpilot"), 3)
    never = dataclasses.replace(run.total.ttft, count=0, p50=np.nan)
    run = dataclasses.replace(run, total=dataclasses.replace(run.total, ttft=never))
    values = json.loads(to_json(run_values(run)))
    assert set(values) == {field.name for field in dataclasses.fields(run)} | {"goodput_per_gpu_hour"}
    assert values["total"]["ttft"]["p50"] is None
    assert values["timeline"]["sites"] == ["B", "C", "D"]
    assert len(values["timeline"]["waiting"]) == 120
