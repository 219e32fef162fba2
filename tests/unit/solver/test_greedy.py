"""The constructive fallback: hard rules at every size, and worth having."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from solver.greedy import greedy_placement, kept_placement
from solver.instances import InstanceSize, random_problem
from solver.matrix import build_matrix
from solver.problem import FlowPromise, PlacementProblem, ReplicaPromise, SiteLossCover
from solver.solution import assemble_values

ProblemMaker = Callable[..., PlacementProblem]


@pytest.mark.parametrize("seed", range(12))
def test_every_row_holds(seed: int) -> None:
    size = InstanceSize(3, 6, load=0.5 + 0.2 * (seed % 5), running_share=0.25 * (seed % 4))
    problem = random_problem(size, seed)
    built = build_matrix(problem)
    for make in (greedy_placement, kept_placement):
        found = make(problem, built)
        values = assemble_values(problem, built, found.replicas, found.prewarmed, found.loads, found.flows)
        assert built.model.residual(values) < 1e-9
        assert found.value <= float((problem.commodities.width * problem.commodities.value).sum()) + 1e-6


def test_promises_come_before_value(two_sites: ProblemMaker) -> None:
    promise = (ReplicaPromise("p", np.array([1]), 3, 1e5),)
    problem = two_sites(gpus=(0.0, 3.0), replica_promises=promise)
    assert greedy_placement(problem, build_matrix(problem)).replicas.tolist() == [0, 3]


def test_promised_throughput_gets_replicas_that_value_alone_would_not(two_sites: ProblemMaker) -> None:
    promise = (FlowPromise("p", np.array([0]), np.array([False, True]), 600.0, 10.0),)
    problem = two_sites(flow_promises=promise, commodities__value=np.zeros((1, 1)))
    found = greedy_placement(problem, build_matrix(problem))
    assert found.replicas[1] == 2
    assert found.misses.flows[0] == pytest.approx(0.0)


def test_cover_for_the_loss_of_a_site(two_sites: ProblemMaker) -> None:
    problem = two_sites(covers=(SiteLossCover("m", 0, 500.0, 100.0),))
    found = greedy_placement(problem, build_matrix(problem))
    assert min(found.replicas.tolist()) >= 2


def test_running_replicas_are_not_drained_without_need(two_sites: ProblemMaker) -> None:
    problem = two_sites(demand=100.0, current=(2, 2))
    assert greedy_placement(problem, build_matrix(problem)).replicas.tolist() == [2, 2]


def test_replicas_that_no_longer_fit_are_dropped(two_sites: ProblemMaker) -> None:
    problem = two_sites(gpus=(2.0, 4.0), current=(4, 1))
    kept = kept_placement(problem, build_matrix(problem))
    assert kept.replicas.tolist() == [2, 1]
