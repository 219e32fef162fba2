"""CBC's bound and its start: what it prints, what a limit leaves, and a start that is far from the best."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

from solver.backends import solve_here
from solver.capacity_model import build_capacity_model
from solver.capacity_problem import CapacitySettings
from solver.cbc_log import TAIL_BYTES, lower_bound_in, tail_of
from solver.linear import LinearModel, SolveLimits, SolveStatus, WarmStart
from solver.split_instances import SplitSize, random_split


def test_the_last_bound_counts_and_a_missing_one_is_none() -> None:
    log = "Lower bound:   -12.5\nGap: 0\nLower bound:                    -4653.666\nGap: -0.01\n"
    assert lower_bound_in(log) == pytest.approx(-4653.6665)
    assert lower_bound_in("Result - Optimal solution found\n") is None
    assert lower_bound_in("Lower bound:   -1e+50\n") is None


def test_only_the_end_of_a_log_is_read(tmp_path: Path) -> None:
    """F092: the volume of a solver's log is bounded."""
    log = tmp_path / "log"
    log.write_text("x" * (3 * TAIL_BYTES) + "\nLower bound: 7.000\n")
    assert len(tail_of(log)) == TAIL_BYTES
    assert lower_bound_in(tail_of(log)) == pytest.approx(6.9995)
    assert tail_of(tmp_path / "missing") == ""


def test_a_poor_start_of_negative_worth_is_improved_not_called_optimal() -> None:
    """max −10 x0 − x1 with x0 + x1 >= 1, both 0 or 1: a start at −10 must not hide the −1."""
    model = LinearModel(
        objective=np.array([-10.0, -1.0]),
        matrix=scipy.sparse.csr_matrix(np.array([[1.0, 1.0]])),
        row_lower=np.array([1.0]),
        row_upper=np.array([2.0]),
        lower=np.zeros(2),
        upper=np.ones(2),
        integer=np.ones(2, dtype=bool),
        offset=5.0,
    )
    start = WarmStart(np.arange(2), np.array([1.0, 0.0]))
    answer = solve_here(model, SolveLimits(30.0), start, "cbc")
    assert answer.status is SolveStatus.OPTIMAL
    assert model.value(answer.values) == pytest.approx(4.0)
    assert answer.bound == pytest.approx(4.0, abs=1e-3)


def test_cbc_proves_no_less_than_another_solver_finds() -> None:
    """Its bound is valid: HiGHS finds nothing above it."""
    problem = random_split(SplitSize(4, 8), 5)
    model, _ = build_capacity_model(problem, CapacitySettings(), whole=False)
    loose = solve_here(model, SolveLimits(30.0, 0.05), None, "cbc")
    exact = solve_here(model, SolveLimits(60.0, 1e-4), None, "highs")
    assert loose.status is SolveStatus.OPTIMAL
    assert loose.bound >= model.value(exact.values) - 1e-6 * abs(loose.bound)
    assert loose.bound <= model.value(loose.values) * 1.05 + 1.0
