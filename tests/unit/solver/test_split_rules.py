"""The independent checker of splits, the greedy rules, and the sentences about missed guarantees."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from data.errors import SettingError
from solver.backends import solve_here
from solver.capacity import close_split, split_capacity
from solver.capacity_explain import SplitNames, least_missed, missed_guarantees
from solver.capacity_greedy import fill_quotas, greedy_split
from solver.capacity_problem import CapacityPool, CapacityProblem, CapacitySettings, CapacitySplit
from solver.capacity_regret import regret_split
from solver.linear import SolveLimits
from solver.split_instances import SplitSize, random_split
from solver.verify_capacity import capacity_violations

SETTINGS = CapacitySettings()
Change = Callable[[np.ndarray, np.ndarray, np.ndarray], None]


def _one_pool(
    guarantee: tuple[float, float] = (60.0, 100.0),
    current: tuple[int, int] = (4, 4),
    moves: int = 4,
    replicas: int = 4,
    permitted: tuple[bool, bool] = (True, True),
    first: float = 40.0,
) -> CapacityProblem:
    """Four replicas; 'chat' carries 40 tokens/s with each, 'batch' 50; one tenant each."""
    count = np.arange(replicas + 1)
    rate = np.array([first * count, 50.0 * count])
    return CapacityProblem(
        pools=(CapacityPool(replicas, 1, rate, np.array(current), moves),),
        classes=2,
        workload_class=np.array([0, 1]),
        tier=np.array([0, 1]),
        permitted=np.array([permitted]),
        demand=np.array([200.0, 200.0]),
        guarantee=np.array(guarantee),
        weight=np.array([4.0, 1.0]),
        miss_penalty=np.array([40.0, 10.0]),
    )


NAMES = SplitNames(("B/coder/H100",), ("chat", "batch"), ("shop", "lab"))


def _solved(problem: CapacityProblem) -> CapacitySplit:
    return split_capacity(problem, replace(SETTINGS, relative_gap=0.0), solve_here, ("cbc",))


def _overfull(parts: np.ndarray, quota: np.ndarray, missed: np.ndarray) -> None:
    parts[0, 0] += 40


def _greedy_quota(parts: np.ndarray, quota: np.ndarray, missed: np.ndarray) -> None:
    quota[0, np.flatnonzero(quota[0])[0]] += 1e5


def _negative(parts: np.ndarray, quota: np.ndarray, missed: np.ndarray) -> None:
    quota[0, 0] = -1.0


def _infinite(parts: np.ndarray, quota: np.ndarray, missed: np.ndarray) -> None:
    missed[0] = np.inf


@pytest.mark.parametrize(
    ("change", "rules"),
    [
        (_overfull, {"parts"}),
        (_greedy_quota, {"room", "demand"}),
        (_negative, {"numbers"}),
        (_infinite, {"numbers"}),
    ],
)
def test_the_checker_sees_every_broken_rule(change: Change, rules: set[str]) -> None:
    problem = random_split(SplitSize(3, 6), 1)
    split = split_capacity(problem, SETTINGS, solve_here, ())
    assert not capacity_violations(problem, split.parts, split.quota, split.missed)
    parts, quota, missed = split.parts.copy(), split.quota.copy(), split.missed.copy()
    change(parts, quota, missed)
    assert {one.rule for one in capacity_violations(problem, parts, quota, missed)} == rules


def test_the_checker_sees_moves_permissions_and_hidden_misses() -> None:
    problem = _one_pool(current=(4, 0), moves=1, permitted=(True, False))
    quota = np.array([[80.0, 90.0]])
    rules = {one.rule for one in capacity_violations(problem, np.array([[2, 2]]), quota, np.zeros(2))}
    assert rules == {"moves", "permission", "guarantee"}
    assert {one.rule for one in capacity_violations(problem, np.zeros((2, 2)), quota, np.zeros(2))} == {"shape"}


@pytest.mark.parametrize("seed", range(5))
def test_every_quick_rule_keeps_the_rules_and_the_solver_is_never_worse(seed: int) -> None:
    problem = random_split(SplitSize(3, 6, load=0.7 + 0.2 * seed), seed)
    worth = []
    for parts, quota in (greedy_split(problem, SETTINGS), regret_split(problem)):
        split = close_split(problem, SETTINGS, parts, quota, "greedy")
        assert not capacity_violations(problem, split.parts, split.quota, split.missed)
        worth.append(split.objective)
    solved = split_capacity(problem, replace(SETTINGS, relative_gap=0.03), solve_here, ("cbc",))
    assert solved.objective >= max(worth)
    assert solved.gap <= 0.03 + 1e-6


def test_regret_gives_a_tight_line_its_only_cheap_pool() -> None:
    """The line that would lose most by its second choice goes first, whatever its number."""
    rate = np.array([[0.0, 100.0]])
    slow = np.array([[0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 100.0]])
    problem = CapacityProblem(
        pools=(
            CapacityPool(1, 1, rate, np.array([1]), 1),
            CapacityPool(1, 1, rate, np.array([1]), 1),
            CapacityPool(10, 1, slow, np.array([10]), 10),
        ),
        classes=1,
        workload_class=np.zeros(2, dtype=np.int64),
        tier=np.zeros(2, dtype=np.int64),
        permitted=np.array([[True, True], [True, False], [False, True]]),
        demand=np.array([100.0, 100.0]),
        guarantee=np.zeros(2),
        weight=np.ones(2),
        miss_penalty=np.zeros(2),
    )
    _, quota = regret_split(problem)
    assert quota.tolist() == [[0.0, 100.0], [100.0, 0.0], [0.0, 0.0]]


def test_regret_shares_what_is_left_in_turn() -> None:
    """No pool carries a whole line: one part each in turn within the tier."""
    problem = _one_pool(guarantee=(0.0, 0.0))
    problem = replace(problem, tier=np.zeros(2, dtype=np.int64), demand=np.array([250.0, 250.0]))
    parts, quota = regret_split(problem)
    assert parts.tolist() == [[2, 2]]
    assert quota.tolist() == [[80.0, 100.0]]


def test_quotas_within_given_parts_serve_the_worthier_first() -> None:
    problem = replace(_one_pool(), workload_class=np.zeros(2, dtype=np.int64))
    quota = fill_quotas(problem, SETTINGS, np.array([[4, 0]]))
    assert quota.tolist() == [[60.0, 100.0]]


def test_debt_moves_a_guarantee_forward() -> None:
    """A tenant that got less than promised is worth more in its guaranteed part."""
    problem = replace(_one_pool(guarantee=(150.0, 150.0)), weight=np.ones(2), miss_penalty=np.array([10.0, 10.0]))
    assert _solved(problem).parts[0, 1] > _solved(problem).parts[0, 0]
    owed = replace(problem, debt=np.array([2.0, 1.0]))
    assert _solved(owed).parts[0, 0] == 4
    with pytest.raises(SettingError, match="debt"):
        replace(problem, debt=np.array([0.5, 1.0]))


def test_the_gap_and_the_bound_are_told() -> None:
    split = _solved(_one_pool())
    assert split.bound >= split.objective
    assert split.summary().startswith("cbc optimal: worth ")
    assert "gap 0.00%" in split.summary()


def test_a_guarantee_without_any_pool() -> None:
    """F097: the rule that emptied the set is named."""
    split = _solved(_one_pool(permitted=(True, False)))
    (found,) = missed_guarantees(_one_pool(permitted=(True, False)), split, NAMES)
    assert found.text == "lab's guarantee of 100 tokens/s in batch is missed by 100: it may use no pool"


def test_a_guarantee_that_no_pool_can_serve_in_time() -> None:
    problem = _one_pool(first=0.0)
    (found,) = missed_guarantees(problem, _solved(problem), NAMES)
    assert "none of its pools (B/coder/H100) can meet the targets of chat" in found.text


def test_a_guarantee_in_a_full_pool_names_who_holds_it() -> None:
    """F097: two promises that fit alone but not together; the amount no split could keep is told."""
    problem = _one_pool(guarantee=(120.0, 150.0))
    split = _solved(problem)
    (found,) = missed_guarantees(problem, split, NAMES)
    assert found.line == 1
    assert found.missing == pytest.approx(100.0)
    assert found.text.endswith("missed by 100: B/coder/H100 has no replica left (of 4: chat 3, batch 1)")
    least = least_missed(problem, SETTINGS, solve_here, SolveLimits(10.0))
    assert least is not None
    assert least.tolist() == pytest.approx([0.0, 100.0], abs=1e-6)


def test_a_guarantee_beyond_the_moves_of_a_period() -> None:
    problem = _one_pool(guarantee=(120.0, 0.0), current=(1, 3), moves=1)
    (found,) = missed_guarantees(problem, _solved(problem), NAMES)
    assert "all that may move of its pools would carry 80 for it at most" in found.text
    assert "may move no more replicas in this period (limit 1)" in found.text


def test_a_first_replica_that_carries_nothing() -> None:
    """What is left is too coarse for the class."""
    rate = np.array([[0.0, 0.0, 0.0, 100.0], [0.0, 50.0, 100.0, 150.0]])
    problem = _one_pool(guarantee=(60.0, 100.0))
    problem = replace(
        problem,
        pools=(CapacityPool(3, 1, rate, np.array([3, 3]), 3),),
        demand=np.array([60.0, 100.0]),
        weight=np.array([1.0, 4.0]),
        miss_penalty=np.array([10.0, 40.0]),
    )
    (found,) = missed_guarantees(problem, _solved(problem), NAMES)
    assert "has 1 replica left, too few to carry more of chat" in found.text


def test_nothing_missed_nothing_said() -> None:
    problem = _one_pool(guarantee=(40.0, 50.0))
    assert missed_guarantees(problem, _solved(problem), NAMES) == ()
