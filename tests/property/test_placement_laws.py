"""Laws of planning in parts, on random problems: bounds are bounds, a search never falls, every plan is sound."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.placement_document import RandomCatalog, document_of, fleet_of
from solver.backends import solve_here
from solver.block_search import BlockSearch, search_blocks
from solver.greedy import greedy_placement
from solver.groups import cut_by_model
from solver.instances import InstanceSize, random_problem
from solver.keep import keep_running
from solver.linear import SolveLimits
from solver.matrix import FLOW_UNIT, build_matrix
from solver.outlook import outlook_at_prices
from solver.placement import solve_placement
from solver.problem import PlacementProblem
from solver.redirect import redirect_flows
from solver.settings import PlacementSettings
from solver.solution import solution_values
from solver.verify import verify_plan

FEW = settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
IN_PARTS = PlacementSettings(
    direct_integers=0,
    deterministic=True,
    block_tries=4,
    block_nodes=3,
    block_size=2,
    mip_gap=0.005,
    hysteresis=0.0,
)
SEEDS = st.integers(0, 10_000)
LOADS = st.sampled_from([0.5, 1.0, 2.0])


def _problem(seed: int, load: float, running: float = 0.0) -> PlacementProblem:
    rng = np.random.default_rng(seed)
    size = InstanceSize(
        int(rng.integers(3, 5)), int(rng.integers(2, 7)), load=load, nodes=(1, 4), running_share=running
    )
    return random_problem(size, seed)


@FEW
@given(SEEDS, LOADS)
def test_every_plan_passes_the_independent_checker_and_stays_below_its_bound(seed: int, load: float) -> None:
    problem = _problem(seed, load)
    found = solve_placement(problem, IN_PARTS, solve=solve_here)
    plan, certificate = document_of(problem, found)
    assert verify_plan(plan, fleet_of(problem), RandomCatalog(problem), load=certificate) == []
    assert found.value <= found.bound
    whole = solve_here(build_matrix(problem).model, SolveLimits(5.0, relative_gap=0.01, node_limit=50))
    if whole.status.has_solution:
        net = build_matrix(problem).model.value(whole.values) * FLOW_UNIT
        assert net <= (found.bound - found.misses.penalty(problem)) * (1 + 1e-6) + 1e-3


@FEW
@given(SEEDS, LOADS, st.sampled_from([0.3, 0.8]))
def test_a_plan_is_never_worth_less_than_the_running_one(seed: int, load: float, running: float) -> None:
    problem = _problem(seed, load, running)
    built = build_matrix(problem)
    kept = keep_running(problem, built, solve_here, SolveLimits(10.0))
    found = solve_placement(problem, IN_PARTS, solve=solve_here)
    assert found.net(problem) >= kept.net(problem) - 1e-6 * (1 + abs(kept.net(problem)))
    assert built.model.residual(solution_values(problem, built, found)) < 1e-5


@FEW
@given(SEEDS, LOADS)
def test_the_search_never_falls_below_its_start_and_obeys_every_row(seed: int, load: float) -> None:
    problem = _problem(seed, load)
    built = build_matrix(problem)
    groups = cut_by_model(problem, built)
    _, priced = outlook_at_prices(problem, built, groups)
    start = solution_values(problem, built, greedy_placement(problem, built))
    worths: list[float] = []

    def limits(state: BlockSearch) -> SolveLimits | None:
        worths.append(state.objective)
        return SolveLimits(5.0, relative_gap=0.02, node_limit=3) if state.tries < 4 else None

    state = search_blocks(groups, priced, start, [solve_here], limits, 3, np.random.default_rng(seed))
    assert worths == sorted(worths)
    assert state.objective >= built.model.value(start)
    assert built.model.residual(state.values) < 1e-5
    assert state.objective <= priced.bound().value + 1e-6


@FEW
@given(SEEDS, LOADS, st.floats(0.2, 3.0))
def test_redirected_traffic_stays_within_rights_demand_and_capacity(seed: int, load: float, surge: float) -> None:
    problem = _problem(seed, load)
    replicas = greedy_placement(problem, build_matrix(problem)).replicas
    jobs = problem.commodities
    live = replace(problem, commodities=replace(jobs, width=jobs.width * surge))
    found = redirect_flows(live, replicas, solve_here, SolveLimits(20.0))
    assert found is not None
    assert (found.flows[~jobs.allowed] == 0).all()
    assert (found.shares.sum(axis=1) <= 1 + 1e-6).all()
    rate = problem.placements.rate
    used = np.divide(found.loads, rate, out=np.zeros_like(rate), where=rate > 0).sum(axis=1)
    assert (used <= replicas + 1e-5).all()
    stand = np.zeros((len(problem.sites.names), len(problem.models)), dtype=bool)
    stand[problem.placements.site[replicas > 0], problem.placements.model[replicas > 0]] = True
    assert not found.flows[~stand[:, jobs.model].T].any()
