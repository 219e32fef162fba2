"""Random small placements, every row kind switched on at random, against two independent statements.

``_reference`` writes the model anew in plain tokens/s, without the project's matrix, link rows or units, and
gives it to scipy. ``_by_hand`` tries every combination of whole numbers, checks the hard rules by arithmetic and
leaves only the flows to a linear program.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import scipy.optimize

from solver.child import ChildSolver
from solver.placement import solve_placement
from solver.problem import (
    BurstCover,
    Commodities,
    FlowPromise,
    PlacementProblem,
    Placements,
    Pools,
    ReplicaPromise,
    SiteLimits,
    SiteLossCover,
)
from solver.settings import PlacementSettings

EXACT = PlacementSettings(time_limit_s=20.0, mip_gap=0.0, hysteresis=0.0)
COPY_LOAD_SHARE = 0.1
"""Loading a prewarmed copy costs this share of a replica's start."""
FAST, ALL = 60, 500
MOST_COMBINATIONS = 400


def _small_problem(seed: int) -> PlacementProblem:
    """One to three sites, one or two models and classes, at most six placements of at most three replicas."""
    rng = np.random.default_rng([7, seed])

    def on(chance: float = 0.5) -> bool:
        return bool(rng.random() < chance)

    sites, models, classes = (int(rng.integers(1, top + 1)) for top in (3, 2, 2))
    pool_site = np.concatenate([np.arange(sites), rng.integers(0, sites, int(rng.integers(0, 2)))])
    pools = Pools(pool_site, ("X",) * len(pool_site), rng.integers(1, 7, len(pool_site)).astype(float))
    pairs = [(p, m, k) for p in range(len(pool_site)) for m in range(models) for k in (1, 2) if k <= pools.gpus[p]]
    pairs = [pairs[i] for i in sorted(rng.permutation(len(pairs))[: int(rng.integers(1, 7))].tolist())]
    pool, model, gpus = (np.array(column, dtype=np.int64) for column in zip(*pairs, strict=True))
    count = len(pairs)
    rate = rng.uniform(50, 400, (count, classes)) * gpus[:, None] * (rng.random((count, classes)) < 0.85)
    room = np.minimum(np.floor(pools.gpus[pool] / gpus), 3).astype(np.int64)
    current = rng.integers(0, 3, count) * on(0.6)
    current = np.minimum(current, room)
    for p in range(len(pool_site)):  # what runs fits
        while (gpus * current)[pool == p].sum() > pools.gpus[p]:
            current[np.flatnonzero((pool == p) & (current > 0))[0]] -= 1
    limits = SiteLimits(
        names=tuple(f"s{i}" for i in range(sites)),
        zone=rng.integers(0, 2, sites),
        power_kw=_limit(rng, sites, 1.0, 6.0, on(0.4)),
        ingress_tokens_per_s=_limit(rng, sites, 50, 900, on(0.4)),
        host_memory_gb=_limit(rng, sites, 5, 60, on(0.4)),
        start_budget_gpus=np.floor(_limit(rng, sites, 0, 5, on(0.4))),
    )
    warm = on(0.5)
    power = rng.uniform(0.3, 0.8, count) * gpus
    for s in range(sites):  # and is within the power
        here = pool_site[pool] == s
        limits.power_kw[s] = max(limits.power_kw[s], float((power * current)[here].sum()))
    places = Placements(
        site=pool_site[pool],
        pool=pool,
        model=model,
        config=tuple(f"c{i}" for i in range(count)),
        gpus=gpus,
        power_kw=power,
        weights_gb=rng.uniform(5, 30, count),
        rate=rate,
        mix_rate=rate.mean(axis=1),
        current=current,
        lower=np.minimum(current, 1) * on(0.2),
        upper=np.maximum(room, current),
        start_cost=rng.uniform(0, 60, count) * on(0.7),
        prewarm_limit=(rng.integers(0, 3, count) if warm else np.zeros(count, dtype=np.int64)),
        prewarm_current=rng.integers(0, 2, count),
    )
    jobs = _small_jobs(rng, sites, models, classes)
    wide = float(jobs.width.sum())
    promises: dict[str, Any] = {}
    if on(0.4):
        chosen = np.sort(rng.permutation(count)[: int(rng.integers(1, count + 1))])
        promises["replica_promises"] = (ReplicaPromise("r", chosen, int(rng.integers(1, 4)), 1e5),)
    if on(0.4):
        chosen = np.sort(rng.permutation(len(jobs))[: int(rng.integers(1, len(jobs) + 1))])
        promises["flow_promises"] = (FlowPromise("f", chosen, rng.random(sites) < 0.7, 0.3 * wide, 50.0),)
    if on(0.4):
        promises["covers"] = (SiteLossCover("m0", 0, float(rng.uniform(50, 500)), 300.0),)
    if warm:
        promises["bursts"] = tuple(
            BurstCover(m, z, float(rng.uniform(50, 400)), float(rng.uniform(0.05, 1)))
            for m in range(models)
            for z in range(2)
        )
    share = float(rng.choice([0.0, 0.25, 0.5]))
    names = tuple(f"m{m}" for m in range(models)), tuple(f"k{c}" for c in range(classes))
    return PlacementProblem(
        limits, pools, places, jobs, *names, **promises, prewarm_gpu_share=share, gpu_price=0.01
    )


def _limit(rng: np.random.Generator, count: int, low: float, high: float, used: bool) -> Any:
    return (
        np.where(rng.random(count) < 0.8, rng.uniform(low, high, count), np.inf)
        if used
        else np.full(count, np.inf)
    )


def _small_jobs(rng: np.random.Generator, sites: int, models: int, classes: int) -> Commodities:
    count, segments = int(rng.integers(1, 5)), int(rng.integers(1, 4))
    weight = rng.uniform(0.5, 4, count)
    chance = np.sort(rng.uniform(0, 1, (count, segments)), axis=1)[:, ::-1]
    return Commodities(
        model=rng.integers(0, models, count),
        workload_class=rng.integers(0, classes, count),
        allowed=rng.random((count, sites)) < 0.8,
        entering=rng.choice([0.0, 0.5, 1.0], (count, sites)),
        route_cost=rng.uniform(0, 0.2, (count, sites)) * weight[:, None],
        width=rng.uniform(0, 500, (count, segments)),
        value=chance * weight[:, None],
        weight=weight,
    )


class _Model:
    """max c'v over named variables and rows of {variable: coefficient}."""

    def __init__(self) -> None:
        self.names: dict[Any, int] = {}
        self.worth: list[float] = []
        self.top: list[float] = []
        self.low: list[float] = []
        self.whole: list[bool] = []
        self.rows: list[tuple[dict[Any, float], float, float]] = []

    def variable(self, name: Any, worth: float, top: float, low: float = 0.0, whole: bool = False) -> None:
        self.names[name] = len(self.names)
        self.worth.append(worth)
        self.top.append(top)
        self.low.append(low)
        self.whole.append(whole)

    def row(self, terms: dict[Any, float], low: float, high: float) -> None:
        self.rows.append((terms, low, high))

    def best(self) -> float:
        matrix = np.zeros((len(self.rows), len(self.names)))
        for r, (terms, _, _) in enumerate(self.rows):
            for name, value in terms.items():
                matrix[r, self.names[name]] += value
        low, high = np.array([row[1] for row in self.rows]), np.array([row[2] for row in self.rows])
        found = scipy.optimize.milp(
            -np.array(self.worth),
            constraints=scipy.optimize.LinearConstraint(matrix, low, high),
            bounds=scipy.optimize.Bounds(self.low, self.top),
            integrality=self.whole,
            options={"mip_rel_gap": 0.0},
        )
        return float(-found.fun) if found.success else -np.inf


def _routing(model: _Model, problem: PlacementProblem, stand: Any) -> None:
    """Flows, loads, served segments, ingress and throughput promises; ``stand(i)`` gives terms and a constant."""
    places, jobs, sites = problem.placements, problem.commodities, problem.sites
    into: dict[tuple[int, int, int], dict[Any, float]] = defaultdict(dict)
    entering: dict[int, dict[Any, float]] = defaultdict(dict)
    for j in range(len(jobs)):
        served: dict[Any, float] = {}
        for part, (width, value) in enumerate(zip(jobs.width[j].tolist(), jobs.value[j].tolist(), strict=True)):
            model.variable(("z", j, part), value, width)
            served["z", j, part] = -1.0
        for s in np.flatnonzero(jobs.allowed[j]).tolist():
            model.variable(("y", j, s), -float(jobs.route_cost[j, s]), np.inf)
            served["y", j, s] = 1.0
            into[s, int(jobs.model[j]), int(jobs.workload_class[j])]["y", j, s] = 1.0
            entering[s]["y", j, s] = float(jobs.entering[j, s])
        model.row(served, 0.0, 0.0)
    for i in range(len(places)):
        terms, constant = stand(i)
        use = {name: -count for name, count in terms.items()}
        for c in np.flatnonzero(places.rate[i] > 0).tolist():
            model.variable(("x", i, c), 0.0, np.inf)
            use["x", i, c] = 1.0 / float(places.rate[i, c])
            into[int(places.site[i]), int(places.model[i]), c]["x", i, c] = -1.0
        model.row(use, -np.inf, constant)
    for terms in into.values():
        model.row(terms, 0.0, 0.0)
    for s, terms in entering.items():
        model.row(terms, -np.inf, float(sites.ingress_tokens_per_s[s]))
    for k, promise in enumerate(problem.flow_promises):
        model.variable(("miss flow", k), -promise.penalty, np.inf)
        kept = {
            ("y", int(j), s): 1.0
            for j in promise.commodities
            for s in np.flatnonzero(jobs.allowed[j] & promise.sites).tolist()
        }
        model.row(kept | {("miss flow", k): 1.0}, promise.tokens_per_s, np.inf)


def _reference(problem: PlacementProblem) -> float:
    """The optimum of the problem stated anew, penalties included."""
    places, sites, model = problem.placements, problem.sites, _Model()
    price = problem.gpu_price * places.gpus
    for i in range(len(places)):
        low, high = int(places.lower[i]), int(places.upper[i])
        model.variable(("n", i), -float(price[i]), high, low, whole=True)
        model.variable(("a", i), -float(places.start_cost[i]), np.inf)
        model.row({("a", i): 1.0, ("n", i): -1.0}, -float(places.current[i]), np.inf)
        copy = problem.prewarm_gpu_share * price[i]
        copy += 0.0 if places.prewarm_current[i] else COPY_LOAD_SHARE * places.start_cost[i]
        model.variable(("p", i), -float(copy), int(places.prewarm_limit[i]), whole=True)
    _routing(model, problem, lambda i: ({("n", i): 1.0}, 0.0))
    share = problem.prewarm_gpu_share
    for g, limit in enumerate(problem.pools.gpus.tolist()):
        here = np.flatnonzero(places.pool == g).tolist()
        claim = {("n", i): float(places.gpus[i]) for i in here}
        model.row(claim | {("p", i): share * float(places.gpus[i]) for i in here}, -np.inf, limit)
    for s in range(len(sites.names)):
        here = np.flatnonzero(places.site == s).tolist()
        model.row({("n", i): float(places.power_kw[i]) for i in here}, -np.inf, float(sites.power_kw[s]))
        model.row({("p", i): float(places.weights_gb[i]) for i in here}, -np.inf, float(sites.host_memory_gb[s]))
        model.row({("a", i): float(places.gpus[i]) for i in here}, -np.inf, float(sites.start_budget_gpus[s]))
    for k, promise in enumerate(problem.replica_promises):
        model.variable(("miss", k), -promise.penalty, np.inf)
        kept = {("n", int(i)): 1.0 for i in promise.placements}
        model.row(kept | {("miss", k): 1.0}, promise.replicas, np.inf)
    for k, cover in enumerate(problem.covers):
        model.variable(("miss cover", k), -cover.penalty, np.inf)
        mine = np.flatnonzero(places.model == cover.model).tolist()
        for lost in {int(places.site[i]) for i in mine}:
            left = {("n", i): float(places.mix_rate[i]) for i in mine if places.site[i] != lost}
            model.row(left | {("miss cover", k): 1.0}, cover.tokens_per_s, np.inf)
    for k, burst in enumerate(problem.bursts):
        model.variable(("b", k), burst.value, burst.tokens_per_s)
        mine = np.flatnonzero((places.model == burst.model) & (sites.zone[places.site] == burst.zone)).tolist()
        model.row({("b", k): 1.0} | {("p", i): -float(places.mix_rate[i]) for i in mine}, -np.inf, 0.0)
    return model.best()


def _choices(problem: PlacementProblem) -> Iterator[tuple[Any, Any]]:
    """Every pair of replicas and prewarmed copies within their bounds."""
    places = problem.placements
    boxes = [range(int(low), int(high) + 1) for low, high in zip(places.lower, places.upper, strict=True)]
    boxes += [range(int(limit) + 1) for limit in places.prewarm_limit]
    for choice in itertools.product(*boxes):
        yield np.array(choice[: len(places)]), np.array(choice[len(places) :])


def _fits(problem: PlacementProblem, n: Any, p: Any) -> bool:
    places, sites = problem.placements, problem.sites
    claim = places.gpus * (n + problem.prewarm_gpu_share * p)
    started = places.gpus * np.maximum(n - places.current, 0)
    uses = (
        (places.pool, claim, problem.pools.gpus),
        (places.site, places.power_kw * n, sites.power_kw),
        (places.site, places.weights_gb * p, sites.host_memory_gb),
        (places.site, started, sites.start_budget_gpus),
    )
    return all((np.bincount(at, use, len(limit)) <= limit + 1e-9).all() for at, use, limit in uses)


def _by_hand(problem: PlacementProblem) -> float:
    """The best of all combinations of whole numbers."""
    places, sites = problem.placements, problem.sites
    best = -np.inf
    for n, p in _choices(problem):
        if not _fits(problem, n, p):
            continue
        worth = -problem.gpu_price * float(places.gpus @ (n + problem.prewarm_gpu_share * p))
        worth -= float(places.start_cost @ np.maximum(n - places.current, 0))
        worth -= COPY_LOAD_SHARE * float(places.start_cost @ np.where(places.prewarm_current > 0, 0, p))
        capacity = places.mix_rate * n
        for burst in problem.bursts:
            here = (places.model == burst.model) & (sites.zone[places.site] == burst.zone)
            worth += burst.value * min(burst.tokens_per_s, float((places.mix_rate * p)[here].sum()))
        for promise in problem.replica_promises:
            worth -= promise.penalty * max(promise.replicas - int(n[promise.placements].sum()), 0)
        for cover in problem.covers:
            mine = places.model == cover.model
            left = [float(capacity[mine & (places.site != s)].sum()) for s in set(places.site[mine].tolist())]
            worth -= cover.penalty * max(cover.tokens_per_s - min(left), 0.0) if left else 0.0
        model = _Model()
        _routing(model, problem, lambda i, n=n: ({}, float(n[i])))
        best = max(best, worth + model.best())
    return best


@pytest.fixture(scope="module")
def child() -> Iterator[ChildSolver]:
    with ChildSolver() as solver:
        yield solver


def _combinations(problem: PlacementProblem) -> int:
    places = problem.placements
    return int(np.prod(places.upper - places.lower + 1) * np.prod(places.prewarm_limit + 1))


def _check(seed: int, child: ChildSolver) -> None:
    problem = _small_problem(seed)
    found = solve_placement(problem, EXACT, solve=child)
    wanted = _reference(problem)
    close = pytest.approx(wanted, rel=1e-6, abs=1e-3)
    assert found.net(problem) == close, f"seed {seed}"
    assert found.bound - found.misses.penalty(problem) >= wanted - 1e-3 - 1e-6 * abs(wanted)
    if _combinations(problem) <= MOST_COMBINATIONS:
        assert _by_hand(problem) == close, f"seed {seed}"


@pytest.mark.parametrize("seed", range(FAST))
def test_the_solver_finds_the_optimum_of_an_independent_model(seed: int, child: ChildSolver) -> None:
    """F089: two backends and brute force agree on random small problems."""
    _check(seed, child)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(FAST, ALL))
def test_the_solver_finds_the_optimum_of_an_independent_model_more_seeds(seed: int, child: ChildSolver) -> None:
    """F089: the rest of the 500."""
    _check(seed, child)


def test_the_problems_use_every_kind_of_row_and_brute_force_sees_many_of_them() -> None:
    problems = [_small_problem(seed) for seed in range(FAST)]
    assert sum(_combinations(problem) <= MOST_COMBINATIONS for problem in problems) >= FAST // 3
    for name in ("replica_promises", "flow_promises", "covers", "bursts"):
        assert sum(bool(getattr(problem, name)) for problem in problems) >= 10, name
    for name in ("power_kw", "ingress_tokens_per_s", "host_memory_gb", "start_budget_gpus"):
        assert sum(bool(np.isfinite(getattr(p.sites, name)).any()) for p in problems) >= 10, name
    assert sum(bool(p.placements.current.any()) for p in problems) >= 10
    assert sum(p.commodities.width.shape[1] > 1 for p in problems) >= 10
