"""Prices of GPUs and power without a linear program: the dual of the plain relaxation in closed form.

At prices π a replica at placement i costs the rent r_i = gpus_i π_pool + power_i π_site + its start and GPU worth,
so a token of commodity j costs at least c_j = min_i { r_i / rate_i + the way there }, and

    (25) best plan <=  π b + Σ_jl Δ_jl max(value_jl − c_j, 0) + Σ bursts less the cheapest copies

for any π >= 0: what (25) leaves out (promises, counts of replicas, whole numbers) only makes plans worth less. The
right side is convex in π; it is minimised with smoothed minima made sharper step by step, then taken as it is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.optimize
import scipy.special

from data.types import FloatArray, IntArray
from solver.matrix import PREWARM_START_SHARE
from solver.merge import merge_by_reach
from solver.problem import BoolArray, PlacementProblem

SHARPNESS = (0.1, 0.03, 0.01, 0.003, 0.001)
"""Widths of the smoothed minima, as shares of the worth of a commodity's best token."""
STEPS = 200
"""Most evaluations by the minimiser for each width."""


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices and what each model can be worth at them.

    Attributes:
        gpus, power: Value-weighted tokens/s that one GPU of each pool and one kW at each site cost.
        limit: Shape (M,): no choice of a model is worth more at these prices, value-weighted tokens/s.
        bound: (25).
    """

    gpus: FloatArray
    power: FloatArray
    limit: FloatArray
    bound: float


@dataclass(frozen=True, slots=True)
class _Market:
    """Commodities that something may serve, with one arc for each placement that may, sorted by commodity.

    The resources are the GPUs of the pools, then the power of the sites.
    """

    model: IntArray
    width: FloatArray
    value: FloatArray
    first: IntArray
    """Where the arcs of each commodity begin."""
    job: IntArray
    pool: IntArray
    site: IntArray
    """Of each arc; a site counts as a resource number."""
    fixed: FloatArray
    """Cost of a token on each arc that no price changes."""
    gpus: FloatArray
    kw: FloatArray
    """What a token/s takes on each arc."""
    room: FloatArray
    """Of each resource; 0 where there is no limit."""
    priced: BoolArray
    """Resources with a limit."""


def search_prices(problem: PlacementProblem) -> Prices:
    """Near-best prices; the same ones for the same problem."""
    market = _market(problem)
    pools = len(problem.pools.gpus)
    scale = float((market.width * market.value).sum()) / max(float(market.room[:pools].sum()), 1.0)
    x = np.where(market.priced & (np.arange(len(market.room)) < pools), 0.5, 0.0)
    if len(market.job) and scale > 0:
        bounds = [(0.0, None if able else 0.0) for able in market.priced.tolist()]
        for width in SHARPNESS:
            x = scipy.optimize.minimize(
                _smooth_bound,
                x,
                args=(market, scale, width),
                jac=True,
                # Not L-BFGS-B: its tiny matrix calls wait for the threads of a busy machine.
                method="TNC",
                bounds=bounds,
                options={"maxfun": STEPS},
            ).x
    prices = x * scale
    limit = _served_limits(market, prices, len(problem.models)) + _burst_limits(problem, prices)
    return Prices(prices[:pools], prices[pools:], limit, float(prices @ market.room) + float(limit.sum()))


def _market(problem: PlacementProblem) -> _Market:
    places, jobs = problem.placements, merge_by_reach(problem).problem.commodities
    models = len(problem.models)
    pairs = [(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))]
    for mine, at in zip(_members(jobs.model, models), _members(places.model, models), strict=True):
        able = jobs.allowed[np.ix_(mine, places.site[at])]
        row, column = np.nonzero(able & (places.rate[np.ix_(at, jobs.workload_class[mine])].T > 0))
        pairs.append((mine[row], at[column]))
    job, place = (np.concatenate(part) for part in zip(*pairs, strict=True))
    order = np.argsort(job, kind="stable")
    job, place = job[order], place[order]
    kept, job_number = np.unique(job, return_inverse=True)
    replicas = 1.0 / places.rate[place, jobs.workload_class[job]]
    start = np.where(places.current > 0, 0.0, places.start_cost) + problem.gpu_price * places.gpus
    limits = np.r_[problem.pools.gpus, problem.sites.power_kw]
    return _Market(
        model=jobs.model[kept],
        width=jobs.width[kept],
        value=jobs.value[kept],
        first=np.searchsorted(job_number, np.arange(len(kept))),
        job=job_number,
        pool=places.pool[place],
        site=len(problem.pools.gpus) + places.site[place],
        fixed=start[place] * replicas + jobs.route_cost[job, places.site[place]],
        gpus=places.gpus[place] * replicas,
        kw=places.power_kw[place] * replicas,
        room=np.where(np.isfinite(limits), limits, 0.0),
        priced=np.isfinite(limits),
    )


def _members(model: IntArray, count: int) -> list[IntArray]:
    """Numbers of the entries of each model, rising."""
    order = np.argsort(model, kind="stable")
    return np.split(order, np.searchsorted(model[order], np.arange(1, count)))


def _costs(market: _Market, prices: FloatArray) -> FloatArray:
    """Cost of a token on each arc."""
    costs: FloatArray = market.fixed + market.gpus * prices[market.pool] + market.kw * prices[market.site]
    return costs


def _burst_limits(problem: PlacementProblem, prices: FloatArray) -> FloatArray:
    """Shape (M,): what each model's bursts are worth at most, covered by the cheapest copies of their zone."""
    places, zone = problem.placements, problem.sites.zone[problem.placements.site]
    fresh = np.where(places.prewarm_current > 0, 0.0, PREWARM_START_SHARE * places.start_cost)
    claim = problem.prewarm_gpu_share * places.gpus * (problem.gpu_price + prices[places.pool])
    limit = np.zeros(len(problem.models))
    able = (places.prewarm_limit > 0) & (places.mix_rate > 0)
    for burst in problem.bursts:
        here = np.flatnonzero(able & (places.model == burst.model) & (zone == burst.zone))
        if len(here):
            cost = float(((claim + fresh)[here] / places.mix_rate[here]).min())
            room = float((places.prewarm_limit * places.mix_rate)[here].sum())
            limit[burst.model] += min(burst.tokens_per_s, room) * max(burst.value - cost, 0.0)
    return limit


def _served_limits(market: _Market, prices: FloatArray, models: int) -> FloatArray:
    """Shape (M,): Σ Δ max(value − c, 0) of each model's commodities."""
    limit = np.zeros(models)
    if len(market.job):
        cheapest = np.minimum.reduceat(_costs(market, prices), market.first)
        worth = (market.width * np.maximum(market.value - cheapest[:, None], 0.0)).sum(axis=1)
        limit += np.bincount(market.model, worth, models)
    return limit


def _smooth_bound(x: FloatArray, market: _Market, scale: float, width: float) -> tuple[float, FloatArray]:
    """(25) with smoothed minima, and its gradient; in units of ``scale``."""
    costs = _costs(market, x * scale)
    heat = width * market.value.max(axis=1)
    heat = np.maximum(heat, 1e-12 * (1.0 + heat.max()))
    cheapest = np.minimum.reduceat(costs, market.first)
    weight = np.exp(-(costs - cheapest[market.job]) / heat[market.job])
    total = np.add.reduceat(weight, market.first)
    cost = cheapest - heat * np.log(total)
    z = (market.value - cost[:, None]) / heat[:, None]
    surplus = market.width * heat[:, None] * np.logaddexp(0.0, z)
    taken = (market.width * scipy.special.expit(z)).sum(axis=1)
    flow = weight / total[market.job] * taken[market.job]
    used = np.bincount(market.pool, flow * market.gpus, len(market.room))
    used += np.bincount(market.site, flow * market.kw, len(market.room))
    return float(market.room @ x) + float(surplus.sum()) / scale, market.room - used
