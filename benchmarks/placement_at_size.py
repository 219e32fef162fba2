"""Rows of ``bench_placement`` on large random problems: first plan, next period, redirect program, checker."""

from __future__ import annotations

import resource
import time
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.placement_document import RandomCatalog, document_of, fleet_of
from solver.child import ChildSolver
from solver.greedy import greedy_placement
from solver.instances import InstanceSize, random_problem
from solver.linear import Backend, SolveLimits
from solver.matrix import FLOW_UNIT, build_matrix
from solver.placement import solve_placement
from solver.problem import PlacementProblem
from solver.redirect import redirect_flows
from solver.settings import PlacementSettings
from solver.solution import PlacementSolution
from solver.verify import verify_plan

Row = dict[str, Any]
PROCESSES = 2
MARGIN = 0.97
"""Share of a target's seconds that a solve is given: reading the answer back takes the rest."""
LEAST_BUDGET_GPUS = 16.0
NEXT_LIMIT_S = 5.0
BEST_KNOWN_S = 90.0
REDIRECT_LIMIT_S = 0.4
CHECK_LIMIT_S = 2.0


def row(name: str, value: float, unit: str, target: str, met: bool, reference: float | None = None) -> Row:
    """One row; ``reference`` is the figure that ``value`` is a share of."""
    return {
        "id": f"placement/{name}",
        "area": "placement",
        "value": round(value, 4),
        "unit": unit,
        "reference": None if reference is None else round(reference, 4),
        "ratio": None if not reference else round(value / reference, 4),
        "target": target,
        "met": met,
    }


def _cpu_s() -> float:
    """CPU seconds of this process and of all ended children."""
    times = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(t.ru_utime + t.ru_stime for t in times)


def _peak_gb() -> float:
    """Peak memory of the process tree at most: this process and every solver process at the largest one's peak."""
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    child = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return (own + PROCESSES * child) / 2**20


def first_plan_rows(
    sites: int, models: int, gap: float, limit_s: float, memory_gb: float | None = None
) -> tuple[list[Row], PlacementProblem, PlacementSolution]:
    """A plan from nothing, until the gap to the printed bound is closed or the limit is over."""
    problem = random_problem(InstanceSize(sites, models), 0)
    cpu_s = _cpu_s()
    found = solve_placement(
        problem, PlacementSettings(time_limit_s=MARGIN * limit_s, mip_gap=gap, processes=PROCESSES)
    )
    cpu_s = _cpu_s() - cpu_s
    name = f"{sites}x{models}"
    reached = (found.bound - found.value) / found.bound
    rows = [
        row(f"{name}/time_from_nothing", found.solve_s, "s", f"<= {limit_s:g}", found.solve_s <= limit_s),
        row(f"{name}/cpu_from_nothing", cpu_s, "CPU s", f"<= {2 * limit_s:g}", cpu_s <= 2 * limit_s),
        row(f"{name}/gap", reached, "share of the bound", f"<= {gap:g}", reached <= gap + 1e-4),
    ]
    if memory_gb is not None:
        peak = _peak_gb()
        rows.append(row(f"{name}/peak_memory", peak, "GB", f"<= {memory_gb:g}", peak <= memory_gb))
    return rows, problem, found


def next_period(problem: PlacementProblem, running: PlacementSolution, seed: int) -> PlacementProblem:
    """The problem one period on: demand moved by lognormal 0.2, a tenth of the models x 1.6, starts budgeted."""
    rng = np.random.default_rng(seed)
    jobs, models, sites = problem.commodities, len(problem.models), len(problem.sites.names)
    factor = rng.lognormal(0.0, 0.2, len(jobs))
    factor[np.isin(jobs.model, rng.choice(models, max(1, models // 10), replace=False))] *= 1.6
    gpus = np.bincount(problem.pools.site, problem.pools.gpus, sites)
    return replace(
        problem,
        commodities=replace(jobs, width=jobs.width * factor[:, None]),
        placements=replace(problem.placements, current=running.replicas, prewarm_current=running.prewarmed),
        sites=replace(problem.sites, start_budget_gpus=np.maximum(LEAST_BUDGET_GPUS, 0.25 * gpus)),
    )


def next_period_rows(problem: PlacementProblem, running: PlacementSolution) -> list[Row]:
    """A short solve from the running plan against the best of that and a long one."""
    moved = next_period(problem, running, 99)
    short = PlacementSettings(
        time_limit_s=MARGIN * NEXT_LIMIT_S, mip_gap=0.002, hysteresis=0.0, processes=PROCESSES
    )
    with ChildSolver() as child:
        # A planner that runs has its solver process up.
        child(build_matrix(random_problem(InstanceSize(2, 2), 0)).model, SolveLimits(30.0))
        quick = solve_placement(moved, short, solve=child)
    long = solve_placement(moved, replace(short, time_limit_s=BEST_KNOWN_S))
    best = max(quick.net(moved), long.net(moved))
    share = quick.net(moved) / best
    name = f"{len(problem.sites.names)}x{len(problem.models)}/next_period"
    return [
        row(f"{name}/share_of_best_known", share, "share of the best known", ">= 0.995", share >= 0.995),
        row(f"{name}/time", quick.solve_s, "s", f"<= {NEXT_LIMIT_S:g}", quick.solve_s <= NEXT_LIMIT_S),
    ]


def redirect_rows(sites: int, models: int) -> list[Row]:
    """The redirect program on the greedy's replicas with live demand: median of five."""
    problem = random_problem(InstanceSize(sites, models), 0)
    replicas = greedy_placement(problem, build_matrix(problem)).replicas
    live = next_period(problem, greedy_placement(problem, build_matrix(problem)), 7)
    took: list[float] = []
    with ChildSolver() as child:
        for _ in range(6):
            began = time.perf_counter()
            solved = redirect_flows(live, replicas, child, SolveLimits(20.0)) is not None
            took.append(time.perf_counter() - began if solved else float("inf"))
    # The first call starts the process.
    median = float(np.median(took[1:]))
    return [row(f"{sites}x{models}/redirect", median, "s", f"<= {REDIRECT_LIMIT_S:g}", median <= REDIRECT_LIMIT_S)]


def checker_rows(problem: PlacementProblem, found: PlacementSolution) -> list[Row]:
    """The independent checker on a whole plan: it accepts it, in time, and refuses one replica too many."""
    fleet, catalog = fleet_of(problem), RandomCatalog(problem)
    plan, load = document_of(problem, found)
    began = time.perf_counter()
    violations = verify_plan(plan, fleet, catalog, load=load)
    took = time.perf_counter() - began
    stretched = replace(plan.replicas[0], replicas=plan.replicas[0].replicas + 1000)
    broken = verify_plan(replace(plan, replicas=(stretched, *plan.replicas[1:])), fleet, catalog, load=load)
    name = f"{len(problem.sites.names)}x{len(problem.models)}/checker"
    sound = not violations and any(v.rule == "gpus" for v in broken)
    return [
        row(f"{name}/time", took, "s", f"<= {CHECK_LIMIT_S:g}", took <= CHECK_LIMIT_S),
        row(f"{name}/verdicts", float(sound), "right", "= 1", sound),
    ]


def reference_rows(
    child: ChildSolver, sites: int, models: int, best: PlacementSolution, runs: tuple[tuple[Backend, float], ...]
) -> list[Row]:
    """Other solvers on the whole model, no linking rows, no start: their share of our plan's value."""
    problem = random_problem(InstanceSize(sites, models), 0)
    model = build_matrix(problem, link=False).model
    found: list[Row] = []
    for backend, limit_s in runs:
        began = time.perf_counter()
        answer = child(model, SolveLimits(limit_s, relative_gap=0.01), None, backend)
        took = time.perf_counter() - began
        net = model.value(answer.values) * FLOW_UNIT if answer.status.has_solution else 0.0
        share = net / best.net(problem)
        name = f"{sites}x{models}/{backend}_plain"
        found.append(
            row(f"{name}/share_of_our_plan", share, f"share after {took:.0f} s", "<= 1.01", share <= 1.01)
        )
    return found
