"""Turns a placement problem into a linear model: the rows (1)–(11) of ``docs/formulation.md``.

Flows are in thousands of output tokens/s here, and so is the objective; everything outside uses tokens/s.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from data.types import FloatArray, IntArray
from solver.linear import LinearModel
from solver.problem import PlacementProblem
from solver.rows import RowBlocks, Term

PREWARM_START_SHARE = 0.1
"""Cost of loading a prewarmed copy into host memory, as a share of a replica's start."""
FLOW_UNIT = 1000.0
"""Tokens/s in one unit of flow of the model: keeps coefficients within a few orders of magnitude."""


BLOCKS = (
    *("replicas", "starts", "prewarmed", "loads", "flows", "served", "bursts", "totals"),
    *("missed_replicas", "missed_flows", "missed_covers"),
)
"""Kinds of variables in the order of their columns."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Where each kind of variable stands, and the index lists that its columns follow."""

    replicas: slice
    starts: slice
    prewarmed: slice
    loads: slice
    flows: slice
    served: slice
    bursts: slice
    totals: slice
    missed_replicas: slice
    missed_flows: slice
    missed_covers: slice
    count: int
    load_place: IntArray
    load_class: IntArray
    flow_job: IntArray
    flow_site: IntArray
    warm_place: IntArray


@dataclass(frozen=True, slots=True)
class PlacementMatrix:
    """The model with the maps needed to read its solution back."""

    model: LinearModel
    columns: Columns
    rows: dict[str, slice]


@dataclass(frozen=True, slots=True)
class _Index:
    """Keys (site, model, class) that carry flow, and where each load and flow column belongs."""

    keys: IntArray
    load_key: IntArray
    flow_key: IntArray
    demand: FloatArray
    """Most that may flow at each key, in model units (D^max)."""


def build_matrix(problem: PlacementProblem, *, link: bool = True) -> PlacementMatrix:
    """The whole model; ``link=False`` leaves out rows (4), which only tighten the relaxation."""
    columns, index = _columns(problem)
    rows = RowBlocks()
    _demand_rows(problem, columns, rows)
    _balance_rows(columns, index, rows)
    _load_rows(problem, columns, rows)
    if link:
        _link_rows(problem, columns, index, rows)
    _resource_rows(problem, columns, rows)
    _prewarm_rows(problem, columns, rows)
    _start_rows(problem, columns, rows)
    _promise_rows(problem, columns, rows)
    _site_loss_rows(problem, columns, rows)
    matrix, row_lower, row_upper = rows.finish(columns.count)
    lower, upper = _bounds(problem, columns, index)
    integer = np.zeros(columns.count, dtype=bool)
    integer[columns.replicas] = True
    integer[columns.prewarmed] = True
    model = LinearModel(_objective(problem, columns), matrix, row_lower, row_upper, lower, upper, integer)
    return PlacementMatrix(model, columns, rows.spans)


def _columns(problem: PlacementProblem) -> tuple[Columns, _Index]:
    places, jobs = problem.placements, problem.commodities
    models, classes = len(problem.models), len(problem.classes)
    load_place, load_class = np.nonzero(places.rate > 0)
    flow_job, flow_site = np.nonzero(jobs.allowed)
    load_key = (places.site[load_place] * models + places.model[load_place]) * classes + load_class
    flow_key = (flow_site * models + jobs.model[flow_job]) * classes + jobs.workload_class[flow_job]
    # A flow without a placement that can carry it, and a load without a flow, are no columns at all.
    able = np.isin(flow_key, load_key)
    flow_job, flow_site, flow_key = flow_job[able], flow_site[able], flow_key[able]
    wanted = np.isin(load_key, flow_key)
    load_place, load_class, load_key = load_place[wanted], load_class[wanted], load_key[wanted]
    keys = np.unique(flow_key)
    flow_at = np.searchsorted(keys, flow_key)
    demand = jobs.width.sum(axis=1) / FLOW_UNIT
    index = _Index(
        keys,
        np.searchsorted(keys, load_key),
        flow_at,
        np.bincount(flow_at, demand[flow_job], len(keys)).astype(np.float64),
    )
    warm_place = np.flatnonzero(places.prewarm_limit > 0)
    sizes = (
        len(places),
        len(places),
        len(warm_place),
        len(load_place),
        len(flow_job),
        jobs.width.size,
        len(problem.bursts),
        len(problem.covers),
        len(problem.replica_promises),
        len(problem.flow_promises),
        len(problem.covers),
    )
    ends = np.cumsum(sizes).tolist()
    spans = {n: slice(end - size, end) for n, end, size in zip(BLOCKS, ends, sizes, strict=True)}
    return (
        Columns(
            **spans,
            count=ends[-1],
            load_place=load_place,
            load_class=load_class,
            flow_job=flow_job,
            flow_site=flow_site,
            warm_place=warm_place,
        ),
        index,
    )


def _at(span: slice) -> IntArray:
    return np.arange(span.start, span.stop, dtype=np.int64)


def _demand_rows(problem: PlacementProblem, columns: Columns, rows: RowBlocks) -> None:
    """(1) Σ_s y_js = Σ_l z_jl."""
    jobs, segments = problem.commodities.width.shape
    flows: Term = (columns.flow_job, _at(columns.flows), 1.0)
    served: Term = (np.repeat(np.arange(jobs), segments), _at(columns.served), -1.0)
    rows.add("demand", jobs, [flows, served], 0.0, 0.0)


def _balance_rows(columns: Columns, index: _Index, rows: RowBlocks) -> None:
    """(2) Σ_j y_js = Σ_i x_ic at each (site, model, class)."""
    flows: Term = (index.flow_key, _at(columns.flows), 1.0)
    loads: Term = (index.load_key, _at(columns.loads), -1.0)
    rows.add("balance", len(index.keys), [flows, loads], 0.0, 0.0)


def _load_rows(problem: PlacementProblem, columns: Columns, rows: RowBlocks) -> None:
    """(3) Σ_c x_ic / (ρμ)_ic <= n_i."""
    rate = problem.placements.rate[columns.load_place, columns.load_class] / FLOW_UNIT
    loads: Term = (columns.load_place, _at(columns.loads), 1.0 / rate)
    count = len(problem.placements)
    replicas: Term = (np.arange(count), _at(columns.replicas), -1.0)
    rows.add("load", count, [loads, replicas], -np.inf, 0.0)


def _link_rows(problem: PlacementProblem, columns: Columns, index: _Index, rows: RowBlocks) -> None:
    """(4) Σ_j y_js <= Σ_i min((ρμ)_ic, D^max) n_i: implied for whole replicas, not for the relaxation."""
    rate = problem.placements.rate[columns.load_place, columns.load_class] / FLOW_UNIT
    flows: Term = (index.flow_key, _at(columns.flows), 1.0)
    capacity = np.minimum(rate, index.demand[index.load_key])
    replicas: Term = (index.load_key, columns.replicas.start + columns.load_place, -capacity)
    rows.add("link", len(index.keys), [flows, replicas], -np.inf, 0.0)


def _resource_rows(problem: PlacementProblem, columns: Columns, rows: RowBlocks) -> None:
    """(5) GPUs of each pool, (6) power and ingress of each site."""
    places, sites = problem.placements, problem.sites
    warm = columns.warm_place
    claim = problem.prewarm_gpu_share * places.gpus[warm]
    standing: Term = (places.pool, _at(columns.replicas), places.gpus.astype(float))
    prewarmed: Term = (places.pool[warm], _at(columns.prewarmed), claim)
    rows.add("gpus", len(problem.pools.gpus), [standing, prewarmed], -np.inf, problem.pools.gpus)
    power: Term = (places.site, _at(columns.replicas), places.power_kw)
    rows.add("power", len(sites.names), [power], -np.inf, sites.power_kw)
    entering = problem.commodities.entering[columns.flow_job, columns.flow_site]
    ingress: Term = (columns.flow_site, _at(columns.flows), entering)
    rows.add("ingress", len(sites.names), [ingress], -np.inf, sites.ingress_tokens_per_s / FLOW_UNIT)


def _prewarm_rows(problem: PlacementProblem, columns: Columns, rows: RowBlocks) -> None:
    """(7) host memory of each site, (8) burst cover of each (model, zone)."""
    places, sites = problem.placements, problem.sites
    warm = columns.warm_place
    held: Term = (places.site[warm], _at(columns.prewarmed), places.weights_gb[warm])
    rows.add("host_memory", len(sites.names), [held], -np.inf, sites.host_memory_gb)
    terms: list[Term] = [(np.arange(len(problem.bursts)), _at(columns.bursts), 1.0)]
    for row, burst in enumerate(problem.bursts):
        here = np.flatnonzero((places.model[warm] == burst.model) & (sites.zone[places.site[warm]] == burst.zone))
        cover = places.mix_rate[warm[here]] / FLOW_UNIT
        terms.append((np.full(len(here), row), columns.prewarmed.start + here, -cover))
    rows.add("burst", len(problem.bursts), terms, -np.inf, 0.0)


def _start_rows(problem: PlacementProblem, columns: Columns, rows: RowBlocks) -> None:
    """(9) a_i >= n_i − n⁰_i, and GPUs started at each site within its budget."""
    places, sites = problem.placements, problem.sites
    count = np.arange(len(places))
    starts: Term = (count, _at(columns.starts), 1.0)
    replicas: Term = (count, _at(columns.replicas), -1.0)
    rows.add("starts", len(places), [starts, replicas], -places.current.astype(float), np.inf)
    started: Term = (places.site, _at(columns.starts), places.gpus.astype(float))
    rows.add("start_budget", len(sites.names), [started], -np.inf, sites.start_budget_gpus)


def _promise_rows(problem: PlacementProblem, columns: Columns, rows: RowBlocks) -> None:
    """(10) Σ_i n_i + e >= R for replicas, Σ_j Σ_s y_js + e >= R for throughput."""
    promised = problem.replica_promises
    terms: list[Term] = [(np.arange(len(promised)), _at(columns.missed_replicas), 1.0)]
    for row, promise in enumerate(promised):
        terms.append((np.full(len(promise.placements), row), columns.replicas.start + promise.placements, 1.0))
    rows.add("replica_promises", len(promised), terms, [float(p.replicas) for p in promised], np.inf)
    flows = problem.flow_promises
    terms = [(np.arange(len(flows)), _at(columns.missed_flows), 1.0)]
    for row, flow in enumerate(flows):
        counts = np.flatnonzero(np.isin(columns.flow_job, flow.commodities) & flow.sites[columns.flow_site])
        terms.append((np.full(len(counts), row), columns.flows.start + counts, 1.0))
    rows.add("flow_promises", len(flows), terms, [p.tokens_per_s / FLOW_UNIT for p in flows], np.inf)


def _site_loss_rows(problem: PlacementProblem, columns: Columns, rows: RowBlocks) -> None:
    """(11) T_m = Σ_i ρμ n_i;  T_m − Σ_{i at s} ρμ n_i + e >= Cov_m for every site s that may hold m."""
    places, covers = problem.placements, problem.covers
    total: list[Term] = [(np.arange(len(covers)), _at(columns.totals), 1.0)]
    loss: list[Term] = []
    limits: list[float] = []
    for k, cover in enumerate(covers):
        here = np.flatnonzero(places.model == cover.model)
        rate = places.mix_rate[here] / FLOW_UNIT
        total.append((np.full(len(here), k), columns.replicas.start + here, -rate))
        for site in np.unique(places.site[here]):
            row = len(limits)
            inside = places.site[here] == site
            loss.append((np.full(inside.sum(), row), columns.replicas.start + here[inside], -rate[inside]))
            own = np.array([columns.totals.start + k, columns.missed_covers.start + k])
            loss.append((np.full(2, row), own, 1.0))
            limits.append(cover.tokens_per_s / FLOW_UNIT)
    rows.add("site_loss_total", len(covers), total, 0.0, 0.0)
    rows.add("site_loss", len(limits), loss, limits, np.inf)


def _bounds(problem: PlacementProblem, columns: Columns, index: _Index) -> tuple[FloatArray, FloatArray]:
    """Every column between finite limits: what demand, pools and promises allow."""
    places, jobs = problem.placements, problem.commodities
    lower, upper = np.zeros(columns.count), np.zeros(columns.count)
    lower[columns.replicas] = places.lower
    upper[columns.replicas] = places.upper
    upper[columns.starts] = np.maximum(places.upper - places.current, 0)
    upper[columns.prewarmed] = places.prewarm_limit[columns.warm_place]
    rate = places.rate[columns.load_place, columns.load_class] / FLOW_UNIT
    upper[columns.loads] = np.minimum(rate * places.upper[columns.load_place], index.demand[index.load_key])
    upper[columns.flows] = (jobs.width.sum(axis=1) / FLOW_UNIT)[columns.flow_job]
    upper[columns.served] = jobs.width.ravel() / FLOW_UNIT
    upper[columns.bursts] = [b.tokens_per_s / FLOW_UNIT for b in problem.bursts]
    capacity = np.bincount(places.model, places.mix_rate * places.upper, len(problem.models)) / FLOW_UNIT
    upper[columns.totals] = [capacity[c.model] for c in problem.covers]
    upper[columns.missed_replicas] = [float(p.replicas) for p in problem.replica_promises]
    upper[columns.missed_flows] = [p.tokens_per_s / FLOW_UNIT for p in problem.flow_promises]
    upper[columns.missed_covers] = [c.tokens_per_s / FLOW_UNIT for c in problem.covers]
    return lower, upper


def _objective(problem: PlacementProblem, columns: Columns) -> FloatArray:
    places, jobs = problem.placements, problem.commodities
    worth = np.zeros(columns.count)
    worth[columns.replicas] = -problem.gpu_price * places.gpus / FLOW_UNIT
    worth[columns.starts] = -places.start_cost / FLOW_UNIT
    warm = columns.warm_place
    claim = problem.gpu_price * problem.prewarm_gpu_share * places.gpus[warm]
    # A copy that does not stand yet must be loaded: without a price on that, copies would wander between equals.
    load = np.where(places.prewarm_current[warm] > 0, 0.0, PREWARM_START_SHARE * places.start_cost[warm])
    worth[columns.prewarmed] = -(claim + load) / FLOW_UNIT
    worth[columns.flows] = -jobs.route_cost[columns.flow_job, columns.flow_site]
    worth[columns.served] = jobs.value.ravel()
    worth[columns.bursts] = [b.value for b in problem.bursts]
    worth[columns.missed_replicas] = [-p.penalty / FLOW_UNIT for p in problem.replica_promises]
    worth[columns.missed_flows] = [-p.penalty for p in problem.flow_promises]
    worth[columns.missed_covers] = [-c.penalty for c in problem.covers]
    return worth
