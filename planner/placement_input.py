"""Builds the placement problem of a fleet: everything the solver sees, and the way back to the fleet's names.

Names are sorted first, so that the order in a fleet file changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from data.fleet.types import Fleet, Placed, Site
from data.types import FloatArray, IntArray
from planner.capacity_table import CapacityTable, ConfigCapacity
from planner.demand import DemandTable
from planner.placement_jobs import SEGMENTS, CappedDemand, Job, build_jobs, value_segments, within_budgets
from planner.placement_promises import Promises, build_promises, burst_covers, prewarm_limits
from planner.settings import PlannerSettings
from planner.site_filters import SiteFilters
from planner.stock import Stock, take_stock
from planner.token_value import model_values
from solver.greedy import running_that_fits
from solver.problem import Commodities, PlacementProblem, Placements, Pools, SiteLimits

SPARE_REPLICAS = 2


@dataclass(frozen=True, slots=True)
class PlacementInput:
    """The problem with what is needed to read its solution in the fleet's terms.

    Attributes:
        problem: What the solver sees.
        sites, models, classes: Names by index.
        jobs: The commodities by index.
        capacities: Capacity of the configuration of each placement.
        promises: Which tenant's promise each promise of the problem is, and those that no placement can keep.
        capped: Demand above the tenants' own budgets.
        filters: Why sites were excluded.
        stock: Pools, frozen places and what stands.
    """

    problem: PlacementProblem
    sites: tuple[Site, ...]
    models: tuple[str, ...]
    classes: tuple[str, ...]
    jobs: tuple[Job, ...]
    capacities: tuple[ConfigCapacity, ...]
    promises: Promises
    capped: tuple[CappedDemand, ...]
    filters: SiteFilters
    stock: Stock


def placement_input(
    fleet: Fleet,
    table: CapacityTable,
    demand: DemandTable,
    running: Iterable[Placed],
    settings: PlannerSettings,
) -> PlacementInput:
    """The placement problem of a fleet and a demand, from what runs now.

    Raises:
        InfeasibleError: ``strict_inventory`` is set and the GPUs under a running replica are unknown.
    """
    sites = tuple(sorted(fleet.sites, key=lambda site: site.name))
    models = tuple(sorted(model.key for model in fleet.models))
    classes = tuple(sorted(kind.name for kind in fleet.classes))
    values = model_values(fleet, table)
    rows, capped = within_budgets(fleet, demand)
    jobs = tuple(build_jobs(fleet, rows, values, settings))
    filters = SiteFilters(fleet, table, settings)
    stock = take_stock(fleet, table, running, demand.held_models(), settings)
    commodities = _commodities(fleet, sites, models, classes, jobs, filters, settings)
    mix = _class_mix(commodities, len(models), len(classes))
    worth = _model_worth(commodities, models, values)
    places = _placements(sites, models, classes, stock, mix, worth, settings)
    promises = build_promises(fleet, sites, models, places, jobs, commodities, filters, settings)
    places = _with_upper(places, commodities, promises, stock)
    places = prewarm_limits(fleet, places, classes, commodities, settings)
    best = places.mix_rate / np.maximum(places.gpus, 1) * worth[places.model] if len(places) else np.zeros(1)
    problem = PlacementProblem(
        _limits(sites),
        _pools(sites, stock),
        places,
        commodities,
        models,
        classes,
        promises.replicas,
        promises.flows,
        promises.covers,
        burst_covers(fleet, sites, commodities, classes, settings),
        settings.prewarm_gpu_share,
        settings.gpu_worth_share * float(best.max(initial=0.0)),
    )
    problem = _holdable(problem)
    return PlacementInput(
        problem, sites, models, classes, jobs, stock.capacities, promises, tuple(capped), filters, stock
    )


def _holdable(problem: PlacementProblem) -> PlacementProblem:
    """Held replicas only as far as today's GPUs and power still carry them: a physical limit beats a hold."""
    places = problem.placements
    lower = np.minimum(places.lower, running_that_fits(problem))
    return replace(problem, placements=replace(places, lower=lower))


def _limits(sites: tuple[Site, ...]) -> SiteLimits:
    zones = sorted({site.zone for site in sites})

    def column(name: str) -> FloatArray:
        given = [getattr(site, name) for site in sites]
        return np.array([np.inf if value is None else float(value) for value in given])

    return SiteLimits(
        names=tuple(site.name for site in sites),
        zone=np.array([zones.index(site.zone) for site in sites], dtype=np.int64),
        power_kw=column("power_kw"),
        ingress_tokens_per_s=column("ingress_tokens_per_s"),
        host_memory_gb=column("host_memory_gb"),
        start_budget_gpus=column("start_budget_gpus"),
    )


def _pools(sites: tuple[Site, ...], stock: Stock) -> Pools:
    at = {site.name: i for i, site in enumerate(sites)}
    return Pools(
        site=np.array([at[site] for site, _ in stock.pools], dtype=np.int64),
        gpu_type=tuple(gpu for _, gpu in stock.pools),
        gpus=np.array([float(stock.gpus[pool]) for pool in stock.pools]),
    )


def _commodities(
    fleet: Fleet,
    sites: tuple[Site, ...],
    models: tuple[str, ...],
    classes: tuple[str, ...],
    jobs: tuple[Job, ...],
    filters: SiteFilters,
    settings: PlannerSettings,
) -> Commodities:
    shape = (len(jobs), len(sites))
    allowed, entering, route = np.zeros(shape, dtype=bool), np.zeros(shape), np.zeros(shape)
    width, value = np.zeros((len(jobs), SEGMENTS)), np.zeros((len(jobs), SEGMENTS))
    for j, job in enumerate(jobs):
        tenant, kind = fleet.tenant(job.tenants[0]), fleet.workload_class(job.workload_class)
        patience = kind.slo.ttft_s or kind.slo.deadline_s or 60.0
        for s, site in enumerate(sites):
            allowed[j, s] = filters.flow(tenant, job.model, kind, job.origin, site) is None
            entering[j, s] = float(job.origin != site.name)
            link = fleet.link(job.origin, site.name)
            if link is not None:
                route[j, s] = settings.route_share * job.worth * min(link.rtt_s / patience, 1.0)
        width[j, :-1], chance = value_segments(job.quantiles)
        width[j, -1] = job.reserve
        value[j, :-1] = job.worth * chance
    return Commodities(
        model=np.array([models.index(job.model) for job in jobs], dtype=np.int64),
        workload_class=np.array([classes.index(job.workload_class) for job in jobs], dtype=np.int64),
        allowed=allowed,
        entering=entering,
        route_cost=route,
        width=width,
        value=value,
        weight=np.array([job.worth for job in jobs]),
    )


def _class_mix(jobs: Commodities, models: int, classes: int) -> FloatArray:
    """Shape (M, C): share of each class in the model's demand; equal shares where there is none."""
    mix = np.zeros((models, classes))
    np.add.at(mix, (jobs.model, jobs.workload_class), jobs.width.sum(axis=1))
    total = mix.sum(axis=1, keepdims=True)
    shares: FloatArray = np.where(total > 0, mix / np.maximum(total, 1e-12), 1.0 / classes)
    return shares


def _model_worth(jobs: Commodities, models: tuple[str, ...], values: dict[str, float]) -> FloatArray:
    """Mean worth of a token of each model's demand; its plain value where there is none."""
    amount = np.bincount(jobs.model, jobs.width.sum(axis=1), len(models))
    worth = np.bincount(jobs.model, jobs.width.sum(axis=1) * jobs.weight, len(models))
    plain = np.array([values[model] for model in models])
    mean: FloatArray = np.where(amount > 0, worth / np.maximum(amount, 1e-12), plain)
    return mean


def _placements(
    sites: tuple[Site, ...],
    models: tuple[str, ...],
    classes: tuple[str, ...],
    stock: Stock,
    mix: FloatArray,
    worth: FloatArray,
    settings: PlannerSettings,
) -> Placements:
    at = {site.name: i for i, site in enumerate(sites)}
    capacities = stock.capacities
    model = np.array([models.index(c.config.model) for c in capacities], dtype=np.int64)
    ceiling = np.array([c.config.load_ceiling for c in capacities])
    rate = np.array([[c.rate(name) for name in classes] for c in capacities]).reshape(
        len(capacities), len(classes)
    )
    rate = rate * ceiling[:, None]
    mix_rate = _mixed_rate(rate, mix[model]) if len(capacities) else np.zeros(0)
    load_s = [
        c.facts.warm_load_s if prewarmed else c.facts.load_s
        for c, prewarmed in zip(capacities, stock.prewarmed.tolist(), strict=True)
    ]
    share_lost = np.minimum(np.array(load_s) / settings.period_s, 1.0)
    count = len(capacities)
    return Placements(
        site=np.array([at[site] for site in stock.sites], dtype=np.int64),
        pool=np.array([stock.pools.index(pool) for pool in stock.place_pool], dtype=np.int64),
        model=model,
        config=tuple(c.config.name for c in capacities),
        gpus=np.array([c.config.tensor_parallel for c in capacities], dtype=np.int64),
        power_kw=np.array([c.power_kw for c in capacities]),
        weights_gb=np.array([c.facts.weights_gb for c in capacities]),
        rate=rate,
        mix_rate=mix_rate,
        current=stock.current,
        lower=stock.lower,
        upper=np.where(stock.frozen, stock.current, stock.room),
        start_cost=worth[model] * mix_rate * share_lost,
        prewarm_limit=np.zeros(count, dtype=np.int64),
        prewarm_current=stock.prewarmed,
    )


def _mixed_rate(rate: FloatArray, mix: FloatArray) -> FloatArray:
    """Output tokens/s at a class mix, from the classes that can be served at all (a harmonic mean)."""
    usable = np.where(rate > 0, mix, 0.0)
    share = usable.sum(axis=1)
    time = np.where(rate > 0, usable / np.maximum(rate, 1e-12), 0.0).sum(axis=1)
    mixed: FloatArray = np.where(time > 0, share / np.maximum(time, 1e-12), rate.max(axis=1, initial=0.0))
    return mixed


def _with_upper(places: Placements, jobs: Commodities, promises: Promises, stock: Stock) -> Placements:
    """Replicas that demand and promises could ever use, at most: keeps the search small."""
    demand = np.zeros((int(places.model.max(initial=0)) + 1, places.rate.shape[1]))
    known = jobs.model < len(demand)
    np.add.at(demand, (jobs.model[known], jobs.workload_class[known]), jobs.width.sum(axis=1)[known])
    per_replica = np.where(places.rate > 0, 1.0 / np.maximum(places.rate, 1e-12), 0.0)
    need = np.ceil((demand[places.model] * per_replica).sum(axis=1)) + SPARE_REPLICAS
    for promise in promises.replicas:
        need[promise.placements] += promise.replicas
    for cover in promises.covers:
        mine = (places.model == cover.model) & (places.mix_rate > 0)
        need[mine] += np.ceil(cover.tokens_per_s / places.mix_rate[mine])
    useful = np.maximum(need.astype(np.int64), places.current)
    upper: IntArray = np.maximum(
        np.where(stock.frozen, places.upper, np.minimum(places.upper, useful)), places.lower
    )
    return replace(places, upper=upper)
