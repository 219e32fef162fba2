"""Runs of a benchmark that was stopped are found again, and only those that are the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.kept_runs import KeptRuns, code_digest
from planner.arm import Arm

ARM, OTHER = Arm("a", "tokenpilot"), Arm("b", "tokenpilot")
CALLS: list[tuple[str, int]] = []


class Case:
    """Something that runs; its figures are its name, the arm's and the seed."""

    def __init__(self, name: str, fails_at: int | None = None) -> None:
        self.name = name
        self.fails_at = fails_at

    def __repr__(self) -> str:
        return self.name

    def run(self, arm: Arm, seed: int) -> Any:
        if seed == self.fails_at:
            raise KeyboardInterrupt
        CALLS.append((self.name + arm.name, seed))
        return self.name, arm.name, seed


@pytest.fixture(autouse=True)
def no_calls() -> None:
    CALLS.clear()


def test_a_stopped_benchmark_goes_on_with_the_run_it_was_in(tmp_path: Path) -> None:
    path = tmp_path / "runs.pickle"
    jobs = [(arm, seed) for arm in (ARM, OTHER) for seed in (1, 2)]
    with pytest.raises(KeyboardInterrupt), KeptRuns(1, path) as pool:
        pool.run(Case("x", fails_at=2).run, jobs)
    assert CALLS == [("xa", 1)]
    with KeptRuns(1, path) as pool:
        assert len(pool) == 1
        results: list[Any] = list(pool.run(Case("x").run, jobs))
    assert results == [("x", arm.name, seed) for arm, seed in jobs]
    assert CALLS == [("xa", 1), ("xa", 2), ("xb", 1), ("xb", 2)]


def test_another_scenario_runs_anew_and_an_ended_benchmark_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "runs.pickle"
    with KeptRuns(1, path) as pool:
        pool.run(Case("x").run, [(ARM, 1)])
        pool.run(Case("y").run, [(ARM, 1)])
        pool.run(Case("x").run, [(ARM, 1)])
    assert CALLS == [("xa", 1), ("ya", 1)]
    pool.forget()
    assert not path.exists()


def test_a_run_that_was_cut_off_while_it_was_written_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "runs.pickle"
    with KeptRuns(1, path) as pool:
        pool.run(Case("x").run, [(ARM, 1), (ARM, 2)])
    path.write_bytes(path.read_bytes()[:-3])
    with KeptRuns(1, path) as pool:
        assert len(pool) == 1
        pool.run(Case("x").run, [(ARM, 1), (ARM, 2)])
    with KeptRuns(1, path) as pool:
        assert len(pool) == 2


def test_the_digest_follows_the_code(tmp_path: Path) -> None:
    (tmp_path / "router").mkdir()
    source = tmp_path / "router" / "a.py"
    source.write_text("x = 1\n")
    before = code_digest(tmp_path)
    source.write_text("x = 2\n")
    assert code_digest(tmp_path) != before
