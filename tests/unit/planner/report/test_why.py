"""The plain-language result: right winner, right direction, no claim that the runs do not carry."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from planner.arm import Arm
from planner.compare import Comparison, compare
from planner.report.numbers import GAP
from planner.report.why import explain
from planner.sim.result import RunResult

Maker = Callable[..., RunResult]


def told(comparison: Comparison) -> str:
    return " ".join(explain(comparison)).replace(GAP, " ")


def test_names_winner_size_interval_and_what_changed(comparison_maker: Callable[..., Comparison]) -> None:
    text = told(comparison_maker())
    assert text.startswith("tokenpilot gave the most Goodput: ")
    assert "more than least_request (95 % interval +" in text
    assert "prefix cache" in text
    assert "requests waited on average" in text
    assert "TTFT P95" in text


def test_a_reference_that_wins_is_said_to_win(comparison_maker: Callable[..., Comparison]) -> None:
    text = told(comparison_maker(("least_request", "round_robin", "cache_aware")))
    assert text.startswith("No policy beat the reference least_request")
    assert "cache_aware, gave −" in text


def test_equal_policies_are_not_told_apart(run_maker: Maker) -> None:
    def run(arm: Arm, seed: int) -> RunResult:
        result = run_maker(Arm("x", "least_request"), seed)
        flip = 0.001 if (seed % 2 == 0) == (arm.name == "a") else -0.001
        total = dataclasses.replace(
            result.total, goodput_tokens_per_s=result.total.goodput_tokens_per_s * (1 + flip)
        )
        return dataclasses.replace(result, total=total)

    text = told(compare([Arm("a", "a"), Arm("b", "b")], run, range(6), reference="b", workers=1))
    assert "do not separate" in text or text.startswith("No policy beat"), text
    assert "do not show a cause" in text


def test_a_runner_up_that_may_be_as_good_is_named(run_maker: Maker) -> None:
    def run(arm: Arm, seed: int) -> RunResult:
        twin = Arm("x", "tokenpilot") if arm.name.startswith("twin") else arm
        result = run_maker(twin, seed)
        flip = 1.002 if arm.name == "twin_a" and seed != 2 else 0.995 if arm.name == "twin_a" else 1.0
        rate = result.total.goodput_tokens_per_s * flip
        return dataclasses.replace(result, total=dataclasses.replace(result.total, goodput_tokens_per_s=rate))

    arms = [Arm(name, name) for name in ("least_request", "round_robin", "twin_a", "twin_b")]
    text = told(compare(arms, run, range(6), reference="least_request", workers=1))
    assert text.startswith("twin_a gave the most")
    assert "Not told apart from twin_a by these runs: twin_b: " in text
    assert "round_robin" not in text


def test_few_seeds_claim_no_certainty(comparison_maker: Callable[..., Comparison]) -> None:
    assert "cannot say how sure that is" in told(comparison_maker(seeds=2))


def test_a_class_that_loses_is_named(run_maker: Maker) -> None:
    def run(arm: Arm, seed: int) -> RunResult:
        result = run_maker(arm, seed)
        if arm.name != "tokenpilot":
            return result
        worse = dataclasses.replace(result.by_class["batch"], attainment_offered=0.31)
        return dataclasses.replace(result, by_class=result.by_class | {"batch": worse}, gpu_hours=99.0)

    arms = [Arm("least_request", "least_request"), Arm("tokenpilot", "tokenpilot")]
    text = told(compare(arms, run, range(5), reference="least_request", workers=1))
    assert "class batch met its targets for 31.0 %" in text
    assert "On the other side: it used 99 GPU-hours" in text


def test_one_arm_alone_is_described(comparison_maker: Callable[..., Comparison]) -> None:
    text = told(comparison_maker(("tokenpilot",), seeds=1))
    assert "met their targets" in text
    assert "against" not in text


def test_a_run_without_requests_is_described_without_figures(run_maker: Maker) -> None:
    def run(arm: Arm, seed: int) -> RunResult:
        result = run_maker(arm, seed)
        empty = np.zeros((0, 3))
        line = dataclasses.replace(result.timeline, waiting=empty, running=empty, kv_use=empty)
        total = dataclasses.replace(result.total, offered=0, hit_rate=float("nan"))
        return dataclasses.replace(result, timeline=line, total=total, endpoint_requests=np.zeros(4))

    arms = [Arm("least_request", "least_request"), Arm("tokenpilot", "tokenpilot")]
    text = told(compare(arms, run, range(5), reference="least_request", workers=1))
    assert "waited" not in text
    assert "nan" not in text
