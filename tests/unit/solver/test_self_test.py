"""The solvers are tried before a plan depends on them."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from planner.cli.main import cli
from solver.backends import load_pulp, solve_here
from solver.child import ChildSolver
from solver.linear import BACKENDS, Backend, LinearModel, LinearSolution, SolveLimits, SolveStatus, WarmStart
from solver.self_test import self_test


def test_every_solver_runs_here_f094() -> None:
    """F094: two columns, every backend, with its version; exit code 0."""
    done = CliRunner().invoke(cli, ["doctor", "--json"])
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert report["ok"]
    assert [one["backend"] for one in report["solvers"]] == list(BACKENDS)
    assert all(one["ok"] and one["version"].split()[1][0].isdigit() for one in report["solvers"])


def test_a_binary_without_its_execute_bit_is_told_of_f094(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """F094: the one that does not run is named, and the others still do."""
    binary = tmp_path / "cbc"
    shutil.copy(load_pulp().PULP_CBC_CMD.pulp_cbc_path, binary)
    binary.chmod(0o644)
    monkeypatch.setattr(load_pulp().PULP_CBC_CMD, "pulp_cbc_path", str(binary))
    found = {one.backend: one for one in self_test(solve_here)}
    assert not found["cbc"].ok
    assert "not execute" in found["cbc"].detail
    assert found["highs"].ok
    assert found["cp_sat"].ok


def test_without_any_solver_nothing_is_raised_f094(monkeypatch: pytest.MonkeyPatch) -> None:
    """F094: a missing interpreter, and a backend whose answer is wrong, are told as such."""
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    done = CliRunner().invoke(cli, ["doctor"])
    assert done.exit_code == 1
    assert done.stdout.count("does not run: solver process cannot run") == len(BACKENDS)
    with ChildSolver() as child:
        assert all(not one.ok and "cannot run" in one.detail for one in self_test(child))

    def wrong(
        model: LinearModel, limits: SolveLimits, start: WarmStart | None = None, backend: Backend = "highs"
    ) -> LinearSolution:
        return LinearSolution(SolveStatus.OPTIMAL, np.zeros(2), 11.0, np.empty(0), 0.0, "done")

    assert [one.detail for one in self_test(wrong)] == ["wrong answer: done"] * len(BACKENDS)
