"""Plans placements too large for one branch and bound: prices, a first plan or the running one, block search.

The search never ends below its start, and every vector it passes on obeys every row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from data.types import FloatArray, IntArray
from solver.block_search import BlockSearch, search_blocks
from solver.bounds import Bound, linked_lp_bound
from solver.budget import SearchBudget
from solver.greedy import greedy_placement
from solver.groups import ModelGroups, cut_by_model
from solver.keep import frozen_placement, keep_running, routed_placement
from solver.lagrangian import PricedGroups, solve_groups
from solver.linear import ModelSolver, SolveLimits
from solver.matrix import FLOW_UNIT, PlacementMatrix, build_matrix
from solver.merge import merge_by_reach
from solver.model_by_model import construct
from solver.outlook import Outlook, outlook_at_prices, outlook_of
from solver.problem import PlacementProblem
from solver.solution import Origin, PlacementSolution, read_solution, solution_values

RESIDUAL_LIMIT = 1e-5
KEEP_SHARE = 0.5
"""Share of the time left that routing for the running replicas may use."""
PRICING_END = 0.45
"""From nothing: share of the time limit at which the pricing pass stops."""
CONSTRUCTION_END = 0.9
PRICING_STOP = 0.75
"""From a running plan: share of the time limit at which the pricing pass stops."""
SEARCH_FIRST = 0.5
"""From a running plan: share of the time limit that the search gets before the pricing pass."""
PROOF_START = 0.85
"""Where the plan breaks a promise, the last of the time is for the proof that it must."""
PROOF_SHARE = 0.9
"""Share of what is left then that the proof may use; the rest is for reading the answer."""
LONG_LIMIT_S = 20.0
"""Below this limit the search needs the time: no pricing pass from a running plan, no proof of broken promises."""
BLOCK_GAP = 0.01
"""Gap at which a block stops, as a share of the gap that the whole plan still has."""
FINE_GAP = 5e-5
"""The same at most, as a share of the plan's value: while the bound is loose the first says little."""
PATIENCE = 4.0
"""Seconds of a pricing model for one of a block: few of them need it, and a bound cut short is a loose one."""
GROUP_GAP = 0.1
"""The same for all pricing models together."""
WORTH_KEEPING = 0.85
"""A running plan worth this share of the bound is a better start than a new construction."""


@dataclass(frozen=True, slots=True)
class LargeAnswer:
    """What the search for a large placement found.

    Attributes:
        kept: The running replicas with the best routing.
        found: The best placement found, its bound not filled in.
        outlook: The relaxation's.
        bounds: Every bound proved, in model units.
    """

    kept: PlacementSolution
    found: PlacementSolution
    outlook: Outlook
    bounds: list[Bound]


@dataclass(slots=True)
class _Large:
    """One search: the model, its cut, the clock and the solvers."""

    problem: PlacementProblem
    built: PlacementMatrix
    groups: ModelGroups
    budget: SearchBudget
    solvers: Sequence[ModelSolver]
    notes: list[str]
    outlook: Outlook
    priced: PricedGroups

    def reference(self) -> float:
        """What gaps are a share of, in model units."""
        reference, bound = self.outlook.reference / FLOW_UNIT, self.bound()
        return min(reference, bound) if bound > 0 else reference

    def gap(self) -> float:
        """Gap that ends the search, in model units."""
        return self.budget.settings.mip_gap * self.reference()

    def long(self) -> bool:
        """Whether there is time for more than the search itself."""
        settings = self.budget.settings
        return settings.deterministic or settings.time_limit_s >= LONG_LIMIT_S

    def bound(self) -> float:
        """The smallest bound so far."""
        return min(self.outlook.bound.value, self.priced.bound().value)

    def closed(self, objective: float) -> bool:
        """Whether a plan of that worth is close enough to the bound."""
        return self.bound() - objective <= self.gap()


def plan_large(
    problem: PlacementProblem,
    built: PlacementMatrix,
    budget: SearchBudget,
    solvers: Sequence[ModelSolver],
    notes: list[str],
    start: IntArray | None = None,
) -> LargeAnswer:
    """Search until the gap is closed or the budget is spent.

    Args:
        problem: What may stand where.
        built: Its model.
        budget: Clock or counts.
        solvers: The first solves everything; the pricing pass uses all of them side by side.
        notes: Takes what went wrong on the way.
        start: Replicas to search from instead of the running ones.
    """
    kept = keep_running(problem, built, solvers[0], budget.limits(KEEP_SHARE))
    groups = cut_by_model(problem, built)
    outlook, priced = outlook_at_prices(problem, built, groups)
    search = _Large(problem, built, groups, budget, solvers, notes, outlook, priced)
    first = _start(search, kept, start)
    values = solution_values(problem, built, first)
    if groups.model.value(values) >= WORTH_KEEPING * search.bound():
        found = _from_running(search, values, first.origin)
    else:
        found = _from_nothing(search, first)
    best = _better(problem, found, first, kept)
    bounds = [outlook.bound, priced.bound()]
    if search.long() and best.misses.any(problem):
        outlook = replace(outlook, misses=_must_miss(search))
    return LargeAnswer(kept, best, outlook, bounds)


def _better(problem: PlacementProblem, *found: PlacementSolution) -> PlacementSolution:
    """The one with the most net value, the first of equals."""
    return max(found, key=lambda solution: solution.net(problem))


def _must_miss(search: _Large) -> bool:
    """Whether even fractions of replicas cannot keep every promise; unknown counts as no."""
    merged = merge_by_reach(search.problem).problem
    built = build_matrix(merged, link=False)
    relaxation = linked_lp_bound(built.model, search.solvers[0], search.budget.limits(PROOF_SHARE))
    return outlook_of(merged, built, relaxation).misses


def _start(search: _Large, kept: PlacementSolution, start: IntArray | None) -> PlacementSolution:
    """What the caller wants to start from, if it can be routed and obeys the rows; else the running placement."""
    if start is None:
        return kept
    problem, built = search.problem, search.built
    limits = search.budget.limits(KEEP_SHARE)
    first = routed_placement(problem, built, start, search.solvers[0], limits, Origin.SOLVER)
    if first is None or built.model.residual(solution_values(problem, built, first)) > RESIDUAL_LIMIT:
        search.notes.append("placement solver: the start given does not fit the problem")
        return kept
    return first


def _from_nothing(search: _Large, first: PlacementSolution) -> PlacementSolution:
    """Pricing pass, construction model by model, then block search; the greedy where time or solvers fail."""
    problem, built = search.problem, search.built
    _pricing_pass(search, np.zeros(built.columns.count), PRICING_END)
    base = solution_values(problem, built, frozen_placement(problem, built))
    values = construct(
        search.groups, search.priced, base, search.solvers[0], lambda: _part_limits(search, CONSTRUCTION_END)
    )
    begun = read_solution(problem, built, values, Origin.CONSTRUCTED)
    if not search.priced.answer or search.budget.over(CONSTRUCTION_END):
        # Nobody answered, or the time ended before every model had its turn.
        begun = _better(problem, begun, greedy_placement(problem, built))
    best = _better(problem, begun, first)
    return _search(search, solution_values(problem, built, best), 1.0, best.origin)


def _from_running(search: _Large, values: FloatArray, origin: Origin) -> PlacementSolution:
    """Block search from a good plan, with a pricing pass in between where the time allows it."""
    if not search.long():
        return _search(search, values, 1.0, origin)
    early = _search(search, values, SEARCH_FIRST, origin)
    values = solution_values(search.problem, search.built, early)
    if search.closed(search.groups.model.value(values)):
        return early
    _pricing_pass(search, values, PRICING_STOP)
    return _search(search, values, 1.0, early.origin)


def _pricing_pass(search: _Large, values: FloatArray, until: float) -> None:
    """Tighten the groups' limits, those first that stay furthest below."""
    order = np.argsort(-search.priced.loss(search.groups, values), kind="stable").astype(np.int64)
    solve_groups(search.groups, search.priced, order, search.solvers, lambda: _part_limits(search, until))


def _part_limits(search: _Large, until: float) -> SolveLimits | None:
    """Limits of one group's model, until a share of the time has passed."""
    if search.budget.over(until):
        return None
    return search.budget.part_limits(GROUP_GAP * search.gap() / len(search.groups), PATIENCE)


def _search(search: _Large, values: FloatArray, until: float, origin: Origin) -> PlacementSolution:
    """Block search until the gap is closed, a share of the time is over or, in audit mode, all tries are made."""
    settings, columns = search.budget.settings, search.built.columns
    missed = (columns.missed_replicas, columns.missed_flows, columns.missed_covers)
    if search.long() and any(values[span].any() for span in missed):
        until = min(until, PROOF_START)

    def limits(state: BlockSearch) -> SolveLimits | None:
        tired = settings.deterministic and state.tries >= settings.block_tries
        if tired or search.budget.over(until) or search.closed(state.objective):
            return None
        gap = min(BLOCK_GAP * (search.bound() - state.objective), FINE_GAP * search.reference())
        return search.budget.part_limits(gap)

    # Rounds of several blocks are other rounds than those of one: audit mode must not depend on the processes.
    solvers = search.solvers[:1] if settings.deterministic else search.solvers
    rng = np.random.default_rng(settings.seed)
    state = search_blocks(search.groups, search.priced, values, solvers, limits, settings.block_size, rng)
    if state.errors:
        search.notes.append(f"placement solver: block search ended after {state.errors} calls without an answer")
    return read_solution(search.problem, search.built, state.values, Origin.BLOCKS if state.gains else origin)
