"""A mixed-integer linear model as arrays, and what a solver answered: the words shared by every backend.

    max  c'v + offset   subject to   row_lower <= A v <= row_upper,  lower <= v <= upper,  some v whole

Rows and columns have numbers, never names: what users call things cannot reach a solver file.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from data.errors import SettingError
from data.types import FloatArray, IntArray

BoolArray = npt.NDArray[np.bool_]
Backend = Literal["highs", "cbc", "cp_sat"]
BACKENDS: tuple[Backend, ...] = ("highs", "cbc", "cp_sat")


class SolveStatus(StrEnum):
    """What is known when a solver stops. Values may be read only after the first two."""

    OPTIMAL = "optimal"
    """Proved to within the gap that was asked for."""
    FEASIBLE_LIMIT = "feasible_limit"
    """A solution, but a limit ended the search before the proof."""
    INFEASIBLE = "infeasible"
    UNBOUNDED = "unbounded"
    UNKNOWN = "unknown"
    """A limit came before any solution; says nothing about feasibility."""
    ERROR = "error"
    """The solver died, hung, refused the model or met numeric trouble."""

    @property
    def has_solution(self) -> bool:
        """Whether values may be read."""
        return self in (SolveStatus.OPTIMAL, SolveStatus.FEASIBLE_LIMIT)


@dataclass(frozen=True, slots=True)
class LinearModel:
    """One model. ``matrix`` is a scipy CSR matrix of shape (rows, columns); all other fields are 1-D arrays.

    Every column bound is finite, so that relaxations have finite duals and no backend meets an infinite integer.
    """

    objective: FloatArray
    matrix: Any
    row_lower: FloatArray
    row_upper: FloatArray
    lower: FloatArray
    upper: FloatArray
    integer: BoolArray
    offset: float = 0.0

    def value(self, values: FloatArray) -> float:
        """Objective of a point, recomputed from the values: a solver's own figure is not trusted."""
        return float(self.objective @ values) + self.offset

    def residual(self, values: FloatArray) -> float:
        """Largest violation of a row, bound or whole number; a row's is relative to 1 + the size of its terms."""
        activity = self.matrix @ values
        size = 1 + abs(self.matrix) @ np.abs(values)
        parts = (
            (self.row_lower - activity) / size,
            (activity - self.row_upper) / size,
            self.lower - values,
            values - self.upper,
            np.abs(values - np.round(values))[self.integer],
        )
        return max(float(np.max(part, initial=0.0)) for part in parts)

    def with_bounds(self, lower: FloatArray, upper: FloatArray, *, relaxed: bool = False) -> LinearModel:
        """The same model between other column bounds; ``relaxed`` drops the whole-number rule."""
        integer = np.zeros_like(self.integer) if relaxed else self.integer
        return LinearModel(
            self.objective, self.matrix, self.row_lower, self.row_upper, lower, upper, integer, self.offset
        )

    def relaxed(self) -> LinearModel:
        """The linear relaxation."""
        return self.with_bounds(self.lower, self.upper, relaxed=True)


@dataclass(frozen=True, slots=True)
class SolveLimits:
    """When a solver must stop.

    Attributes:
        time_limit_s: Wall clock for the whole call, start of the process included (> 0).
        relative_gap: Stop when (bound − objective) <= this share of the objective's size (0 to 1).
        absolute_gap: Stop when bound − objective <= this, in units of the objective (>= 0).
        node_limit: Branch-and-bound nodes; the deterministic limit of audit mode. ``None`` = no limit.
        seed: Seed of the solver's own random choices (>= 0).
    """

    time_limit_s: float = 30.0
    relative_gap: float = 0.0
    absolute_gap: float = 0.0
    node_limit: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        checks = (
            ("time_limit_s", self.time_limit_s > 0, "seconds above 0"),
            ("relative_gap", 0 <= self.relative_gap <= 1, "a share from 0 to 1"),
            ("absolute_gap", self.absolute_gap >= 0, "0 or more"),
            ("node_limit", self.node_limit is None or self.node_limit > 0, "above 0, or none"),
            ("seed", 0 <= self.seed < 2**31, "a whole number from 0 to 2^31 - 1"),
        )
        for name, ok, expected in checks:
            if not ok:
                raise SettingError("limit out of range", field=name, value=getattr(self, name), expected=expected)


@dataclass(frozen=True, slots=True)
class LinearSolution:
    """What a backend answered.

    Attributes:
        values: One value a column; empty unless ``status.has_solution``.
        bound: No feasible point is worth more than this; ``inf`` where the backend proved nothing.
        row_duals: Prices of the rows (linear models solved to optimality only; else empty).
        detail: The backend's own words, for the log.
    """

    status: SolveStatus
    values: FloatArray
    bound: float
    row_duals: FloatArray
    solve_s: float
    detail: str = ""


def no_solution(status: SolveStatus, detail: str, solve_s: float = 0.0) -> LinearSolution:
    """An answer without values."""
    return LinearSolution(status, np.empty(0), float("inf"), np.empty(0), solve_s, detail)


@dataclass(frozen=True, slots=True)
class WarmStart:
    """Values for some columns, to start the search from."""

    columns: IntArray
    values: FloatArray


class ModelSolver(Protocol):
    """Solves a linear model: in this process (``solver.backends.solve_here``) or in a guarded child."""

    def __call__(
        self,
        model: LinearModel,
        limits: SolveLimits,
        start: WarmStart | None = None,
        backend: Backend = "highs",
    ) -> LinearSolution:
        """The answer; never raises for what a solver does, reports ``SolveStatus.ERROR`` instead."""
        ...
