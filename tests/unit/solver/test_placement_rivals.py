"""Placement rules of other projects on cases that can be worked out by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from data.errors import SettingError
from solver.child import ChildSolver
from solver.placement_rivals.instance_change import ChangeSettings, planned_instances, reactive_change
from solver.placement_rivals.need import free_gpus
from solver.placement_rivals.regret_greedy import regret_greedy
from solver.placement_rivals.slice_cover import Limits, cut_to_pools, slice_cover
from solver.problem import PlacementProblem

ProblemMaker = Callable[..., PlacementProblem]
ANYWHERE = ChangeSettings(own_site=False, start_share=0.0)


@pytest.fixture(scope="module")
def child() -> Iterator[ChildSolver]:
    with ChildSolver() as solver:
        yield solver


def with_jobs(problem: PlacementProblem, demands: list[float], **arrays: Any) -> PlacementProblem:
    """The problem with so many commodities of its first model and class, allowed everywhere."""
    count, sites = len(demands), len(problem.sites.names)
    jobs = replace(
        problem.commodities,
        model=np.zeros(count, dtype=np.int64),
        workload_class=np.zeros(count, dtype=np.int64),
        allowed=np.ones((count, sites), dtype=bool),
        entering=np.ones((count, sites)),
        route_cost=np.zeros((count, sites)),
        width=np.array(demands)[:, None],
        value=np.ones((count, 1)),
        weight=np.ones(count),
    )
    return replace(problem, commodities=replace(jobs, **arrays))


def two_models(
    two_sites: ProblemMaker, gpus: tuple[float, float], demands: tuple[float, float]
) -> PlacementProblem:
    """Models a and b, each placeable at both sites with 100 tokens/s a replica."""
    one = two_sites(gpus=gpus)
    twice = {
        name: np.tile(getattr(one.placements, name), 2)
        for name in (
            *("site", "pool", "gpus", "power_kw", "weights_gb", "current", "lower", "upper"),
            *("start_cost", "prewarm_limit", "prewarm_current"),
        )
    }
    places = replace(
        one.placements,
        **twice,
        model=np.array([0, 0, 1, 1]),
        config=("a", "a", "b", "b"),
        rate=np.full((4, 1), 100.0),
        mix_rate=np.full(4, 100.0),
    )
    jobs = with_jobs(one, list(demands), model=np.array([0, 1])).commodities
    return replace(one, placements=places, commodities=jobs, models=("a", "b"))


class TestRegretGreedy:
    def test_takes_the_cheapest_place_that_carries_all(self, two_sites: ProblemMaker) -> None:
        # 1,000 tokens/s at 300 a replica: four replicas, for 4 or for 8.
        assert regret_greedy(two_sites(), np.array([1.0, 2.0]), (0,)).tolist() == [4, 0]

    def test_falls_back_when_the_first_choice_is_full(self, two_sites: ProblemMaker) -> None:
        assert regret_greedy(two_sites(gpus=(3.0, 4.0)), np.array([1.0, 2.0]), (0,)).tolist() == [0, 4]

    def test_shares_what_is_left_when_no_place_carries_all(self, two_sites: ProblemMaker) -> None:
        assert regret_greedy(two_sites(gpus=(2.0, 1.0)), np.array([1.0, 2.0]), (0,)).tolist() == [2, 1]

    def test_the_larger_regret_goes_first(self, two_sites: ProblemMaker) -> None:
        problem = two_models(two_sites, (1.0, 1.0), (100.0, 100.0))
        # Both prefer the first site; losing it costs a 0.2 and b 2.
        assert regret_greedy(problem, np.array([1.0, 1.2, 1.0, 3.0]), (0,)).tolist() == [0, 1, 1, 0]

    def test_priority_goes_before_regret(self, two_sites: ProblemMaker) -> None:
        problem = two_models(two_sites, (1.0, 0.0), (100.0, 100.0))
        jobs = replace(problem.commodities, workload_class=np.array([0, 1]))
        places = replace(problem.placements, rate=np.full((4, 2), 100.0))
        problem = replace(problem, commodities=jobs, placements=places, classes=("batch", "interactive"))
        assert regret_greedy(problem, np.ones(4), (1, 0)).tolist() == [0, 0, 1, 0]

    def test_the_rest_of_a_replica_is_used_by_the_next(self, two_sites: ProblemMaker) -> None:
        problem = with_jobs(two_sites(), [150.0, 150.0])
        assert regret_greedy(problem, np.array([1.0, 2.0]), (0,)).tolist() == [1, 0]

    def test_keeps_residency_and_limits(self, two_sites: ProblemMaker) -> None:
        problem = with_jobs(two_sites(gpus=(9.0, 2.0)), [5000.0], allowed=np.array([[False, True]]))
        found = regret_greedy(problem, np.ones(2), (0,))
        assert found.tolist() == [0, 2]
        assert (free_gpus(problem, found) >= 0).all()


class TestSliceCover:
    def test_mixes_places_where_that_is_cheapest(self, two_sites: ProblemMaker, child: ChildSolver) -> None:
        problem = two_sites(gpus=(3.0, 4.0))
        assert slice_cover(problem, np.array([1.0, 2.0]), Limits.IN_TURN, child).tolist() == [3, 1]

    def test_knows_no_limits_and_is_cut(self, two_sites: ProblemMaker, child: ChildSolver) -> None:
        problem = two_sites(gpus=(3.0, 4.0))
        assert slice_cover(problem, np.array([1.0, 2.0]), Limits.CUT, child).tolist() == [3, 0]

    def test_the_dearer_model_has_the_first_turn(self, two_sites: ProblemMaker, child: ChildSolver) -> None:
        problem = two_models(two_sites, (2.0, 0.0), (100.0, 200.0))
        assert slice_cover(problem, np.ones(4), Limits.IN_TURN, child).tolist() == [0, 0, 2, 0]

    def test_cut_in_proportion_with_the_largest_remainder(self, two_sites: ProblemMaker) -> None:
        problem = two_models(two_sites, (4.0, 9.0), (1.0, 1.0))
        # Five and two of four: 2.86 and 1.14. The other pool has room and stays.
        assert cut_to_pools(problem, np.array([5, 3, 2, 1])).tolist() == [3, 3, 1, 1]


class TestInstanceChange:
    def test_covers_at_the_cheapest_places(self, two_sites: ProblemMaker, child: ChildSolver) -> None:
        problem = two_sites(gpus=(3.0, 4.0))
        assert planned_instances(problem, np.array([1.0, 2.0]), ANYWHERE, child).tolist() == [3, 1]

    def test_covers_demand_where_it_arises(self, two_sites: ProblemMaker, child: ChildSolver) -> None:
        problem = with_jobs(two_sites(), [600.0], entering=np.array([[1.0, 0.0]]))
        price = np.array([1.0, 2.0])
        assert planned_instances(problem, price, ANYWHERE, child).tolist() == [2, 0]
        assert planned_instances(problem, price, replace(ANYWHERE, own_site=True), child).tolist() == [0, 2]

    def test_a_start_must_pay(self, two_sites: ProblemMaker, child: ChildSolver) -> None:
        problem, price = two_sites(current=(0, 4)), np.array([1.0, 1.05])
        assert planned_instances(problem, price, replace(ANYWHERE, start_share=0.1), child).tolist() == [0, 4]
        assert planned_instances(problem, price, ANYWHERE, child).tolist() == [4, 0]

    def test_plans_for_a_share_of_what_can_wait(self, two_sites: ProblemMaker, child: ChildSolver) -> None:
        slow = replace(ANYWHERE, slow_classes=(0,), slow_share=0.1)
        assert planned_instances(two_sites(demand=3000.0), np.array([1.0, 2.0]), slow, child).tolist() == [1, 0]

    def test_what_does_not_fit_is_missed(self, two_sites: ProblemMaker, child: ChildSolver) -> None:
        problem = two_sites(gpus=(1.0, 1.0), demand=10_000.0)
        assert planned_instances(problem, np.array([1.0, 2.0]), ANYWHERE, child).tolist() == [1, 1]

    def test_equal_tokens_favour_the_cheap_model(self, two_sites: ProblemMaker, child: ChildSolver) -> None:
        problem = two_models(two_sites, (1.0, 0.0), (80.0, 30.0))
        places = replace(problem.placements, rate=np.array([[100.0], [100.0], [30.0], [30.0]]))
        problem = replace(problem, placements=places)
        price = np.ones(4)
        # One GPU for 80 tokens/s of a, which fill 0.8 of it, or for 30 of b, which fill it.
        assert planned_instances(problem, price, ANYWHERE, child).tolist() == [0, 0, 1, 0]
        equal = replace(ANYWHERE, equal_tokens=True)
        assert planned_instances(problem, price, equal, child).tolist() == [1, 0, 0, 0]

    @pytest.mark.parametrize(("demand", "expected"), [(580.0, [3, 0]), (400.0, [2, 0]), (100.0, [1, 0])])
    def test_reacts_to_use(self, two_sites: ProblemMaker, demand: float, expected: list[int]) -> None:
        # Two replicas carry 600: use 0.97, 0.67 and 0.17.
        problem = two_sites(demand=demand)
        assert reactive_change(problem, np.array([1.0, 2.0]), np.array([2, 0]), ANYWHERE).tolist() == expected

    def test_stops_a_model_that_nobody_asks_for(self, two_sites: ProblemMaker) -> None:
        found = reactive_change(two_sites(demand=0.0), np.array([1.0, 2.0]), np.array([1, 1]), ANYWHERE)
        assert found.tolist() == [1, 0]

    def test_starts_nothing_without_a_free_gpu(self, two_sites: ProblemMaker) -> None:
        problem = two_sites(gpus=(2.0, 0.0), demand=5000.0)
        assert reactive_change(problem, np.ones(2), np.array([2, 0]), ANYWHERE).tolist() == [2, 0]

    @pytest.mark.parametrize("wrong", [{"slow_share": 1.1}, {"start_share": -0.1}, {"low": 0.95}])
    def test_settings_out_of_range(self, wrong: dict[str, float]) -> None:
        with pytest.raises(SettingError):
            ChangeSettings(**wrong)  # type: ignore[arg-type]


def test_no_demand_needs_no_replica(two_sites: ProblemMaker, child: ChildSolver) -> None:
    problem, price = two_sites(demand=0.0), np.ones(2)
    assert not regret_greedy(problem, price, (0,)).any()
    assert not slice_cover(problem, price, Limits.CUT, child).any()
    assert not planned_instances(problem, price, ANYWHERE, child).any()
