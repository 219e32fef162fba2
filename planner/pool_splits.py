"""The capacity split of a plan: which part of each pool serves which class, and what each tenant may use of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from data.fleet.types import TIERS, Fleet
from data.plan import PlanDocument, PoolSplit
from data.types import FloatArray, IntArray
from planner.placement_input import PlacementInput
from planner.placement_jobs import promised_rates
from planner.settings import PlannerSettings
from router.slomax.corrections import NEUTRAL, Corrections
from solver.capacity import split_capacity
from solver.capacity_explain import SplitNames, missed_guarantees
from solver.capacity_problem import CapacityPool, CapacityProblem, CapacitySplit
from solver.linear import ModelSolver
from solver.solution import PlacementSolution

MISS_FACTOR = 10.0
"""Worth of a missed guaranteed token, in units of the worth of that token."""
MOVE_SHARE = 1 / 3
"""Share of a pool that may change class in one period."""


@dataclass(frozen=True, slots=True)
class _Line:
    """Demand of one tenant and class for a model at a site."""

    site: int
    model: int
    workload_class: int
    tenant: str
    rate: float
    guarantee: float
    worth: float


def pool_splits(
    fleet: Fleet,
    given: PlacementInput,
    solution: PlacementSolution,
    running: PlanDocument | None,
    settings: PlannerSettings,
    solve: ModelSolver,
    corrections: Corrections = NEUTRAL,
) -> tuple[tuple[PoolSplit, ...], tuple[str, ...]]:
    """Split rows, sorted, and what is to be told about them: trouble of the solver, every missed guarantee.

    ``corrections`` of the feedback bear on the rates of the pools and on the worth of guarantees.

    ``replicas`` of a row counts the replicas that serve the class, shared ones included; ``tokens_per_s`` is what
    the class's part of the pool carries.
    """
    places = np.flatnonzero(solution.replicas > 0)
    lines = _lines(fleet, given, solution)
    pools = tuple(_pool(given, solution, int(i), running, corrections) for i in places)
    problem = _problem(fleet, given, places, pools, lines, corrections)
    split = split_capacity(problem, settings.split, solve)
    return _rows(given, places, pools, lines, split, corrections), _notes(given, places, problem, lines, split)


def _notes(
    given: PlacementInput,
    places: IntArray,
    problem: CapacityProblem,
    lines: Sequence[_Line],
    split: CapacitySplit,
) -> tuple[str, ...]:
    """The solver's trouble, the worth and bound of a split that was not proved, and the missed guarantees."""
    names = SplitNames(
        tuple(_pool_name(given, i) for i in places.tolist()), given.classes, tuple(line.tenant for line in lines)
    )
    unproved = () if split.proved else (f"capacity split: {split.summary()}",)
    missed = tuple(one.text for one in missed_guarantees(problem, split, names))
    return (*split.note, *unproved, *missed)


def _pool_name(given: PlacementInput, i: int) -> str:
    config = given.capacities[i].config
    return f"{given.sites[int(given.problem.placements.site[i])].name}/{config.model}/{config.gpu_type}"


def _lines(fleet: Fleet, given: PlacementInput, solution: PlacementSolution) -> list[_Line]:
    """Planned flow of every (site, model, class, tenant); a guarantee follows the flow over the sites."""
    flows: dict[tuple[int, int, int, str], float] = defaultdict(float)
    worth: dict[tuple[int, int, int, str], float] = {}
    jobs = given.problem.commodities
    for j, job in enumerate(given.jobs):
        total = job.median
        for s in np.flatnonzero(solution.flows[j] > 0).tolist():
            for row in job.rows:
                part = row.median / total if total > 0 else 1.0 / len(job.rows)
                key = (s, int(jobs.model[j]), int(jobs.workload_class[j]), row.tenant)
                flows[key] += part * float(solution.flows[j, s])
                worth[key] = job.worth
    owed: dict[tuple[int, int, int, str], float] = defaultdict(float)
    for tenant, promise in promised_rates(fleet):
        mine = {
            key: rate
            for key, rate in flows.items()
            if key[3] == tenant.name
            and given.models[key[1]] == promise.model
            and promise.workload_class in (None, given.classes[key[2]])
            and (not promise.sites or given.sites[key[0]].name in promise.sites)
        }
        total = sum(mine.values())
        for key, rate in mine.items():
            owed[key] += min(promise.tokens_per_s / total, 1.0) * rate
    return [_Line(*key, rate, min(owed[key], rate), worth[key]) for key, rate in sorted(flows.items()) if rate > 0]


def _parts(replicas: int) -> int:
    """Levels in one replica: small pools are shared out in quarters, larger ones in halves or whole replicas."""
    return 4 if replicas <= 4 else 2 if replicas <= 12 else 1


def _pool(
    given: PlacementInput,
    solution: PlacementSolution,
    i: int,
    running: PlanDocument | None,
    corrections: Corrections,
) -> CapacityPool:
    capacity = given.capacities[i]
    replicas = int(solution.replicas[i])
    parts = _parts(replicas)
    ceiling = capacity.config.load_ceiling
    site = given.sites[int(given.problem.placements.site[i])].name
    config = capacity.config
    factors = [corrections.capacity_of(site, config.model, config.gpu_type, name) for name in given.classes]
    rate = np.array(
        [
            factor * ceiling * capacity.groups[name].table(replicas, parts)
            for factor, name in zip(factors, given.classes, strict=True)
        ]
    )
    levels = replicas * parts
    before = _before(given, i, running)
    if before is None:
        # Nothing is known about the split so far: no change costs anything.
        return CapacityPool(replicas, parts, rate, np.full(len(given.classes), levels), levels)
    current = np.minimum(np.round(before * levels).astype(np.int64), levels)
    return CapacityPool(replicas, parts, rate, current, max(int(levels * MOVE_SHARE), parts))


def _before(given: PlacementInput, i: int, running: PlanDocument | None) -> FloatArray | None:
    """Share of the pool's capacity that each class had in the running plan."""
    if running is None:
        return None
    site = given.sites[int(given.problem.placements.site[i])].name
    config = given.capacities[i].config
    mine = [
        row
        for row in running.splits
        if (row.site, row.model, row.gpu_type) == (site, config.model, config.gpu_type)
    ]
    if not mine:
        return None
    worth = {row.workload_class: row.tokens_per_s / row.correction for row in mine}
    rates = np.array([max(given.capacities[i].rate(name), 1e-9) for name in given.classes])
    time = np.array([worth.get(name, 0.0) for name in given.classes]) / rates
    total = float(time.sum())
    return time / total if total > 0 else np.zeros(len(given.classes))


def _problem(
    fleet: Fleet,
    given: PlacementInput,
    places: IntArray,
    pools: tuple[CapacityPool, ...],
    lines: Sequence[_Line],
    corrections: Corrections,
) -> CapacityProblem:
    table = given.problem.placements
    permitted = np.array(
        [
            [
                table.site[i] == line.site
                and table.model[i] == line.model
                and table.rate[i, line.workload_class] > 0
                for line in lines
            ]
            for i in places
        ],
        dtype=bool,
    ).reshape(len(places), len(lines))
    worth = np.array([line.worth for line in lines])
    return CapacityProblem(
        pools=pools,
        classes=len(given.classes),
        workload_class=np.array([line.workload_class for line in lines], dtype=np.int64),
        tier=np.array([TIERS.index(fleet.tenant(line.tenant).tier) for line in lines], dtype=np.int64),
        permitted=permitted,
        demand=np.array([line.rate for line in lines]),
        guarantee=np.array([line.guarantee for line in lines]),
        weight=worth,
        miss_penalty=MISS_FACTOR * worth,
        debt=np.array([corrections.debt_of(given.classes[line.workload_class], line.tenant) for line in lines]),
    )


def _rows(
    given: PlacementInput,
    places: IntArray,
    pools: tuple[CapacityPool, ...],
    lines: Sequence[_Line],
    split: CapacitySplit,
    corrections: Corrections,
) -> tuple[PoolSplit, ...]:
    """One row a (site, model, GPU type, class); configurations of the same GPU type add up."""
    rows: dict[tuple[str, str, str, str], PoolSplit] = {}
    for p, i in enumerate(places.tolist()):
        config = given.capacities[i].config
        site = given.sites[int(given.problem.placements.site[i])].name
        for c, kind in enumerate(given.classes):
            level = int(split.parts[p, c])
            if level == 0:
                continue
            quota = {
                line.tenant: round(float(split.quota[p, k]), 3)
                for k, line in enumerate(lines)
                if line.workload_class == c and split.quota[p, k] > 0
            }
            carried = float(pools[p].rate[c, level])
            row = PoolSplit(
                site,
                config.model,
                config.gpu_type,
                kind,
                -(-level // pools[p].parts),
                round(carried, 3),
                quota,
                corrections.capacity_of(site, config.model, config.gpu_type, kind),
            )
            key = (site, config.model, config.gpu_type, kind)
            rows[key] = _sum(rows[key], row) if key in rows else row
    return tuple(row for _, row in sorted(rows.items()))


def _sum(first: PoolSplit, second: PoolSplit) -> PoolSplit:
    tenants = sorted({*first.tenant_quota_tokens_per_s, *second.tenant_quota_tokens_per_s})
    quota = {
        name: first.tenant_quota_tokens_per_s.get(name, 0.0) + second.tenant_quota_tokens_per_s.get(name, 0.0)
        for name in tenants
    }
    return replace(
        first,
        replicas=first.replicas + second.replicas,
        tokens_per_s=first.tokens_per_s + second.tokens_per_s,
        tenant_quota_tokens_per_s=quota,
    )
