"""What each backend's own words mean: one table a backend, and no word outside its table counts as a solution."""

from __future__ import annotations

from solver.linear import SolveStatus

HIGHS_STATUS = {
    "OPTIMAL": SolveStatus.OPTIMAL,
    "FEASIBLE": SolveStatus.FEASIBLE_LIMIT,
    "INFEASIBLE": SolveStatus.INFEASIBLE,
    "UNBOUNDED": SolveStatus.UNBOUNDED,
    "INFEASIBLE_OR_UNBOUNDED": SolveStatus.UNKNOWN,
    "NO_SOLUTION_FOUND": SolveStatus.UNKNOWN,
    "IMPRECISE": SolveStatus.ERROR,
    "NUMERICAL_ERROR": SolveStatus.ERROR,
    "OTHER_ERROR": SolveStatus.ERROR,
}
"""MathOpt's termination reasons."""

CBC_STATUS = {
    (1, 1): SolveStatus.OPTIMAL,
    (1, 2): SolveStatus.FEASIBLE_LIMIT,
    (0, 2): SolveStatus.FEASIBLE_LIMIT,
    (0, 0): SolveStatus.UNKNOWN,
    (-1, -1): SolveStatus.INFEASIBLE,
    (-1, 0): SolveStatus.INFEASIBLE,
    (-2, -2): SolveStatus.UNBOUNDED,
    (-2, 0): SolveStatus.UNBOUNDED,
    (-3, 0): SolveStatus.UNKNOWN,
}
"""PuLP's (status, sol_status): the first alone says "Optimal" also after a time limit."""

CP_SAT_STATUS = {
    "OPTIMAL": SolveStatus.OPTIMAL,
    "FEASIBLE": SolveStatus.FEASIBLE_LIMIT,
    "INFEASIBLE": SolveStatus.INFEASIBLE,
    "UNKNOWN": SolveStatus.UNKNOWN,
    "MODEL_INVALID": SolveStatus.ERROR,
}
