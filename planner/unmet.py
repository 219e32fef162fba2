"""What a plan leaves unserved, and why: promises, demand, budgets, and notices for whoever reads the plan."""

from __future__ import annotations

import numpy as np

from data.fleet.types import Fleet, Reservation
from data.plan import UnmetDemand
from data.types import IntArray
from planner.demand import DemandTable
from planner.placement_input import PlacementInput
from planner.plan_rows import served_shares
from solver.explain import Blocker, Explanation, blocker_text, blockers_of
from solver.solution import MISS_TOLERANCE, PlacementSolution

LEAST_MISSING_SHARE = 0.005
"""Demand that is served up to this share counts as met."""
PROMISES = ("reservation", "site_loss")
"""Kinds of unmet rows that are broken promises."""


def unmet_rows(
    fleet: Fleet,
    given: PlacementInput,
    solution: PlacementSolution,
    demand: DemandTable,
    explanation: Explanation | None,
) -> tuple[UnmetDemand, ...]:
    """All of it, promises first."""
    return (
        *_broken(given),
        *_missed_replicas(given, solution, explanation),
        *_missed_flows(given, solution, explanation),
        *_missed_covers(given, solution, explanation),
        *_unserved(fleet, given, solution),
        *_above_budget(given),
        *_notices(given, solution, demand),
    )


def _broken(given: PlacementInput) -> list[UnmetDemand]:
    return [
        UnmetDemand(
            "reservation" if row.tenant else "site_loss",
            row.model,
            row.workload_class,
            row.tenant,
            row.missing,
            row.unit,
            row.reason,
        )
        for row in given.promises.broken
    ]


def _blocked(
    given: PlacementInput, solution: PlacementSolution, options: IntArray, explanation: Explanation | None
) -> str:
    """Resources in the way of these placements: used up in the plan, or priced by the elastic relaxation."""
    problem = given.problem
    found = dict.fromkeys(blockers_of(problem, solution, options))
    pools = {int(p) for p in problem.placements.pool[options]}
    sites = {int(s) for s in problem.placements.site[options]}
    for blocker in explanation.blockers if explanation else ():
        if blocker.index in (pools if blocker.kind == "gpus" else sites):
            found[Blocker(blocker.kind, blocker.index)] = None
    if not found:
        return "no combination of whole replicas fits beside the other promises"
    return "full: " + ", ".join(blocker_text(problem, blocker) for blocker in found)


def _where(given: PlacementInput, promised: Reservation, sites: IntArray) -> str:
    """Where a promise may be kept: the sites that it names, else the zones of those that are permitted."""
    names = sorted(promised.sites) or sorted({given.sites[int(site)].zone for site in sites})
    kind = "site" if promised.sites else "zone"
    return f"{kind}{'s' if len(names) > 1 else ''} {', '.join(names)}"


def _missed_replicas(
    given: PlacementInput, solution: PlacementSolution, explanation: Explanation | None
) -> list[UnmetDemand]:
    rows: list[UnmetDemand] = []
    for k, promise in enumerate(given.problem.replica_promises):
        missing = float(solution.misses.replicas[k])
        if missing <= MISS_TOLERANCE:
            continue
        tenant, promised = given.promises.replica_of[k]
        blocked = _blocked(given, solution, promise.placements, explanation)
        where = _where(given, promised, given.problem.placements.site[promise.placements])
        reason = (
            f"{where}: {missing:g} of {promise.replicas} reserved replicas of {promised.model} missing; {blocked}"
        )
        rows.append(UnmetDemand("reservation", promised.model, "", tenant.name, missing, "replicas", reason))
    return rows


def _missed_flows(
    given: PlacementInput, solution: PlacementSolution, explanation: Explanation | None
) -> list[UnmetDemand]:
    places = given.problem.placements
    rows: list[UnmetDemand] = []
    for k, promise in enumerate(given.problem.flow_promises):
        missing = float(solution.misses.flows[k])
        if missing <= MISS_TOLERANCE * promise.tokens_per_s:
            continue
        tenant, promised = given.promises.flow_of[k]
        options = np.flatnonzero((places.model == given.models.index(promised.model)) & promise.sites[places.site])
        where = _where(given, promised, np.flatnonzero(promise.sites))
        reason = (
            f"{where}: {missing:.0f} of {promise.tokens_per_s:.0f} reserved tokens/s of {promised.model} missing; "
        )
        reason += _blocked(given, solution, options, explanation)
        kind = promised.workload_class or ""
        rows.append(UnmetDemand("reservation", promised.model, kind, tenant.name, missing, "tokens/s", reason))
    return rows


def _missed_covers(
    given: PlacementInput, solution: PlacementSolution, explanation: Explanation | None
) -> list[UnmetDemand]:
    rows: list[UnmetDemand] = []
    for k, cover in enumerate(given.problem.covers):
        missing = float(solution.misses.covers[k])
        if missing > MISS_TOLERANCE * cover.tokens_per_s:
            options = np.flatnonzero(given.problem.placements.model == cover.model)
            reason = f"{missing:.0f} of {cover.tokens_per_s:.0f} would be lost with one site; "
            reason += _blocked(given, solution, options, explanation)
            rows.append(UnmetDemand("site_loss", cover.label, "", "", missing, "tokens/s", reason))
    return rows


def _unserved(fleet: Fleet, given: PlacementInput, solution: PlacementSolution) -> list[UnmetDemand]:
    served = served_shares(given, solution)
    places, jobs = given.problem.placements, given.problem.commodities
    rows: list[UnmetDemand] = []
    for j, job in enumerate(given.jobs):
        if job.median <= 0 or 1 - served[j] <= LEAST_MISSING_SHARE:
            continue
        counts = given.filters.flow_counts(
            fleet.tenant(job.tenants[0]), job.model, fleet.workload_class(job.workload_class), job.origin
        )
        able = places.rate[:, jobs.workload_class[j]] > 0
        options = np.flatnonzero((places.model == jobs.model[j]) & jobs.allowed[j, places.site] & able)
        why = _why_unserved(given, solution, options)
        for row in job.rows:
            missing = float(1 - served[j]) * row.median
            if missing > 0:
                kind = row.workload_class
                reason = f"{why}; {counts.text()}"
                rows.append(UnmetDemand("demand", row.model, kind, row.tenant, missing, "tokens/s", reason))
    return rows


def _why_unserved(given: PlacementInput, solution: PlacementSolution, options: IntArray) -> str:
    """No site, no room anywhere, or room that is worth less than the move it takes."""
    if not len(options):
        return "no site may serve it"
    if any(not blockers_of(given.problem, solution, options[k : k + 1]) for k in range(len(options))):
        return "no better place: another replica is worth less than its start or than the hysteresis"
    return "full: " + ", ".join(
        blocker_text(given.problem, b) for b in blockers_of(given.problem, solution, options)
    )


def _above_budget(given: PlacementInput) -> list[UnmetDemand]:
    reason = "above the tenant's own budget: refused at admission"
    return [
        UnmetDemand("budget", "", "", row.tenant, row.tokens_per_s, "tokens/s", reason) for row in given.capped
    ]


def _notices(given: PlacementInput, solution: PlacementSolution, demand: DemandTable) -> list[UnmetDemand]:
    held = [
        f"{model} has commodities without data: its replicas are held" for model in sorted(demand.held_models())
    ]
    texts = [*given.stock.notes, *held, *_unmentioned(given, demand), *demand.notes, *solution.note]
    return [UnmetDemand("notice", "", "", "", 0.0, "", text) for text in texts]


def _unmentioned(given: PlacementInput, demand: DemandTable) -> list[str]:
    """Running models without a single row: the plan drains them, and whoever forgot them must see why."""
    told = {row.model for row in demand.rows} | demand.held_models()
    places = given.problem.placements
    running = {given.models[m] for m in places.model[places.current > 0].tolist()}
    return [
        f"{model} runs and the demand does not name it: planned as if it had none; "
        "say `missing: true` to hold its replicas"
        for model in sorted(running - told)
    ]
