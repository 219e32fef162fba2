"""Explanations: the broken promise, the amount, and what blocks it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from solver.backends import solve_here
from solver.explain import Blocker, FilterCounts, blocker_text, blockers_of, explain_misses
from solver.linear import SolveLimits
from solver.matrix import build_matrix
from solver.placement import solve_placement
from solver.problem import PlacementProblem, ReplicaPromise
from solver.settings import PlacementSettings

ProblemMaker = Callable[..., PlacementProblem]
LIMITS = SolveLimits(10.0)


def test_one_promise_too_large(two_sites: ProblemMaker) -> None:
    """F097: conflict of size 1."""
    problem = two_sites(replica_promises=(ReplicaPromise("p", np.array([0]), 7, 1e5),))
    wide = replace(problem, placements=replace(problem.placements, upper=np.array([9, 9])))
    found = explain_misses(wide, build_matrix(wide), solve_here, LIMITS)
    assert found is not None
    assert found.misses.replicas.tolist() == pytest.approx([3.0])
    assert found.blockers == (Blocker("gpus", 0),)
    assert blocker_text(wide, found.blockers[0]) == "H100 pool of east (4 GPUs)"


def test_two_promises_that_fit_alone_but_not_together(two_sites: ProblemMaker) -> None:
    """F097: conflict of size 2, the resource between them is named."""
    promises = (ReplicaPromise("a", np.array([0]), 3, 1e5), ReplicaPromise("b", np.array([0]), 1, 1e4))
    problem = two_sites(
        gpus=(4.0, 0.0),
        placements__pool=np.array([0, 0]),
        placements__site=np.array([0, 0]),
        placements__upper=np.array([4, 4]),
    )
    problem = replace(problem, replica_promises=(promises[0], ReplicaPromise("b", np.array([1]), 3, 1e4)))
    found = explain_misses(problem, build_matrix(problem), solve_here, LIMITS)
    assert found is not None
    assert found.misses.replicas.tolist() == pytest.approx([0.0, 2.0])
    assert Blocker("gpus", 0) in found.blockers


def test_three_resources_in_the_way(two_sites: ProblemMaker) -> None:
    """F097: conflict of size 3: power and start budget are named too."""
    problem = two_sites(
        sites__power_kw=np.array([1.0, np.inf]),
        sites__start_budget_gpus=np.array([np.inf, 1.0]),
        replica_promises=(ReplicaPromise("p", np.array([0, 1]), 6, 1e5),),
    )
    found = explain_misses(problem, build_matrix(problem), solve_here, LIMITS)
    assert found is not None
    assert found.misses.replicas.tolist() == pytest.approx([3.0])
    assert {(b.kind, b.index) for b in found.blockers} == {("power", 0), ("start_budget", 1)}
    solution = solve_placement(problem, PlacementSettings(), solve=solve_here)
    blocked = blockers_of(problem, solution, np.array([0, 1]))
    assert {b.kind for b in blocked} == {"power", "start_budget"}


def test_nothing_is_missed_when_everything_fits(two_sites: ProblemMaker) -> None:
    problem = two_sites(replica_promises=(ReplicaPromise("p", np.array([0, 1]), 6, 1e5),))
    found = explain_misses(problem, build_matrix(problem), solve_here, LIMITS)
    assert found is not None
    assert found.misses.replicas.tolist() == pytest.approx([0.0])


def test_every_kind_of_blocker_has_words(two_sites: ProblemMaker) -> None:
    problem = two_sites()
    for kind in ("gpus", "power", "ingress", "host_memory", "start_budget"):
        assert "east" in blocker_text(problem, Blocker(kind, 0))


def test_filter_counts_read_like_a_sentence() -> None:
    counts = FilterCounts(4, 1, {"entry": 1, "residency": 2, "slo": 0})
    assert counts.text() == "4 sites: 1 entry, 2 residency, 1 allowed"
