"""Worth of one more unit of a resource, and what a move brings and gives up: by hand and against re-solving."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from solver.backends import solve_here
from solver.explain_moves import MoveEffect, move_effects, resolves, resource_prices, with_one_more
from solver.instances import InstanceSize, random_problem
from solver.linear import SolveLimits
from solver.matrix import FLOW_UNIT, build_matrix
from solver.placement import solve_placement
from solver.problem import Commodities, PlacementProblem, ReplicaPromise
from solver.settings import PlacementSettings

ProblemMaker = Callable[..., PlacementProblem]
LIMITS = SolveLimits(10.0)
EXACT = PlacementSettings(time_limit_s=20.0, mip_gap=0.0, hysteresis=0.0)


def _two_models(two_sites: ProblemMaker, current: tuple[int, int] = (1, 0)) -> PlacementProblem:
    """One GPU, two models that each fill it; a token of the second is worth three of the first."""
    jobs = Commodities(
        model=np.array([0, 1]),
        workload_class=np.zeros(2, dtype=np.int64),
        allowed=np.array([[True, False]] * 2),
        entering=np.zeros((2, 2)),
        route_cost=np.zeros((2, 2)),
        width=np.full((2, 1), 300.0),
        value=np.array([[1.0], [3.0]]),
        weight=np.array([1.0, 3.0]),
    )
    problem = two_sites(
        gpus=(1.0, 0.0),
        current=current,
        commodities=jobs,
        models=("m", "w"),
        placements__model=np.array([0, 1]),
        placements__site=np.array([0, 0]),
        placements__pool=np.array([0, 0]),
        placements__upper=np.array([1, 1]),
    )
    return replace(problem, placements=replace(problem.placements, start_cost=np.array([0.0, 6.0])))


def test_one_more_gpu_is_worth_what_it_would_serve(two_sites: ProblemMaker) -> None:
    problem = two_sites(gpus=(2.0, 2.0), demand=5000.0, sites__power_kw=np.array([np.inf, 0.25]))
    prices = {(p.kind, p.index): p for p in resource_prices(problem, solve_here, LIMITS)}
    assert set(prices) == {("gpus", 0), ("power", 1)}
    # 300 tokens/s of a new replica less its start and the worth of a free GPU.
    assert prices["gpus", 0].worth == pytest.approx(300 - 1 - 1e-3, rel=1e-6)
    assert prices["gpus", 0].tokens_per_s == pytest.approx(300, rel=1e-6)
    # One kW more at west runs 1.5 replicas more, the pool's 2 being the limit; each token costs 0.01 on its way.
    assert prices["power", 1].tokens_per_s == pytest.approx(450, rel=1e-6)
    assert prices["power", 1].worth == pytest.approx(1.5 * (297 - 1 - 1e-3), rel=1e-6)


def test_a_broken_promise_is_told_apart_from_worth(two_sites: ProblemMaker) -> None:
    promise = (ReplicaPromise("p", np.array([0]), 7, 1e6),)
    problem = two_sites(gpus=(4.0, 4.0), demand=100.0, replica_promises=promise)
    (price,) = resource_prices(problem, solve_here, LIMITS)
    assert (price.kind, price.index) == ("gpus", 0)
    assert price.mended.replicas.tolist() == pytest.approx([1.0])
    assert -2.0 < price.worth <= 0.0


def test_nothing_used_up_has_no_price(two_sites: ProblemMaker) -> None:
    assert resource_prices(two_sites(), solve_here, LIMITS) == ()


@pytest.mark.parametrize("seed", range(8))
def test_a_price_lies_between_one_more_and_one_less(seed: int) -> None:
    """The relaxation is concave in its resources: its dual lies between one more and half a unit less."""
    problem = random_problem(InstanceSize(2, 3, load=1.2, nodes=(1, 2)), seed)
    problem = replace(problem, placements=replace(problem.placements, upper=problem.placements.upper + 50))
    built = build_matrix(problem)
    answer = solve_here(built.model.relaxed(), LIMITS)
    penalised = problem.replica_promises or problem.flow_promises or problem.covers
    prices = resource_prices(problem, solve_here, LIMITS)
    assert prices
    for price in prices:
        dual = abs(float(answer.row_duals[built.rows[price.kind].start + price.index]))
        dual *= FLOW_UNIT
        less = build_matrix(with_one_more(problem, price.kind, price.index, -0.5))
        more = build_matrix(with_one_more(problem, price.kind, price.index))
        lower = (solve_here(more.model.relaxed(), LIMITS).bound - answer.bound) * FLOW_UNIT
        upper = (answer.bound - solve_here(less.model.relaxed(), LIMITS).bound) * FLOW_UNIT / 0.5
        assert lower <= dual * (1 + 1e-6) + 1e-6
        assert dual <= upper * (1 + 1e-6) + 1e-6
        mended = price.mended.penalty(problem) if penalised else 0.0
        assert price.worth + mended == pytest.approx(lower, rel=1e-4, abs=1e-2)


def test_a_start_brings_what_it_serves_and_gives_up_what_its_gpu_is_worth_to_others(
    two_sites: ProblemMaker,
) -> None:
    problem = _two_models(two_sites)
    solution = solve_placement(problem, EXACT, solve=solve_here)
    assert solution.replicas.tolist() == [0, 1]
    prices = resource_prices(problem, solve_here, LIMITS)
    effects = move_effects(problem, solution, prices, solve_here, LIMITS)
    other = pytest.approx(300.0 - 1e-3)
    assert effects == {0: MoveEffect(other, pytest.approx(300.0)), 1: MoveEffect(pytest.approx(900.0), other)}


def test_no_time_means_no_explanation(two_sites: ProblemMaker) -> None:
    problem = _two_models(two_sites)
    solution = solve_placement(problem, EXACT, solve=solve_here)
    none = SolveLimits(1e-9)
    assert resource_prices(problem, solve_here, none) == ()
    assert move_effects(problem, solution, (), solve_here, none) == {}


def test_large_problems_explain_only_so_many_moves() -> None:
    small, large = (build_matrix(random_problem(InstanceSize(s, m), 0)) for s, m in ((2, 2), (12, 40)))
    assert resolves(small) == 30
    assert 3 <= resolves(large) < 30


@pytest.mark.parametrize("seed", range(6))
def test_the_price_of_a_replica_bounds_what_solving_anew_finds(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Served value is concave in replicas: a start brings at least its price, a drain gives up at most that."""
    size = InstanceSize(2, 3, load=1.0, nodes=(1, 2), promises=False, running_share=0.6)
    problem = random_problem(size, seed)
    problem = replace(
        problem, commodities=replace(problem.commodities, route_cost=problem.commodities.route_cost * 0)
    )
    solution = solve_placement(problem, PlacementSettings(time_limit_s=5.0, hysteresis=0.0), solve=solve_here)
    change = solution.replicas - problem.placements.current
    solved = move_effects(problem, solution, (), solve_here, LIMITS)
    monkeypatch.setattr("solver.explain_moves.resolves", lambda built: 0)
    priced = move_effects(problem, solution, (), solve_here, LIMITS)
    assert set(solved) == set(priced) == set(np.flatnonzero(change).tolist())
    for i, effect in solved.items():
        slack = 1e-4 * (1 + effect.gain + effect.gives_up)
        if change[i] > 0:
            assert priced[i].gain <= effect.gain + slack
        else:
            assert priced[i].gives_up >= effect.gives_up - slack
    if seed == 0:
        assert sum(effect.gain for effect in priced.values()) > 0
