"""FleetMind's placement: where replicas and prewarmed copies stand, and which site serves which demand.

The ladder ends with an answer on every rung. Small problems: HiGHS on the whole model, started from the running
replicas or the constructive greedy. Large ones: construction or the running plan, then block search. Whatever
fails, the running placement with the best routing or the greedy is left, and the result is never worth less.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace

import numpy as np

from data.types import IntArray
from solver.bounds import Bound, Relaxation, best_bound, linked_lp_bound, solver_bound
from solver.budget import SearchBudget
from solver.child import ChildSolver
from solver.greedy import greedy_placement, kept_placement
from solver.large import RESIDUAL_LIMIT, plan_large
from solver.linear import LinearSolution, ModelSolver, SolveStatus, WarmStart
from solver.matrix import FLOW_UNIT, PlacementMatrix, build_matrix
from solver.merge import merge_alike, split_flows
from solver.outlook import Outlook, demand_bound, outlook_of
from solver.problem import PlacementProblem
from solver.settings import PlacementSettings
from solver.solution import Origin, PlacementSolution, read_solution
from solver.tiny_promises import tiny_promise_notes

BOUND_SHARE = 0.4
"""Share of the time limit that the relaxation may use."""


@dataclass(slots=True)
class _Search:
    """One solve: the model, the clock, and what was learnt on the way."""

    problem: PlacementProblem
    built: PlacementMatrix
    budget: SearchBudget
    solve: ModelSolver
    notes: list[str]

    @property
    def settings(self) -> PlacementSettings:
        """Limits, gap, hysteresis."""
        return self.budget.settings


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
    budget = SearchBudget(settings)
    merged = merge_alike(problem)
    built = build_matrix(merged.problem)
    with ExitStack() as stack:
        first = stack.enter_context(ChildSolver()) if solve is None else solve
        search = _Search(merged.problem, built, budget, first, [])
        if int(built.model.integer.sum()) <= settings.direct_integers:
            found = _plan_whole(search, start)
        else:
            others = [stack.enter_context(ChildSolver()) for _ in range(settings.processes - 1)]
            found = _plan_in_parts(search, start, others)
    return replace(found, flows=split_flows(problem, merged, found.flows))


def _plan_whole(search: _Search, start: IntArray | None) -> PlacementSolution:
    """One branch and bound over everything."""
    problem, built = search.problem, search.built
    floor = kept_placement(problem, built)
    relaxation = linked_lp_bound(built.model, search.solve, search.budget.limits(BOUND_SHARE))
    outlook = outlook_of(problem, built, relaxation)
    kept = _reroute(search, floor)
    greedy = greedy_placement(problem, built)
    known = max((kept, greedy), key=lambda solution: solution.net(problem))
    answer = _branch_and_bound(search, known.replicas if start is None else start, outlook)
    best = _best(search, answer, kept, greedy)
    bound = best_bound([*_bounds(relaxation), solver_bound(answer), demand_bound(built.model)])
    return _close(search, _prefer_running(search, best, kept), bound, outlook)


def _plan_in_parts(search: _Search, start: IntArray | None, others: list[ChildSolver]) -> PlacementSolution:
    """Prices, construction and block search."""
    solvers = [search.solve, *others]
    answer = plan_large(search.problem, search.built, search.budget, solvers, search.notes, start)
    bound = best_bound([*answer.bounds, demand_bound(search.built.model)])
    return _close(search, _prefer_running(search, answer.found, answer.kept), bound, answer.outlook)


def _bounds(relaxation: Relaxation | None) -> list[Bound]:
    return [relaxation.bound] if relaxation else []


def _reroute(search: _Search, found: PlacementSolution) -> PlacementSolution:
    """The same replicas with the best routing and prewarmed copies, by the same model with the replicas fixed."""
    model, columns = search.built.model, search.built.columns
    lower, upper = model.lower.copy(), model.upper.copy()
    lower[columns.replicas] = upper[columns.replicas] = found.replicas
    answer = search.solve(model.with_bounds(lower, upper), search.budget.limits(BOUND_SHARE))
    routed = _read(search, answer, found.origin)
    return routed if routed and routed.net(search.problem) > found.net(search.problem) else found


def _branch_and_bound(search: _Search, start: IntArray, outlook: Outlook) -> LinearSolution:
    """The whole model by HiGHS: the right way up to about 1,000 whole columns."""
    columns = search.built.columns
    warm = WarmStart(np.arange(columns.replicas.start, columns.replicas.stop), start.astype(np.float64))
    gap = search.settings.mip_gap * outlook.reference / FLOW_UNIT
    answer = search.solve(search.built.model, search.budget.limits(absolute_gap=gap), warm)
    if answer.status is not SolveStatus.OPTIMAL:
        search.notes.append(f"placement solver: {answer.status.value} ({answer.detail})")
    return answer


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


def _close(search: _Search, chosen: PlacementSolution, bound: Bound, outlook: Outlook) -> PlacementSolution:
    problem = search.problem
    penalty = chosen.misses.penalty(problem)
    net_bound = max(bound.value * FLOW_UNIT, chosen.net(problem))
    proved = net_bound - chosen.net(problem) <= search.settings.mip_gap * outlook.reference + 1e-6
    return replace(
        chosen,
        bound=net_bound + penalty,
        bound_name=bound.name,
        proved=bool(proved),
        unavoidable=chosen.misses.any(problem) and (bool(proved) or outlook.misses),
        solve_s=search.budget.spent_s(),
        note=(*search.notes, *tiny_promise_notes(problem, chosen)),
    )
