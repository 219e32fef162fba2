"""Known traps of solver libraries and of the model, each with the guard that this project has against it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse

from solver.backends import solve_here
from solver.bounds import NO_BOUND, best_bound, linked_lp_bound, solver_bound
from solver.child import ChildSolver
from solver.instances import InstanceSize, random_problem
from solver.linear import Backend, LinearModel, LinearSolution, SolveLimits, SolveStatus, WarmStart
from solver.matrix import build_matrix
from solver.placement import solve_placement
from solver.problem import FlowPromise, PlacementProblem
from solver.settings import PlacementSettings

ProblemMaker = Callable[..., PlacementProblem]
EXACT = PlacementSettings(mip_gap=0.0, hysteresis=0.0)


def _model() -> LinearModel:
    return LinearModel(
        objective=np.array([5.0, 4.0]),
        matrix=scipy.sparse.csr_matrix(np.array([[4.0, 3.0]])),
        row_lower=np.array([-np.inf]),
        row_upper=np.array([10.0]),
        lower=np.zeros(2),
        upper=np.full(2, 3.0),
        integer=np.ones(2, dtype=bool),
    )


def test_pulp_after_ortools_leaves_its_highs_alive() -> None:
    """The other order with a second HiGHS in the process crashes OR-Tools' own; the backends never use it."""
    script = (
        "import numpy as np, scipy.sparse\n"
        "from solver.backends import load_pulp, solve_here\n"
        "from solver.linear import LinearModel, SolveLimits\n"
        "load_pulp()\n"
        "one = np.ones(1)\n"
        "model = LinearModel(one, scipy.sparse.csr_matrix(one[None]), one * 0, one, one * 0, one, one > 0)\n"
        "names = ('highs', 'cbc', 'highs')\n"
        "print([solve_here(model, SolveLimits(20.0), None, name).status.value for name in names])\n"
    )
    told = subprocess.run([sys.executable, "-c", script], check=True, timeout=120, capture_output=True, text=True)
    assert told.stdout.strip() == "['optimal', 'optimal', 'optimal']"


def test_a_second_highs_is_not_installed() -> None:
    """With highspy beside OR-Tools an import in the wrong order ends the process."""
    script = "import importlib.util, sys; sys.exit(importlib.util.find_spec('highspy') is not None)"
    assert subprocess.run([sys.executable, "-c", script], timeout=60, check=False).returncode == 0


def test_what_mathopt_refuses_is_an_error_with_the_reason_behind_it() -> None:
    """MathOpt fails while it reports its own errors; the caller sees no AttributeError but what was wrong."""
    answer = solve_here(replace(_model(), objective=np.array([np.nan, 1.0])), SolveLimits(5.0))
    assert answer.status is SolveStatus.ERROR
    assert "canonical_code" not in answer.detail
    assert "nan" in answer.detail.lower()


def test_the_child_is_never_a_fork_of_a_process_that_used_highs(monkeypatch: pytest.MonkeyPatch) -> None:
    """HiGHS keeps threads: a forked copy of them hangs, a fresh interpreter does not."""

    def no_fork() -> int:
        raise AssertionError("the process was forked")

    assert solve_here(_model(), SolveLimits(10.0)).status is SolveStatus.OPTIMAL
    monkeypatch.setattr(os, "fork", no_fork)
    with ChildSolver() as child:
        assert child(_model(), SolveLimits(30.0)).status is SolveStatus.OPTIMAL
        assert child.deaths == 0


@pytest.mark.parametrize(
    "status", [SolveStatus.FEASIBLE_LIMIT, SolveStatus.UNKNOWN, SolveStatus.ERROR, SolveStatus.INFEASIBLE]
)
def test_a_relaxation_that_is_not_optimal_is_no_bound(status: SolveStatus) -> None:
    def short(
        model: LinearModel, limits: SolveLimits, start: WarmStart | None = None, backend: Backend = "highs"
    ) -> LinearSolution:
        return LinearSolution(status, np.zeros(2), 1.0, np.zeros(1), 0.0)

    assert linked_lp_bound(_model(), short, SolveLimits(1.0)) is None


def test_a_linear_solve_cut_short_claims_no_bound() -> None:
    model = build_matrix(random_problem(InstanceSize(20, 60), 0)).model
    answer = solve_here(model.relaxed(), SolveLimits(0.05))
    assert answer.status is not SolveStatus.OPTIMAL
    assert np.isinf(answer.bound)
    assert best_bound([solver_bound(answer)]).name in (NO_BOUND, "solver's dual bound")
    assert np.isinf(best_bound([solver_bound(answer)]).value)


def test_a_tiny_promise_that_holds_a_whole_replica_is_told(two_sites: ProblemMaker) -> None:
    """A few tokens/s promised where nothing else runs cost as many GPUs as a busy replica."""
    west = np.array([False, True])
    tiny = FlowPromise("hospital in the west", np.array([0]), west, 3.0, 1e6)
    found = solve_placement(two_sites(demand=900.0, flow_promises=(tiny,)), PlacementSettings(), solve=solve_here)
    assert found.replicas[1] == 1
    told = [note for note in found.note if "hospital in the west" in note]
    assert len(told) == 1
    assert "west" in told[0]
    assert "whole replica" in told[0]
    busy = replace(tiny, tokens_per_s=250.0)
    found = solve_placement(two_sites(demand=900.0, flow_promises=(busy,)), PlacementSettings(), solve=solve_here)
    assert not any("whole replica" in note for note in found.note)


def test_a_tiny_promise_of_little_worth_is_let_go(two_sites: ProblemMaker) -> None:
    """The elastic price decides: a promise worth less than its replica is missed, and the miss is told."""
    west = np.array([False, True])
    cheap = FlowPromise("hobby", np.array([0]), west, 3.0, 0.1)
    found = solve_placement(two_sites(demand=900.0, flow_promises=(cheap,)), EXACT, solve=solve_here)
    assert found.replicas[1] == 0
    assert found.misses.flows[0] == pytest.approx(3.0)
