"""The policy contest: kept runs, equal budgets of trials, what the tables take."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.proof.contest import (
    ABLATIONS,
    HOPELESS,
    OURS,
    STRONG,
    CellResult,
    Contestants,
    arms_of,
    untuned,
)
from benchmarks.proof.headroom import Headroom
from benchmarks.proof.record import write_record
from benchmarks.proof.runs import Cell, RunFile
from benchmarks.proof.scenarios import training
from benchmarks.proof.tables import summary
from benchmarks.proof.tuning import TRIALS, arm_of, trials
from planner.arm import Arm
from planner.bound import GoodputBound
from planner.measures import GOODPUT, MEASURES
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


FOUND = {policy: arm_of(policy, {}) for policy in POLICIES}
TUNED = Contestants({**FOUND, OURS: arm_of(OURS, {"harm_price": 0.5})}, Arm("learned", OURS, {}, "store"))


def test_every_policy_runs_at_the_middle_load_of_a_short_trace() -> None:
    arms = arms_of(TUNED, "azure-code", 0.85)
    assert {arm.policy for arm in arms} == set(POLICIES)
    assert TUNED.learned is not None
    wanted = [*ABLATIONS, TUNED.tuned[OURS], TUNED.learned, Arm(OURS, OURS)]
    assert all(arm in arms for arm in wanted)
    assert len({arm.name for arm in arms}) == len(arms)


def test_untuned_arms_are_valid_and_ours_is_among_them() -> None:
    known = untuned()
    assert set(known.tuned) == set(STRONG)
    for arm in known.tuned.values():
        policy_entry(arm.policy).settings(**arm.settings)
    assert known.tuned[OURS].settings == {}
    assert {arm.policy for arm in arms_of(known, "agentic", 0.65)} == set(STRONG)


def test_only_the_hopeless_are_left_out_of_long_traces_and_only_the_strong_run_at_other_loads() -> None:
    long = {arm.policy for arm in arms_of(TUNED, "conversation", 0.85)}
    assert long == set(POLICIES) - set(HOPELESS)
    assert {arm.policy for arm in arms_of(TUNED, "azure-code", 0.65)} == set(STRONG)


def finished(tmp_path: Path, cell: Cell) -> tuple[CellResult, RunFile]:
    runs, ours, peer = RunFile(tmp_path / "runs.jsonl"), arm_of(OURS, {"harm_price": 0.5}), FOUND["least_request"]
    for arm, goodputs in ((ours, (11.0, 12.0, 13.0, 14.0, 15.0)), (peer, (10.0, 11.0, 12.0, 13.0, 14.0))):
        for seed, value in zip(SEEDS, goodputs, strict=True):
            runs.keep(cell.key(arm, seed), {measure.key: value for measure in MEASURES})
    return CellResult(cell, (ours, peer)), runs


def test_the_summary_tells_lead_peer_and_room(tmp_path: Path, cell: Cell) -> None:
    result, runs = finished(tmp_path, cell)
    bound = GoodputBound(20, 20, 20.0, 20.0, 9, (), 3)
    room = Headroom(cell, dict.fromkeys(SEEDS, bound))
    line = summary([result], runs, [room]).splitlines()[2]
    assert "`least_request`" in line
    lead = sum(1.0 / value for value in (10, 11, 12, 13, 14)) / 5
    assert f"{lead:+.1%}" in line
    assert line.endswith(f"| {sum((11, 12, 13, 14, 15)) / 5 / 20:.3f} |")
    assert summary([result], runs, [None]).splitlines()[2].endswith("| – | – |")


def test_the_record_holds_every_seed_of_every_arm(tmp_path: Path, cell: Cell) -> None:
    result, runs = finished(tmp_path, cell)
    write_record(tmp_path / "record.json", [result], runs)
    record = json.loads((tmp_path / "record.json").read_text())
    (kept,) = record["cells"]
    assert [arm["policy"] for arm in kept["arms"]] == [OURS, "least_request"]
    assert kept["arms"][0][GOODPUT.key] == [11.0, 12.0, 13.0, 14.0, 15.0]
    assert record["machine"]
    assert set(record["versions"]) >= {"numpy", "lightgbm"}
    assert [path.name for path in tmp_path.glob("record*")] == ["record.json"]
