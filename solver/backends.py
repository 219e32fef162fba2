"""The one place that loads solver libraries, OR-Tools always before PuLP.

The order matters: with a second copy of HiGHS in the process, loading PuLP first crashes the one inside OR-Tools.
Each backend maps its own statuses to ``SolveStatus`` by a table; a limit with a solution is never called optimal.
"""

from __future__ import annotations

import datetime
import math
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from data.types import FloatArray
from solver.cbc_log import lower_bound_in, tail_of
from solver.linear import (
    Backend,
    LinearModel,
    LinearSolution,
    SolveLimits,
    SolveStatus,
    WarmStart,
    no_solution,
)
from solver.statuses import CBC_STATUS, CP_SAT_STATUS, HIGHS_STATUS

CP_SAT_OBJECTIVE_RANGE = 1e4
"""The objective's largest coefficient after scaling to whole numbers; sums stay far below 2^62."""


def load_ortools() -> Any:
    """The MathOpt module; must run before anything loads PuLP."""
    from ortools.math_opt.python import mathopt

    return mathopt


def load_cp_sat() -> Any:
    """The CP-SAT module, after MathOpt."""
    load_ortools()
    from ortools.sat.python import cp_model

    return cp_model


def load_pulp() -> Any:
    """PuLP, after OR-Tools."""
    load_ortools()
    import pulp

    return pulp


def solve_here(
    model: LinearModel, limits: SolveLimits, start: WarmStart | None = None, backend: Backend = "highs"
) -> LinearSolution:
    """Solve in this process. A crash of the library ends the process: the service uses ``solver.child``."""
    if len(model.objective) == 0:
        return LinearSolution(SolveStatus.OPTIMAL, np.empty(0), model.offset, np.empty(0), 0.0, "empty model")
    solve = {"highs": _solve_highs, "cbc": _solve_cbc, "cp_sat": _solve_cp_sat}[backend]
    began = time.perf_counter()
    try:
        return solve(model, limits, start)
    except Exception as error:
        # Whatever a solver library throws means one thing to the caller: no answer from this backend. MathOpt
        # fails while it reports its own errors: the one behind says what was wrong.
        cause = error.__context__ or error
        detail = f"{type(cause).__name__}: {cause}"[:500]
        return no_solution(SolveStatus.ERROR, detail, time.perf_counter() - began)


def _solve_highs(model: LinearModel, limits: SolveLimits, start: WarmStart | None) -> LinearSolution:
    mathopt = load_ortools()
    built = mathopt.Model.from_model_proto(_model_proto(model))
    linear = not model.integer.any()
    gaps = (
        {}
        if linear
        else {"relative_gap_tolerance": limits.relative_gap, "absolute_gap_tolerance": limits.absolute_gap}
    )
    parameters = mathopt.SolveParameters(
        time_limit=datetime.timedelta(seconds=limits.time_limit_s),
        random_seed=limits.seed,
        node_limit=None if linear else limits.node_limit,
        **gaps,
    )
    hints = mathopt.ModelSolveParameters()
    if start is not None and not linear:
        variables = list(built.variables())
        clipped = _clip_start(model, start)
        hints.solution_hints.append(
            mathopt.SolutionHint(
                variable_values={variables[c]: v for c, v in zip(start.columns.tolist(), clipped, strict=True)}
            )
        )
    began = time.perf_counter()
    result = mathopt.solve(built, mathopt.SolverType.HIGHS, params=parameters, model_params=hints)
    took = time.perf_counter() - began
    status = HIGHS_STATUS.get(result.termination.reason.name, SolveStatus.ERROR)
    detail = f"highs {result.termination.reason.name} {result.termination.detail}".strip()
    bound = float(result.termination.objective_bounds.dual_bound)
    if not status.has_solution or not result.has_primal_feasible_solution():
        kept = SolveStatus.UNKNOWN if status.has_solution else status
        return LinearSolution(kept, np.empty(0), bound, np.empty(0), took, detail)
    values = np.zeros(len(model.objective))
    for variable, value in result.variable_values().items():
        values[variable.id] = value
    duals = np.empty(0)
    if linear and status is SolveStatus.OPTIMAL and result.has_dual_feasible_solution():
        duals = np.zeros(model.matrix.shape[0])
        for row, price in result.dual_values().items():
            duals[row.id] = price
    if linear:
        # A linear solve that stopped early has proved nothing.
        bound = model.value(values) if status is SolveStatus.OPTIMAL else math.inf
    return LinearSolution(status, _settle(model, values), bound, duals, took, detail)


def _model_proto(model: LinearModel) -> Any:
    from ortools.math_opt import model_pb2

    rows, columns = model.matrix.shape
    proto = model_pb2.ModelProto()
    proto.variables.ids.extend(range(columns))
    proto.variables.lower_bounds.extend(model.lower.tolist())
    proto.variables.upper_bounds.extend(model.upper.tolist())
    proto.variables.integers.extend(model.integer.tolist())
    proto.linear_constraints.ids.extend(range(rows))
    proto.linear_constraints.lower_bounds.extend(model.row_lower.tolist())
    proto.linear_constraints.upper_bounds.extend(model.row_upper.tolist())
    entries = proto.linear_constraint_matrix
    entries.row_ids.extend(np.repeat(np.arange(rows), np.diff(model.matrix.indptr)).tolist())
    entries.column_ids.extend(model.matrix.indices.tolist())
    entries.coefficients.extend(model.matrix.data.tolist())
    used = np.flatnonzero(model.objective)
    proto.objective.maximize = True
    proto.objective.offset = model.offset
    proto.objective.linear_coefficients.ids.extend(used.tolist())
    proto.objective.linear_coefficients.values.extend(model.objective[used].tolist())
    return proto


def _clip_start(model: LinearModel, start: WarmStart) -> list[float]:
    """Start values inside their bounds and whole where they must be: −1e-7 makes some backends refuse a start."""
    values = np.clip(start.values, model.lower[start.columns], model.upper[start.columns])
    whole = model.integer[start.columns]
    return [float(v) for v in np.where(whole, np.round(values), values)]


def _settle(model: LinearModel, values: FloatArray) -> FloatArray:
    """Values with solver dust removed: inside their bounds, whole columns exactly whole."""
    settled = np.clip(np.where(model.integer, np.round(values), values), model.lower, model.upper)
    return settled.astype(np.float64)


def _solve_cbc(model: LinearModel, limits: SolveLimits, start: WarmStart | None) -> LinearSolution:
    with warnings.catch_warnings():
        # PuLP 3 warns at every variable about PuLP 4, which this project does not use.
        warnings.simplefilter("ignore", DeprecationWarning)
        with tempfile.TemporaryDirectory(prefix="tokenfleet-cbc-") as folder:
            return _run_cbc(load_pulp(), model, limits, start, Path(folder) / "log")


def _run_cbc(
    pulp: Any, model: LinearModel, limits: SolveLimits, start: WarmStart | None, log: Path
) -> LinearSolution:
    # Always a minimisation: told to maximise, CBC takes the objective of a start for the bound of its opposite and
    # calls a poor start optimal.
    problem = pulp.LpProblem("model", pulp.LpMinimize)
    columns = [
        pulp.LpVariable(f"x{i:06d}", low, high, "Integer" if whole else "Continuous")
        for i, (low, high, whole) in enumerate(
            zip(model.lower.tolist(), model.upper.tolist(), model.integer.tolist(), strict=True)
        )
    ]
    problem += pulp.LpAffineExpression(
        [(columns[i], -float(model.objective[i])) for i in np.flatnonzero(model.objective)]
    )
    for name, expression, sense, limit in _pulp_rows(model, columns, pulp):
        problem += pulp.LpConstraint(expression, sense, name, limit)
    if start is not None:
        for column, value in zip(start.columns.tolist(), _clip_start(model, start), strict=True):
            columns[column].setInitialValue(value)
    options = [f"randomCbcSeed {limits.seed}"] if limits.seed else []
    solver = pulp.PULP_CBC_CMD(
        msg=False,
        timeLimit=limits.time_limit_s,
        gapRel=limits.relative_gap or None,
        gapAbs=limits.absolute_gap or None,
        maxNodes=limits.node_limit,
        warmStart=start is not None,
        options=options,
        # No thread count: asked for one thread, CBC starts a pool of one and waits for it by polling.
        logPath=str(log),
    )
    began = time.perf_counter()
    code = problem.solve(solver)
    took = time.perf_counter() - began
    status = CBC_STATUS.get((int(code), int(problem.sol_status)), SolveStatus.ERROR)
    detail = f"cbc status={code} sol_status={problem.sol_status}"
    if not status.has_solution:
        return no_solution(status, detail, took)
    values = np.array([0.0 if column.varValue is None else column.varValue for column in columns])
    settled = _settle(model, values)
    least_cost = lower_bound_in(tail_of(log))
    if least_cost is not None:
        bound = model.offset - least_cost
    else:
        # Without a word about a bound, "optimal" means that nothing better is left.
        bound = model.value(settled) if status is SolveStatus.OPTIMAL else math.inf
    return LinearSolution(status, settled, bound, np.empty(0), took, detail)


def _pulp_rows(model: LinearModel, columns: list[Any], pulp: Any) -> list[tuple[str, Any, int, float]]:
    """Every row as (generated name, expression, sense, right-hand side); a two-sided row gives two."""
    out: list[tuple[str, Any, int, float]] = []
    matrix = model.matrix
    for r in range(matrix.shape[0]):
        span = slice(matrix.indptr[r], matrix.indptr[r + 1])
        terms = [(columns[c], float(v)) for c, v in zip(matrix.indices[span], matrix.data[span], strict=True)]
        low, high = float(model.row_lower[r]), float(model.row_upper[r])
        if low == high:
            out.append((f"c{r:06d}", pulp.LpAffineExpression(terms), pulp.LpConstraintEQ, low))
            continue
        if math.isfinite(high):
            out.append((f"c{r:06d}u", pulp.LpAffineExpression(terms), pulp.LpConstraintLE, high))
        if math.isfinite(low):
            out.append((f"c{r:06d}l", pulp.LpAffineExpression(terms), pulp.LpConstraintGE, low))
    return out


def _solve_cp_sat(model: LinearModel, limits: SolveLimits, start: WarmStart | None) -> LinearSolution:
    """CP-SAT on a model whose columns and coefficients are all whole numbers; anything else is refused."""
    cp_model = load_cp_sat()
    matrix = model.matrix
    if not model.integer.all() or not np.array_equal(matrix.data, np.round(matrix.data)):
        return no_solution(SolveStatus.ERROR, "cp_sat takes whole columns and coefficients only")
    built = cp_model.CpModel()
    columns = [
        built.new_int_var(int(np.ceil(low)), int(np.floor(high)), f"x{i:06d}")
        for i, (low, high) in enumerate(zip(model.lower.tolist(), model.upper.tolist(), strict=True))
    ]
    for r in range(matrix.shape[0]):
        span = slice(matrix.indptr[r], matrix.indptr[r + 1])
        terms = [columns[c] for c in matrix.indices[span].tolist()]
        expression = cp_model.LinearExpr.weighted_sum(terms, [int(v) for v in matrix.data[span]])
        low, high = float(model.row_lower[r]), float(model.row_upper[r])
        if low == high:
            built.add(expression == round(low))
            continue
        if math.isfinite(low):
            built.add(expression >= math.ceil(low - 1e-9))
        if math.isfinite(high):
            built.add(expression <= math.floor(high + 1e-9))
    scale = CP_SAT_OBJECTIVE_RANGE / max(float(np.abs(model.objective).max()), 1e-12)
    weights = [round(v * scale) for v in model.objective.tolist()]
    built.maximize(cp_model.LinearExpr.weighted_sum(columns, weights))
    if start is not None:
        for column, value in zip(start.columns.tolist(), _clip_start(model, start), strict=True):
            built.add_hint(columns[column], int(value))
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = limits.time_limit_s
    solver.parameters.relative_gap_limit = limits.relative_gap
    solver.parameters.random_seed = limits.seed
    # One worker with the full linear relaxation proves multiple-choice models that two without it do not, and it
    # gives the same answer each time.
    solver.parameters.num_workers = 1
    solver.parameters.linearization_level = 2
    if limits.node_limit:
        solver.parameters.max_number_of_conflicts = limits.node_limit
    began = time.perf_counter()
    code = solver.solve(built)
    took = time.perf_counter() - began
    name = solver.status_name(code)
    status = CP_SAT_STATUS.get(name, SolveStatus.ERROR)
    if not status.has_solution:
        return no_solution(status, f"cp_sat {name}", took)
    values = np.array([float(solver.value(column)) for column in columns])
    # What rounding the weights can have taken from the objective, at most.
    reach = np.maximum(np.abs(model.lower), np.abs(model.upper))
    slack = float(np.abs(model.objective * scale - np.array(weights)) @ reach) / scale
    bound = solver.best_objective_bound / scale + model.offset + slack
    return LinearSolution(status, values, bound, np.empty(0), took, f"cp_sat {name}")
