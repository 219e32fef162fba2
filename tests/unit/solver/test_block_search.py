"""The pieces of planning in parts: the cut by models, prices and their bound, construction, block search."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from solver.backends import solve_here
from solver.block_search import BlockSearch, draw_block, search_blocks
from solver.greedy import greedy_placement
from solver.groups import ModelGroups, cut_by_model, free_columns
from solver.instances import InstanceSize, random_problem
from solver.keep import frozen_placement
from solver.lagrangian import PricedGroups, solve_groups
from solver.linear import Backend, LinearModel, LinearSolution, SolveLimits, SolveStatus, WarmStart, no_solution
from solver.matrix import FLOW_UNIT, PlacementMatrix, build_matrix
from solver.model_by_model import choosing_order, construct
from solver.outlook import outlook_at_prices
from solver.price_search import search_prices
from solver.problem import FlowPromise, PlacementProblem
from solver.solution import solution_values

ProblemMaker = Callable[..., PlacementProblem]
PART = SolveLimits(1.0)
SIZE = InstanceSize(5, 10, load=1.2)


def _dead(
    model: LinearModel, limits: SolveLimits, start: WarmStart | None = None, backend: Backend = "highs"
) -> LinearSolution:
    return no_solution(SolveStatus.ERROR, "gone")


def _priced(problem: PlacementProblem) -> tuple[PlacementMatrix, ModelGroups, PricedGroups, float]:
    """The cut model at the prices that were searched, and the bound that these give."""
    built = build_matrix(problem)
    groups = cut_by_model(problem, built)
    _, priced = outlook_at_prices(problem, built, groups)
    return built, groups, priced, priced.bound().value


def test_groups_share_only_resource_rows() -> None:
    problem = random_problem(SIZE, 0)
    built = build_matrix(problem)
    groups = cut_by_model(problem, built)
    assert len(groups) == len(problem.models)
    assert sorted(np.concatenate(groups.columns).tolist()) == list(range(built.columns.count))
    own = np.setdiff1d(np.arange(built.model.matrix.shape[0]), groups.shared)
    for row in own.tolist():
        members = groups.of_column[built.model.matrix[row].indices]
        assert len(np.unique(members)) <= 1
    shared = built.model.matrix[groups.shared]
    assert (shared.data >= 0).all()
    assert np.isneginf(built.model.row_lower[groups.shared]).all()


def test_a_promise_over_two_models_joins_them() -> None:
    problem = random_problem(replace(SIZE, promises=False), 0)
    jobs = problem.commodities
    pair = np.array([np.flatnonzero(jobs.model == m)[0] for m in (2, 5)])
    promise = FlowPromise("both", pair, np.ones(5, dtype=bool), 1.0, 1e3)
    held = replace(problem, flow_promises=(promise,))
    groups = cut_by_model(held, build_matrix(held))
    assert len(groups) == len(problem.models) - 1
    assert groups.promised.sum() == 1


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_searched_prices_come_near_the_linear_program_and_never_below_a_plan(seed: int) -> None:
    problem = random_problem(InstanceSize(6, 15, load=1.2), seed)
    built, _, _, bound = _priced(problem)
    plain = solve_here(build_matrix(problem, link=False).model.relaxed(), SolveLimits(30.0))
    assert bound <= plain.bound * 1.02
    greedy = solution_values(problem, built, greedy_placement(problem, built))
    assert bound >= built.model.value(greedy)
    assert search_prices(problem).gpus.tobytes() == search_prices(problem).gpus.tobytes()


def test_any_prices_give_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound must not lean on how well the prices were searched."""
    problem = random_problem(SIZE, 1)
    best = solve_here(build_matrix(problem).model, SolveLimits(30.0, relative_gap=1e-3))
    value = build_matrix(problem).model.value(best.values) * FLOW_UNIT
    for steps in (1, 3, 10):
        monkeypatch.setattr("solver.price_search.STEPS", steps)
        assert search_prices(problem).bound >= value * (1 - 1e-6)


def test_prices_know_running_replicas_and_copies(two_sites: ProblemMaker) -> None:
    """What runs has no start to pay: with it the same demand is worth more."""
    fresh, running = two_sites(), two_sites(current=(4, 0))
    assert search_prices(fresh).bound == pytest.approx(1000.0 - 1000.0 / 300.0 * 1.001, rel=1e-4)
    assert search_prices(running).bound == pytest.approx(1000.0 - 1000.0 / 300.0 * 0.001, rel=1e-4)
    scarce = search_prices(two_sites(gpus=(1.0, 1.0)))
    assert scarce.gpus == pytest.approx([299.0, 296.0], rel=0.02)
    assert scarce.bound == pytest.approx(2 * 299.0 - 300 * 0.01, rel=0.01)


def test_pricing_tightens_the_bound_and_never_below_the_best_plan() -> None:
    problem = random_problem(SIZE, 2)
    built, groups, priced, relaxed = _priced(problem)
    solve_groups(groups, priced, np.arange(len(groups)), [solve_here, solve_here], lambda: PART)
    best = solve_here(built.model, SolveLimits(60.0, relative_gap=2e-3))
    assert best.bound * (1 + 1e-6) >= built.model.value(best.values)
    assert built.model.value(best.values) <= priced.bound().value < relaxed * (1 - 1e-3)
    assert priced.bound().name == "Lagrangian"


def test_a_pricing_answer_that_was_cut_short_keeps_the_old_limit() -> None:
    _, groups, priced, _ = _priced(random_problem(SIZE, 3))
    before = priced.limit.copy()
    assert solve_groups(groups, priced, np.arange(3), [_dead], lambda: PART) == 3
    assert priced.limit.tolist() == before.tolist()
    assert solve_groups(groups, priced, np.arange(3), [solve_here], lambda: None) == 0
    assert not priced.answer


def test_losses_and_idle_rent_add_up_to_the_gap() -> None:
    problem = random_problem(SIZE, 4)
    built, groups, priced, _ = _priced(problem)
    values = solution_values(problem, built, greedy_placement(problem, built))
    idle = (built.model.row_upper - built.model.matrix @ values)[groups.shared]
    rent = float(priced.prices[groups.shared] @ np.where(np.isfinite(idle), idle, 0.0))
    gap = priced.bound().value - built.model.value(values)
    assert float(priced.loss(groups, values).sum()) + rent == pytest.approx(gap, rel=1e-6)


def test_construction_obeys_every_row_and_lets_promises_choose_first() -> None:
    problem = random_problem(InstanceSize(5, 10, load=2.0), 5)
    built, groups, priced, _ = _priced(problem)
    base = solution_values(problem, built, frozen_placement(problem, built))
    values = construct(groups, priced, base, solve_here, lambda: PART)
    assert built.model.residual(values) < 1e-6
    assert built.model.value(values) > built.model.value(base)
    order = choosing_order(groups, priced)
    assert groups.promised[order[: groups.promised.sum()]].all()
    solve_groups(groups, priced, np.arange(len(groups)), [solve_here], lambda: PART)
    calls: list[int] = []

    def counted(
        model: LinearModel, limits: SolveLimits, start: WarmStart | None = None, backend: Backend = "highs"
    ) -> LinearSolution:
        calls.append(1)
        return solve_here(model, limits)

    again = construct(groups, priced, base, counted, lambda: PART)
    assert len(calls) < len(groups)
    assert built.model.residual(again) < 1e-6


def test_construction_without_a_solver_is_its_base() -> None:
    problem = random_problem(SIZE, 6)
    built, groups, priced, _ = _priced(problem)
    base = solution_values(problem, built, greedy_placement(problem, built))
    assert construct(groups, priced, base, _dead, lambda: PART).tolist() == base.tolist()
    assert construct(groups, priced, base, solve_here, lambda: None).tolist() == base.tolist()


def test_a_part_model_allows_what_stands_and_nothing_that_breaks_the_whole() -> None:
    problem = random_problem(SIZE, 7)
    built, groups, _, _ = _priced(problem)
    values = solution_values(problem, built, greedy_placement(problem, built))
    columns = np.concatenate([groups.columns[2], groups.columns[4]])
    part = free_columns(groups, values, built.model.matrix @ values, columns)
    assert part.model.residual(values[columns]) < 1e-9
    best = solve_here(part.model, PART)
    whole = values.copy()
    whole[columns] = best.values
    assert built.model.residual(whole) < 1e-6
    change = part.model.value(best.values) - part.model.value(values[columns])
    assert built.model.value(whole) - built.model.value(values) == pytest.approx(change, abs=1e-6)


def test_blocks_are_distinct_follow_the_weights_and_share_a_pool_half_the_time() -> None:
    problem = random_problem(InstanceSize(6, 30), 8)
    groups = cut_by_model(problem, build_matrix(problem))
    weights = np.ones(len(groups))
    weights[7] = 1000.0
    rng = np.random.default_rng(0)
    blocks = [draw_block(groups, weights, 4, rng) for _ in range(200)]
    assert all(len(set(block.tolist())) == 4 for block in blocks)
    assert np.mean([block[0] == 7 for block in blocks]) > 0.9
    together = [any(set(block.tolist()) <= set(s.tolist()) for s in groups.sharers) for block in blocks]
    assert 0.4 < np.mean(together) < 0.95
    assert draw_block(groups, weights, 1, rng).shape == (1,)
    assert len(draw_block(groups, weights, 99, rng)) <= len(groups)


def test_the_search_ends_after_failed_calls_in_a_row_with_its_start() -> None:
    problem = random_problem(SIZE, 9)
    built, groups, priced, _ = _priced(problem)
    values = solution_values(problem, built, greedy_placement(problem, built))
    rng = np.random.default_rng(0)
    state = search_blocks(groups, priced, values, [_dead], lambda _: PART, 4, rng)
    assert (state.tries, state.gains, state.errors) == (5, 0, 5)
    assert state.values.tolist() == values.tolist()


def test_an_answer_that_breaks_a_row_is_no_gain() -> None:
    problem = random_problem(SIZE, 9)
    built, groups, priced, _ = _priced(problem)
    values = solution_values(problem, built, greedy_placement(problem, built))

    def liar(
        model: LinearModel, limits: SolveLimits, start: WarmStart | None = None, backend: Backend = "highs"
    ) -> LinearSolution:
        return LinearSolution(SolveStatus.OPTIMAL, model.upper.copy(), 1e9, np.empty(0), 0.0, "lie")

    def three(state: BlockSearch) -> SolveLimits | None:
        return PART if state.tries < 3 else None

    state = search_blocks(groups, priced, values, [liar], three, 4, np.random.default_rng(0))
    assert (state.tries, state.gains) == (3, 0)
    assert state.values.tolist() == values.tolist()


def test_blocks_of_a_round_are_disjoint_and_gains_that_no_longer_fit_are_dropped() -> None:
    problem = random_problem(InstanceSize(4, 9, load=2.0), 1)
    built, groups, priced, _ = _priced(problem)
    values = solution_values(problem, built, frozen_placement(problem, built))
    models: list[LinearModel] = []

    def seen(
        model: LinearModel, limits: SolveLimits, start: WarmStart | None = None, backend: Backend = "highs"
    ) -> LinearSolution:
        models.append(model)
        return solve_here(model, limits, start)

    def once(state: BlockSearch) -> SolveLimits | None:
        return SolveLimits(5.0, relative_gap=0.05) if state.tries == 0 else None

    state = search_blocks(groups, priced, values, [seen, seen, seen], once, 3, np.random.default_rng(0))
    assert state.tries == len(models) >= 2
    assert sum(model.matrix.shape[1] for model in models) <= built.columns.count
    # Three models each see all GPUs free at twice the load: they cannot all have what they found.
    assert 1 <= state.gains < state.tries
    assert built.model.residual(state.values) < 1e-5
