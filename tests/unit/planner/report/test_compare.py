"""Comparing arms: same seeds, right pairing, worker processes, errors and interrupts."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from data.errors import InputError, SettingError, TokenFleetError
from planner import measures as m
from planner.arm import Arm
from planner.compare import Comparison, compare, group_estimate
from planner.run_pool import RunPool, default_workers
from planner.sim.result import RunResult

ARMS = [Arm("least_request", "least_request"), Arm("tokenpilot", "tokenpilot"), Arm("round_robin", "round_robin")]


@dataclass(frozen=True)
class Recipe:
    """A picklable maker of runs that may go wrong in the ways that workers go wrong."""

    sample: RunResult
    fault: str = ""

    def run(self, arm: Arm, seed: int) -> RunResult:
        if self.fault == "input" and seed == 1:
            raise InputError("no such thing", source="fleet.yaml", line=3)
        if self.fault == "die" and seed == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return RunResult(
            **{name: getattr(self.sample, name) for name in self.sample.__dataclass_fields__}
            | {"seed": seed, "policy": arm.policy, "wall_s": float(os.getpid())}
        )


def test_every_arm_runs_with_every_seed(run_maker: Callable[..., RunResult]) -> None:
    told: list[tuple[str, int]] = []
    result = compare(
        ARMS, run_maker, [3, 5], reference="least_request", workers=1,
        on_done=lambda arm, seed, _: told.append((arm.name, seed)),
    )  # fmt: skip
    for entry in result.arms:
        assert [run.seed for run in entry.runs] == [3, 5]
        assert {run.policy for run in entry.runs} == {entry.arm.policy}
    assert sorted(told) == sorted((arm.name, seed) for arm in ARMS for seed in (3, 5))
    assert not result.has_intervals


def test_differences_are_paired_by_seed(comparison_maker: Callable[..., Comparison]) -> None:
    result = comparison_maker(seeds=6)
    ours, base = result.arm("tokenpilot"), result.arm("least_request")
    by_hand = [a - b for a, b in zip(ours.values(m.GOODPUT), base.values(m.GOODPUT), strict=True)]
    figure = result.difference("tokenpilot")
    assert figure.mean == pytest.approx(sum(by_hand) / 6)
    assert figure.excludes_zero
    mean_width = ours.estimate(m.GOODPUT).half_width
    assert mean_width is not None
    assert figure.half_width is not None
    assert figure.half_width < mean_width / 3, "common random numbers take the load out of the difference"


def test_the_reference_differs_from_itself_by_nothing(comparison_maker: Callable[..., Comparison]) -> None:
    result = comparison_maker()
    for measure in m.MEASURES:
        figure = result.difference("least_request", measure)
        assert (figure.mean, figure.half_width) == (0.0, 0.0)


def test_ranking_keeps_losers_and_follows_the_better_way(comparison_maker: Callable[..., Comparison]) -> None:
    result = comparison_maker()
    names = [entry.arm.name for entry in result.ranked()]
    assert names == ["tokenpilot", "least_request", "cache_aware", "round_robin"]
    assert [entry.arm.name for entry in result.ranked(m.TTFT_P95)] == names
    assert result.best().arm.name == "tokenpilot"


def test_groups_are_named_from_all_runs(comparison_maker: Callable[..., Comparison]) -> None:
    result = comparison_maker()
    assert result.group_names("class") == ["batch", "interactive", "long_context"]
    entry = result.arm("tokenpilot")
    figure = group_estimate(entry, "class", "batch", lambda group: group.goodput_tokens_per_s)
    by_hand = [run.by_class["batch"].goodput_tokens_per_s for run in entry.runs]
    assert figure.mean == pytest.approx(sum(by_hand) / len(by_hand))
    assert group_estimate(entry, "class", "nobody", lambda group: group.offered).count == 0


@pytest.mark.parametrize(
    ("arms", "seeds", "reference", "field"),
    [
        ([], [1], "a", "arms"),
        ([ARMS[0], ARMS[0]], [1], "least_request", "arms"),
        (ARMS, [], "least_request", "seeds"),
        (ARMS, [1, 1], "least_request", "seeds"),
        (ARMS, [1], "nobody", "reference"),
    ],
)
def test_wrong_use_names_the_field(
    arms: list[Arm], seeds: list[int], reference: str, field: str, run_maker: Callable[..., RunResult]
) -> None:
    with pytest.raises(SettingError) as caught:
        compare(arms, run_maker, seeds, reference=reference, workers=1)
    assert caught.value.field == field


def test_worker_processes_give_the_same_results_in_the_same_order(run_maker: Callable[..., RunResult]) -> None:
    recipe = Recipe(run_maker(ARMS[0], 0))
    result = compare(ARMS, recipe.run, range(3), reference="least_request", workers=2)
    for entry in result.arms:
        assert [(run.policy, run.seed) for run in entry.runs] == [(entry.arm.policy, seed) for seed in range(3)]
    pids = {int(run.wall_s) for entry in result.arms for run in entry.runs}
    assert os.getpid() not in pids


def test_an_input_error_in_a_worker_keeps_its_kind_and_its_words(run_maker: Callable[..., RunResult]) -> None:
    recipe = Recipe(run_maker(ARMS[0], 0), fault="input")
    with pytest.raises(InputError, match=r"fleet\.yaml:3: no such thing"):
        compare(ARMS, recipe.run, range(3), reference="least_request", workers=2)


def test_a_worker_that_dies_is_an_error_and_leaves_nobody_behind(run_maker: Callable[..., RunResult]) -> None:
    before = {child.pid for child in multiprocessing.active_children()}
    recipe = Recipe(run_maker(ARMS[0], 0), fault="die")
    with pytest.raises(TokenFleetError, match="worker process died"):
        compare(ARMS, recipe.run, range(3), reference="least_request", workers=2)
    assert {child.pid for child in multiprocessing.active_children()} <= before


def test_workers_never_outnumber_jobs() -> None:
    assert default_workers(1) == 1
    assert 1 <= default_workers(1000) <= (os.cpu_count() or 1)
    with pytest.raises(SettingError, match="workers"):
        RunPool(0)
