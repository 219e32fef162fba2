"""Demand as the commodities of the placement problem: budgets applied, like tenants grouped, quantiles cut up."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from data.fleet.types import Fleet, Reservation, Tenant
from data.types import FloatArray
from planner.demand import LEVELS, MEDIAN, DemandRow, DemandTable, merge_quantiles
from planner.settings import PlannerSettings
from planner.token_value import token_worth

SEGMENTS = len(LEVELS) + 1
"""One a quantile, and one without value for capacity that is promised beyond the demand."""


@dataclass(frozen=True, slots=True)
class Job:
    """One commodity: demand of like tenants for a model and class from one origin.

    Attributes:
        tenants: Members; alike in rights, tier and weight, or a single one that was promised something.
        rows: The members' demand, within their budgets.
        quantiles: Of the sum.
        worth: Of a token.
        reserve: Output tokens/s promised beyond the forecast.
    """

    model: str
    workload_class: str
    origin: str
    tenants: tuple[str, ...]
    rows: tuple[DemandRow, ...]
    quantiles: tuple[float, ...]
    worth: float
    reserve: float = 0.0

    @property
    def median(self) -> float:
        """Sum of the members' median forecasts: what traffic shares refer to."""
        return sum(row.median for row in self.rows)


@dataclass(frozen=True, slots=True)
class CappedDemand:
    """Demand of a tenant above its own budget: refused at admission, so not planned for."""

    tenant: str
    tokens_per_s: float


def within_budgets(fleet: Fleet, demand: DemandTable) -> tuple[list[DemandRow], list[CappedDemand]]:
    """Demand cut to each tenant's budgets of tokens/s and requests/s, every commodity by the same factor."""
    by_tenant: dict[str, list[DemandRow]] = defaultdict(list)
    for row in demand.rows:
        by_tenant[row.tenant].append(row)
    kept: list[DemandRow] = []
    capped: list[CappedDemand] = []
    for name, rows in sorted(by_tenant.items()):
        factors = _budget_factors(fleet, fleet.tenant(name), rows)
        lost = (1 - factors[MEDIAN]) * sum(row.median for row in rows)
        if lost > 0:
            capped.append(CappedDemand(name, lost))
        for row in rows:
            scaled = np.maximum.accumulate([q * f for q, f in zip(row.quantiles, factors, strict=True)])
            kept.append(replace(row, quantiles=tuple(scaled.tolist())))
    return kept, capped


def _budget_factors(fleet: Fleet, tenant: Tenant, rows: Sequence[DemandRow]) -> tuple[float, ...]:
    """Share of the tenant's demand within its budgets, at each quantile level."""
    factors = np.ones(len(LEVELS))
    tokens = np.array([row.quantiles for row in rows]).sum(axis=0)
    if tenant.tokens_per_s_budget is not None:
        factors = np.minimum(factors, tenant.tokens_per_s_budget / np.maximum(tokens, 1e-12))
    if tenant.requests_per_s_budget is not None:
        lengths = [
            row.output_tokens or float(fleet.workload_class(row.workload_class).expected_output_tokens)
            for row in rows
        ]
        requests = np.array([[q / n for q in row.quantiles] for row, n in zip(rows, lengths, strict=True)]).sum(
            axis=0
        )
        factors = np.minimum(factors, tenant.requests_per_s_budget / np.maximum(requests, 1e-12))
    return tuple(factors.tolist())


def build_jobs(
    fleet: Fleet, rows: Sequence[DemandRow], values: dict[str, float], settings: PlannerSettings
) -> list[Job]:
    """The commodities, in the order of their names."""
    groups: dict[tuple[object, ...], list[DemandRow]] = defaultdict(list)
    for row in [*rows, *_promised_without_demand(fleet, rows)]:
        tenant = fleet.tenant(row.tenant)
        alike = (row.tenant,) if tenant.reservations else _rights(tenant)
        groups[row.model, row.workload_class, row.origin, alike].append(row)
    jobs: list[Job] = []
    for members in groups.values():
        ordered = tuple(sorted(members, key=lambda row: row.key))
        first = ordered[0]
        tenant, kind = fleet.tenant(first.tenant), fleet.workload_class(first.workload_class)
        jobs.append(
            Job(
                first.model,
                first.workload_class,
                first.origin,
                tuple(row.tenant for row in ordered),
                ordered,
                merge_quantiles([row.quantiles for row in ordered], settings.merge_correlation),
                token_worth(tenant, kind, values[first.model], settings),
            )
        )
    jobs.sort(key=lambda job: (job.model, job.workload_class, job.origin, job.tenants))
    return _with_reserves(fleet, jobs)


def _rights(tenant: Tenant) -> tuple[object, ...]:
    """What must be equal for two tenants to share a commodity without any loss."""
    return (
        tenant.tier,
        tenant.weight,
        tuple(sorted(tenant.residency_zones)),
        tuple(sorted(tenant.models)),
        tuple(sorted(tenant.sites)),
    )


def promised_rates(fleet: Fleet) -> list[tuple[Tenant, Reservation]]:
    """Every promise of throughput, in the order of the tenants' names."""
    return [
        (tenant, promise)
        for tenant in sorted(fleet.tenants, key=lambda t: t.name)
        for promise in tenant.reservations
        if promise.tokens_per_s > 0
    ]


def _promised_without_demand(fleet: Fleet, rows: Sequence[DemandRow]) -> list[DemandRow]:
    """Empty rows for promises that nobody uses today: their capacity is still owed."""
    entries = sorted(site.name for site in fleet.sites if site.role == "entry")
    origin = entries[0] if entries else min(site.name for site in fleet.sites)
    known = {(row.tenant, row.model, row.workload_class) for row in rows}
    added: list[DemandRow] = []
    for tenant, promise in promised_rates(fleet):
        kinds = [promise.workload_class] if promise.workload_class else sorted(k.name for k in fleet.classes)
        if not any((tenant.name, promise.model, kind) in known for kind in kinds):
            row = DemandRow(promise.model, kinds[0], tenant.name, origin, (0.0,) * len(LEVELS))
            known.add((tenant.name, promise.model, kinds[0]))
            added.append(row)
    return added


def jobs_of_promise(jobs: Sequence[Job], tenant: Tenant, promise: Reservation) -> list[int]:
    """Numbers of the commodities whose service counts for a promise of throughput."""
    return [
        j
        for j, job in enumerate(jobs)
        if job.tenants == (tenant.name,)
        and job.model == promise.model
        and promise.workload_class in (None, job.workload_class)
    ]


def _with_reserves(fleet: Fleet, jobs: list[Job]) -> list[Job]:
    """Widen the largest commodity of each promise of throughput to what was promised."""
    for tenant, promise in promised_rates(fleet):
        mine = jobs_of_promise(jobs, tenant, promise)
        forecast = sum(jobs[j].quantiles[-1] + jobs[j].reserve for j in mine)
        if mine and forecast < promise.tokens_per_s:
            widest = max(mine, key=lambda j: (jobs[j].quantiles[-1], -j))
            more = jobs[widest].reserve + promise.tokens_per_s - forecast
            jobs[widest] = replace(jobs[widest], reserve=more)
    return jobs


def value_segments(quantiles: Sequence[float]) -> tuple[FloatArray, FloatArray]:
    """Widths of the demand between its quantiles, and the mean chance that demand reaches into each.

    The chance is that of a demand whose distribution is linear between the quantiles; below the lowest one it
    reaches down by the same factor as from the median to there. It never rises, so the value is concave.
    """
    low, middle = quantiles[0], quantiles[MEDIAN]
    least = low * low / middle if middle > 0 else 0.0
    edges = np.array([0.0, *quantiles])
    tail = 1.0 - np.array(LEVELS)
    chance = np.empty(len(quantiles))
    chance[0] = (least + (low - least) * (1 + tail[0]) / 2) / low if low > 0 else 1.0
    chance[1:] = (tail[:-1] + tail[1:]) / 2
    return np.diff(edges), chance
