"""Whether each solver that a plan may need runs on this machine, before a plan depends on it.

Each backend solves two whole-number columns whose optimum is known: 3x + 2y with x + y <= 4 and x, y <= 3 is 11.
A bundled binary for another processor or without its execute bit fails here, and not in the first plan.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

import numpy as np
import scipy.sparse

from solver.linear import BACKENDS, Backend, LinearModel, ModelSolver, SolveLimits, SolveStatus

LIMIT_S = 20.0
"""Time limit of one backend; loading a solver library is most of it."""
PACKAGES: dict[Backend, str] = {"highs": "ortools", "cbc": "pulp", "cp_sat": "ortools"}
"""Package that brings each backend."""
BEST = 11.0


@dataclass(frozen=True, slots=True)
class BackendHealth:
    """One backend.

    Attributes:
        version: Package and version that bring it.
        ok: It found the known optimum.
        detail: What it said, or what was wrong.
        solve_s: Seconds, the start of its process included.
    """

    backend: Backend
    version: str
    ok: bool
    detail: str
    solve_s: float


def self_test(solve: ModelSolver) -> tuple[BackendHealth, ...]:
    """Try every backend through ``solve``; nothing is raised for one that does not run."""
    return tuple(_tried(solve, backend) for backend in BACKENDS)


def _tried(solve: ModelSolver, backend: Backend) -> BackendHealth:
    model = _model()
    answer = solve(model, SolveLimits(LIMIT_S), None, backend)
    ok = answer.status is SolveStatus.OPTIMAL and abs(model.value(answer.values) - BEST) < 1e-6
    said = answer.detail or answer.status.value
    detail = "optimal" if ok else said if not answer.status.has_solution else f"wrong answer: {said}"
    return BackendHealth(backend, _version(PACKAGES[backend]), ok, detail, round(answer.solve_s, 3))


def _model() -> LinearModel:
    return LinearModel(
        objective=np.array([3.0, 2.0]),
        matrix=scipy.sparse.csr_matrix(np.ones((1, 2))),
        row_lower=np.array([-np.inf]),
        row_upper=np.array([4.0]),
        lower=np.zeros(2),
        upper=np.full(2, 3.0),
        integer=np.ones(2, dtype=bool),
    )


def _version(package: str) -> str:
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return f"{package}, not installed"
