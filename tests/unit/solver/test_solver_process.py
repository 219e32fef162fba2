"""Backends and their process: status tables, limits, crashes, temporary files, import order."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

from data.errors import SettingError
from solver.backends import solve_here
from solver.child import ChildSolver
from solver.instances import InstanceSize, random_problem
from solver.linear import BACKENDS, Backend, LinearModel, SolveLimits, SolveStatus, WarmStart
from solver.matrix import build_matrix
from solver.statuses import CBC_STATUS, CP_SAT_STATUS, HIGHS_STATUS
from solver.wire import pack_answer, pack_request, unpack_answer, unpack_request


def _knapsack(limit: float = 10.0) -> LinearModel:
    """Worth 5, 4, 3; weights 4, 3, 2; each at most 2: the best is 14 at a limit of 10."""
    return LinearModel(
        objective=np.array([5.0, 4.0, 3.0]),
        matrix=scipy.sparse.csr_matrix(np.array([[4.0, 3.0, 2.0]])),
        row_lower=np.array([-np.inf]),
        row_upper=np.array([limit]),
        lower=np.zeros(3),
        upper=np.full(3, 2.0),
        integer=np.ones(3, dtype=bool),
    )


def _hard(seed: int = 4) -> LinearModel:
    return build_matrix(random_problem(InstanceSize(8, 25, load=1.4), seed)).model


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_backend_finds_and_proves_the_optimum(backend: Backend) -> None:
    """F092: optimal, with values read only then."""
    answer = solve_here(_knapsack(), SolveLimits(10.0), None, backend)
    assert answer.status is SolveStatus.OPTIMAL
    assert _knapsack().value(answer.values) == pytest.approx(14.0)
    assert answer.bound >= 14.0 - 1e-6


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_backend_tells_infeasible(backend: Backend) -> None:
    """F092: infeasible has no values."""
    model = replace(_knapsack(), row_lower=np.array([100.0]), row_upper=np.array([200.0]))
    answer = solve_here(model, SolveLimits(10.0), None, backend)
    assert answer.status is SolveStatus.INFEASIBLE
    assert not len(answer.values)


@pytest.mark.parametrize("backend", ["highs", "cbc"])
def test_a_limit_is_never_called_optimal(backend: Backend) -> None:
    """F083: stopped by the clock means feasible_limit or unknown."""
    answer = solve_here(_hard(), SolveLimits(0.3), None, backend)
    assert answer.status in (SolveStatus.FEASIBLE_LIMIT, SolveStatus.UNKNOWN)


def test_status_tables_promise_a_solution_only_where_there_is_one() -> None:
    """F083: PuLP's "Optimal" with a limited solution maps to feasible_limit; infeasible is never unknown."""
    assert CBC_STATUS[1, 2] is SolveStatus.FEASIBLE_LIMIT
    assert CBC_STATUS[1, 1] is SolveStatus.OPTIMAL
    assert HIGHS_STATUS["NO_SOLUTION_FOUND"] is SolveStatus.UNKNOWN
    assert HIGHS_STATUS["INFEASIBLE_OR_UNBOUNDED"] is SolveStatus.UNKNOWN
    assert CP_SAT_STATUS["MODEL_INVALID"] is SolveStatus.ERROR


def test_unbounded_is_told() -> None:
    """F092: an unbounded model is not an optimal one."""
    model = replace(_knapsack(), upper=np.full(3, np.inf), row_upper=np.array([np.inf]))
    answer = solve_here(model.relaxed(), SolveLimits(5.0))
    assert answer.status in (SolveStatus.UNBOUNDED, SolveStatus.UNKNOWN)
    assert not len(answer.values)


def test_cp_sat_refuses_what_it_would_have_to_round() -> None:
    model = replace(_knapsack(), integer=np.array([True, False, True]))
    assert solve_here(model, SolveLimits(5.0), None, "cp_sat").status is SolveStatus.ERROR


def test_linear_models_come_with_prices() -> None:
    answer = solve_here(_knapsack().relaxed(), SolveLimits(5.0))
    assert answer.row_duals[0] == pytest.approx(5.0 / 4.0)


def test_a_start_is_used_and_clipped() -> None:
    """Values a hair outside their bounds must not make the solver refuse a start."""
    start = WarmStart(np.arange(3), np.array([-1e-7, 2.0000001, 2.0]))
    assert solve_here(_knapsack(), SolveLimits(5.0), start).status is SolveStatus.OPTIMAL


def test_messages_survive_the_wire() -> None:
    start = WarmStart(np.array([1]), np.array([2.0]))
    limits = SolveLimits(1.0, 0.1, 0.2, 7, 3)
    model, back, again, backend, deadline = unpack_request(pack_request(_knapsack(), limits, start, "cbc", 12.5))
    assert (backend, deadline) == ("cbc", 12.5)
    assert (back.relative_gap, back.absolute_gap, back.node_limit, back.seed) == (0.1, 0.2, 7, 3)
    assert again is not None
    assert again.values.tolist() == [2.0]
    assert (model.matrix != _knapsack().matrix).nnz == 0
    answer = solve_here(_knapsack(), SolveLimits(5.0))
    assert unpack_answer(pack_answer(answer)).values.tolist() == answer.values.tolist()


def test_child_answers_like_this_process_and_is_reused() -> None:
    with ChildSolver() as child:
        first = child(_knapsack(), SolveLimits(20.0))
        pid = child.pid
        second = child(_knapsack(7.0), SolveLimits(20.0), None, "cbc")
        assert child.pid == pid
        assert child.deaths == 0
    assert _knapsack().value(first.values) == pytest.approx(14.0)
    assert _knapsack(7.0).value(second.values) == pytest.approx(10.0)


def test_watchdog_ends_a_hang_soon_after_the_limit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A process that never answers is killed; the next call works."""
    hang = tmp_path / "hang"
    hang.write_text("#!/bin/sh\nexec sleep 60\n")
    hang.chmod(0o755)
    with ChildSolver() as child:
        with monkeypatch.context() as patch:
            patch.setattr(sys, "executable", str(hang))
            began = time.monotonic()
            answer = child(_knapsack(), SolveLimits(0.5))
            assert time.monotonic() - began < 1.5
        assert answer.status is SolveStatus.ERROR
        assert child(_knapsack(), SolveLimits(20.0)).status is SolveStatus.OPTIMAL


def test_a_solver_that_cannot_run_is_an_error_not_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    """F094: a missing binary is reported as such."""
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    with ChildSolver() as child:
        answer = child(_knapsack(), SolveLimits(2.0))
    assert answer.status is SolveStatus.ERROR
    assert "cannot run" in answer.detail


def test_parallel_solves_do_not_mix_and_leave_no_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """F095: each child has its own temporary folder, gone afterwards."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    best = {4.0: 6.0, 6.0: 9.0, 7.0: 10.0, 10.0: 14.0}

    def one(limit: float) -> tuple[float, float]:
        with ChildSolver() as child:
            answer = child(_knapsack(limit), SolveLimits(60.0), None, "cbc")
            return limit, _knapsack(limit).value(answer.values)

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(one, [*best, *best]))
    for limit, value in results:
        exact = solve_here(_knapsack(limit), SolveLimits(5.0))
        assert value == pytest.approx(_knapsack(limit).value(exact.values))
    assert not list(tmp_path.iterdir())


def test_ortools_is_loaded_before_pulp_and_only_by_the_backends() -> None:
    """The order keeps OR-Tools' HiGHS alive; importing the solver package alone loads neither."""
    script = (
        "import sys\n"
        "import solver.placement, solver.capacity, solver.verify, planner.service\n"
        "assert not any(name.split('.')[0] in ('ortools', 'pulp') for name in sys.modules)\n"
        "from solver.backends import load_pulp\n"
        "load_pulp()\n"
        "names = [name for name in sys.modules if name in ('ortools', 'pulp')]\n"
        "assert names == ['ortools', 'pulp'], names\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
    root = Path(__file__).resolve().parents[3]
    importers = {
        path.name
        for path in (root / "solver").glob("*.py")
        for line in path.read_text().splitlines()
        if line.strip().startswith(("import ortools", "from ortools", "import pulp", "from pulp"))
    }
    assert importers == {"backends.py"}


@pytest.mark.parametrize(
    ("field", "value"),
    [("time_limit_s", 0.0), ("relative_gap", 2.0), ("absolute_gap", -1.0), ("node_limit", 0), ("seed", -1)],
)
def test_limits_out_of_range_are_named(field: str, value: float) -> None:
    with pytest.raises(SettingError, match=field):
        SolveLimits(**{field: value})  # type: ignore[arg-type]
