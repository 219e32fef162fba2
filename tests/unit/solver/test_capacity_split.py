"""The capacity split: agreement of two solvers, the greedy fallback, limits on moves, guarantees."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from data.errors import SettingError
from solver.backends import solve_here
from solver.capacity import split_capacity
from solver.capacity_problem import CapacityPool, CapacityProblem, CapacitySettings
from solver.capacity_value import split_value
from solver.linear import Backend, LinearModel, LinearSolution, SolveLimits, SolveStatus, WarmStart, no_solution

EXACT = CapacitySettings(relative_gap=0.0, time_limit_s=20.0)


def _problem(seed: int, pools: int = 2, tenants: int = 3) -> CapacityProblem:
    """A random split: square-root staffing per class, tenants in three tiers, some pools barred."""
    rng = np.random.default_rng(seed)
    losses = np.array([[0.9], [0.6], [0.1]])
    made: list[CapacityPool] = []
    for _ in range(pools):
        replicas = int(rng.integers(2, 6))
        count = np.arange(replicas + 1)
        rate = rng.uniform(80, 200, (3, 1)) * np.maximum(count - losses * np.sqrt(count), 0)
        made.append(CapacityPool(replicas, 1, rate, np.array([replicas, 0, 0]), replicas))
    kinds = np.repeat(np.arange(3), tenants)
    demand = rng.uniform(20, 250, 3 * tenants)
    weight = np.tile(rng.choice([4.0, 2.0, 1.0], tenants), 3)
    permitted = rng.random((pools, 3 * tenants)) < 0.8
    permitted[0] = True
    return CapacityProblem(
        pools=tuple(made),
        classes=3,
        workload_class=kinds,
        tier=np.tile(rng.integers(0, 3, tenants), 3),
        permitted=permitted,
        demand=demand,
        guarantee=demand * rng.uniform(0.0, 0.5, 3 * tenants),
        weight=weight,
        miss_penalty=10 * weight,
    )


def _check(problem: CapacityProblem, parts: np.ndarray, quota: np.ndarray) -> None:
    for p, pool in enumerate(problem.pools):
        assert parts[p].sum() <= pool.levels
        assert np.maximum(parts[p] - pool.current, 0).sum() <= pool.move_limit
        for c in range(problem.classes):
            mine = problem.workload_class == c
            assert quota[p, mine].sum() <= pool.rate[c, parts[p, c]] + 1e-6
    assert (quota[~problem.permitted] == 0).all()
    assert (quota.sum(axis=0) <= np.ceil(problem.demand) + 1e-6).all()


@pytest.mark.parametrize("seed", range(15))
def test_two_solvers_agree_and_the_split_is_sound(seed: int) -> None:
    """F089: CBC on the mixed model and CP-SAT on the whole-number one, within the rounding of a quota unit."""
    problem = _problem(seed)
    cbc = split_capacity(problem, EXACT, solve_here, ("cbc",))
    sat = split_capacity(problem, EXACT, solve_here, ("cp_sat",))
    assert cbc.proved
    assert sat.proved
    worth = float(problem.weight.max())
    assert sat.objective == pytest.approx(cbc.objective, abs=worth * 2 * len(problem.demand))
    assert sat.objective <= cbc.bound + worth
    for split in (cbc, sat):
        _check(problem, split.parts, split.quota)


@pytest.mark.parametrize("seed", range(15))
def test_greedy_is_sound_and_never_above_the_optimum(seed: int) -> None:
    problem = _problem(seed)
    best = split_capacity(problem, EXACT, solve_here, ("cbc",))
    greedy = split_capacity(problem, EXACT, solve_here, ())
    assert greedy.method in ("greedy", "regret_greedy", "kept")
    assert greedy.status is SolveStatus.FEASIBLE_LIMIT
    _check(problem, greedy.parts, greedy.quota)
    assert greedy.objective <= best.objective + 1e-6 * abs(best.objective) + float(problem.weight.max())


def test_small_problem_against_every_split() -> None:
    """All ways to share three replicas between two classes, the quota of each worked out by hand."""
    rate = np.array([[0.0, 50.0, 130.0, 220.0], [0.0, 90.0, 180.0, 270.0]])
    problem = CapacityProblem(
        (CapacityPool(3, 1, rate, np.array([3, 3]), 3),),
        2,
        np.array([0, 1]),
        np.array([0, 1]),
        np.ones((1, 2), dtype=bool),
        np.array([150.0, 200.0]),
        np.array([0.0, 0.0]),
        np.array([3.0, 1.0]),
        np.array([0.0, 0.0]),
    )
    settings = CapacitySettings(relative_gap=0.0, fairness=0.0, move_cost=0.0)
    values = {}
    for first in range(4):
        parts = np.array([[first, 3 - first]])
        quota = np.array([[min(150.0, rate[0, first]), min(200.0, rate[1, 3 - first])]])
        values[first] = split_value(problem, settings, parts, quota)[0]
    found = split_capacity(problem, settings, solve_here, ("cbc",))
    assert found.objective == pytest.approx(max(values.values()))


def test_guarantee_comes_before_worth() -> None:
    rate = np.array([[0.0, 100.0], [0.0, 100.0]])
    problem = CapacityProblem(
        (CapacityPool(1, 1, rate, np.array([1, 1]), 1),),
        2,
        np.array([0, 1]),
        np.array([2, 0]),
        np.ones((1, 2), dtype=bool),
        np.array([100.0, 100.0]),
        np.array([0.0, 60.0]),
        np.array([2.0, 1.0]),
        np.array([20.0, 10.0]),
    )
    split = split_capacity(problem, EXACT, solve_here)
    assert split.parts.tolist() == [[0, 1]]
    assert split.missed.tolist() == pytest.approx([0.0, 0.0])


def test_move_limit_holds_even_when_more_would_pay() -> None:
    rate = np.vstack([np.arange(9) * 100.0, np.arange(9) * 100.0])
    problem = CapacityProblem(
        (CapacityPool(8, 1, rate, np.array([8, 0]), 2),),
        2,
        np.array([0, 1]),
        np.array([0, 0]),
        np.ones((1, 2), dtype=bool),
        np.array([100.0, 800.0]),
        np.zeros(2),
        np.ones(2),
        np.zeros(2),
    )
    for methods in (("cbc",), ("cp_sat",), ()):
        assert split_capacity(problem, EXACT, solve_here, methods).parts[0, 1] == 2  # type: ignore[arg-type]


def test_solver_failure_falls_back_to_greedy_and_says_so() -> None:
    def dead(
        model: LinearModel, limits: SolveLimits, start: WarmStart | None = None, backend: Backend = "highs"
    ) -> LinearSolution:
        return no_solution(SolveStatus.ERROR, "gone")

    split = split_capacity(_problem(1), EXACT, dead)
    assert split.method in ("greedy", "regret_greedy", "kept")
    assert not split.proved
    assert len(split.note) == 2


def test_no_pools_misses_every_guarantee() -> None:
    problem = _problem(1)
    empty = replace(problem, pools=(), permitted=np.zeros((0, len(problem.demand)), dtype=bool))
    assert split_capacity(empty, EXACT, solve_here).missed.tolist() == problem.guarantee.tolist()


def test_a_table_that_falls_is_refused() -> None:
    problem = _problem(1)
    pool = CapacityPool(1, 1, np.array([[0.0, -1.0]] * 3), np.zeros(3, dtype=np.int64), 1)
    with pytest.raises(SettingError, match="never fall"):
        replace(problem, pools=(pool,), permitted=problem.permitted[:1])
