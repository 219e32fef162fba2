"""FleetMind's placement: where replicas and prewarmed copies stand, and which site serves which demand.

The ladder ends with an answer on every rung: HiGHS started from the running replicas or the constructive greedy,
else the better of those two. The result is never worth less than those, whatever a solver says.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np

from data.types import FloatArray, IntArray
from solver.bounds import Bound, Relaxation, best_bound, linked_lp_bound, solver_bound
from solver.child import ChildSolver
from solver.greedy import greedy_placement, kept_placement
from solver.linear import LinearModel, LinearSolution, ModelSolver, SolveLimits, SolveStatus, WarmStart
from solver.matrix import FLOW_UNIT, PlacementMatrix, build_matrix
from solver.problem import PlacementProblem
from solver.settings import PlacementSettings
from solver.solution import Origin, PlacementSolution, read_solution

RESIDUAL_LIMIT = 1e-5
"""A solver's answer that breaks a row by more than this (relative) is refused."""
ALL_DEMAND = "all demand served"
AUDIT_WATCHDOG = 10.0
BOUND_SHARE = 0.4
"""Share of the time limit that the relaxation may use."""


@dataclass(slots=True)
class _Search:
    """One solve: the model, the clock, and what was learnt on the way."""

    problem: PlacementProblem
    built: PlacementMatrix
    settings: PlacementSettings
    solve: ModelSolver
    began_s: float
    notes: list[str]

    def limits(self, share: float = 1.0, absolute_gap: float = 0.0) -> SolveLimits:
        """Limits for the next call: a share of the time that is left."""
        budget = self.settings.time_limit_s * (AUDIT_WATCHDOG if self.settings.deterministic else 1.0)
        left_s = max(budget - (time.monotonic() - self.began_s), 0.05)
        nodes = self.settings.node_limit if self.settings.deterministic else None
        return SolveLimits(left_s * share, 0.0, absolute_gap, nodes, self.settings.seed)


def solve_placement(
    problem: PlacementProblem,
    settings: PlacementSettings,
    start: IntArray | None = None,
    solve: ModelSolver | None = None,
) -> PlacementSolution:
    """Place replicas for the most value-weighted served demand.

    Args:
        problem: What may stand where; every rule of it holds in the answer.
        settings: Limits, gap, hysteresis.
        start: Replicas to start the search from, shape (P,); default: the running ones or the greedy's.
        solve: Solver of linear models; default: a guarded child process of its own.

    Returns:
        The best placement known when the time was over; its ``note`` says what went wrong on the way, if anything.
    """
    if solve is None:
        with ChildSolver() as child:
            return solve_placement(problem, settings, start, child)
    search = _Search(problem, build_matrix(problem), settings, solve, time.monotonic(), [])
    floor = kept_placement(problem, search.built)
    relaxation = linked_lp_bound(search.built.model, solve, search.limits(BOUND_SHARE))
    kept = _reroute(search, floor)
    greedy = greedy_placement(problem, search.built)
    known = max((kept, greedy), key=lambda solution: solution.net(problem))
    answer = _branch_and_bound(search, known.replicas if start is None else start, relaxation)
    best = _best(search, answer, kept, greedy)
    bounds = [relaxation.bound] if relaxation else []
    bound = best_bound([*bounds, solver_bound(answer), _demand_bound(search.built.model)])
    chosen = _prefer_running(search, best, kept)
    return _close(search, chosen, bound, relaxation)


def _reroute(search: _Search, found: PlacementSolution) -> PlacementSolution:
    """The same replicas with the best routing and prewarmed copies, by the same model with the replicas fixed."""
    model, columns = search.built.model, search.built.columns
    lower, upper = model.lower.copy(), model.upper.copy()
    lower[columns.replicas] = upper[columns.replicas] = found.replicas
    answer = search.solve(model.with_bounds(lower, upper), search.limits(BOUND_SHARE))
    routed = _read(search, answer, found.origin)
    return routed if routed and routed.net(search.problem) > found.net(search.problem) else found


def _branch_and_bound(search: _Search, start: IntArray, relaxation: Relaxation | None) -> LinearSolution:
    """The whole model by HiGHS: the right way up to about 1,000 whole columns, and the seam for larger ones."""
    columns = search.built.columns
    warm = WarmStart(np.arange(columns.replicas.start, columns.replicas.stop), start.astype(np.float64))
    gap = search.settings.mip_gap * _reference_value(search, relaxation) / FLOW_UNIT
    answer = search.solve(search.built.model, search.limits(absolute_gap=gap), warm)
    if answer.status is not SolveStatus.OPTIMAL:
        search.notes.append(f"placement solver: {answer.status.value} ({answer.detail})")
    return answer


def _reference_value(search: _Search, relaxation: Relaxation | None) -> float:
    """What gaps are a share of: the value of the relaxation without its penalties, tokens/s."""
    if relaxation is None:
        return float((search.problem.commodities.width * search.problem.commodities.value).sum())
    return max(read_solution(search.problem, search.built, relaxation.values, Origin.SOLVER).value, 0.0)


def _read(search: _Search, answer: LinearSolution, origin: Origin) -> PlacementSolution | None:
    """The placement in a solver's answer; ``None`` without one or if the answer breaks a row."""
    if not answer.status.has_solution:
        return None
    worst = search.built.model.residual(answer.values)
    if worst > RESIDUAL_LIMIT:
        search.notes.append(f"placement solver: answer refused, it breaks a row by {worst:.2g}")
        return None
    return read_solution(search.problem, search.built, answer.values, origin)


def _best(
    search: _Search, answer: LinearSolution, kept: PlacementSolution, greedy: PlacementSolution
) -> PlacementSolution:
    """The best rung of the ladder by net value, with its routing made the best for its replicas."""
    solved = _read(search, answer, Origin.SOLVER)
    found = [solution for solution in (solved, kept, greedy) if solution is not None]
    best = max(found, key=lambda solution: solution.net(search.problem))
    if (best.replicas == kept.replicas).all():
        return kept
    return max((_reroute(search, best), kept), key=lambda solution: solution.net(search.problem))


def _prefer_running(search: _Search, best: PlacementSolution, kept: PlacementSolution) -> PlacementSolution:
    """Hysteresis: the running replicas stay unless the new ones gain enough or keep a broken promise."""
    if best is kept:
        return kept
    problem = search.problem
    repaired = kept.misses.penalty(problem) - best.misses.penalty(problem)
    gain = best.net(problem) - kept.net(problem)
    moves = bool((best.replicas != problem.placements.current).any())
    if moves and repaired <= 1e-6 and gain < search.settings.hysteresis * max(kept.value, 0.0):
        share = gain / kept.value
        search.notes.append(f"running placement kept: the best one found is worth only {share:.2%} more")
        return kept
    return best


def _demand_bound(model: LinearModel) -> Bound:
    """Nobody can serve more than all demand at its full worth."""
    return Bound(ALL_DEMAND, float(np.maximum(model.objective, 0.0) @ model.upper) + model.offset)


def _close(
    search: _Search, chosen: PlacementSolution, bound: Bound, relaxation: Relaxation | None
) -> PlacementSolution:
    problem = search.problem
    penalty = chosen.misses.penalty(problem)
    net_bound = max(bound.value * FLOW_UNIT, chosen.net(problem))
    proved = (
        net_bound - chosen.net(problem) <= search.settings.mip_gap * _reference_value(search, relaxation) + 1e-6
    )
    return replace(
        chosen,
        bound=net_bound + penalty,
        bound_name=bound.name,
        proved=bool(proved),
        unavoidable=chosen.misses.any(problem) and (bool(proved) or _relaxation_misses(search, relaxation)),
        solve_s=time.monotonic() - search.began_s,
        note=tuple(search.notes),
    )


def _relaxation_misses(search: _Search, relaxation: Relaxation | None) -> bool:
    """Whether even fractions of replicas cannot keep every promise."""
    if relaxation is None:
        return False
    values: FloatArray = relaxation.values
    return read_solution(search.problem, search.built, values, Origin.SOLVER).misses.any(search.problem)
