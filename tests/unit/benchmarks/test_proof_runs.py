"""The policy contest: kept runs, equal budgets of trials, what the tables take."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.proof.runs import Cell, RunFile
from benchmarks.proof.scenarios import training
from benchmarks.proof.tuning import TRIALS, trials
from planner.arm import Arm
from planner.measures import GOODPUT
from router.registry import POLICIES, policy_entry

SEEDS = (1, 2, 3, 4, 5)


@pytest.fixture
def cell() -> Cell:
    return Cell("one-pool", "training", training("one-pool"), 1.0, "85%")


def keep(runs: RunFile, cell: Cell, arm: Arm, goodputs: tuple[float, ...]) -> None:
    for seed, value in zip(SEEDS, goodputs, strict=True):
        runs.keep(cell.key(arm, seed), {GOODPUT.key: value})


def test_a_stopped_contest_goes_on_with_what_was_kept(tmp_path: Path, cell: Cell) -> None:
    path, arm = tmp_path / "runs.jsonl", Arm("ours", "tokenpilot")
    keep(RunFile(path), cell, arm, (1.0, 2.0, 3.0, 4.0, float("nan")))
    with path.open("a") as out:
        out.write('{"key": "cut sh')  # killed while it wrote
    again = RunFile(path)
    assert again.mean(cell, arm, SEEDS, GOODPUT).mean == 2.5
    assert cell.key(arm, 6) not in again


def test_a_run_of_other_settings_or_speed_is_another_run(cell: Cell) -> None:
    plain, priced = Arm("a", "tokenpilot"), Arm("a", "tokenpilot", {"harm_price": 0.0})
    faster = Cell(cell.fleet, cell.trace, cell.scenario, 1.5)
    keys = {cell.key(plain, 1), cell.key(priced, 1), cell.key(plain, 2), faster.key(plain, 1)}
    assert len(keys) == 4
    assert cell.key(Arm("other name", "tokenpilot"), 1) == cell.key(plain, 1)
    assert json.loads(cell.key(plain, 1))


def test_a_gain_is_paired_by_seed(tmp_path: Path, cell: Cell) -> None:
    runs, ours, theirs = RunFile(tmp_path / "runs.jsonl"), Arm("ours", "tokenpilot"), Arm("theirs", "random")
    keep(runs, cell, theirs, (10.0, 20.0, 40.0, 80.0, 160.0))
    keep(runs, cell, ours, (11.0, 22.0, 44.0, 88.0, 176.0))
    gain = runs.gain(cell, ours, theirs, SEEDS, GOODPUT)
    assert (gain.mean, gain.half_width) == pytest.approx((0.1, 0.0))


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_every_policy_gets_the_same_budget_of_valid_trials(policy: str) -> None:
    tried = trials(policy)
    assert 1 <= len(tried) <= TRIALS
    assert tried[0].settings == {}
    assert len({arm.name for arm in tried}) == len(tried)
    for arm in tried:
        policy_entry(policy).settings(**arm.settings)
