"""Placement and capacity split: time to a proved gap, bounds, the greedy, and one whole planner step.

Ratios are within one run on one machine. Random problems are those of ``solver.instances``.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.placement_at_size import (
    Row,
    checker_rows,
    first_plan_rows,
    next_period_rows,
    redirect_rows,
    reference_rows,
    row,
)
from data.catalog.load import load_catalog
from data.fleet.reference import reference_fleet
from planner.demand_file import read_demand
from planner.service import plan_once
from solver.bounds import linked_lp_bound
from solver.child import ChildSolver
from solver.greedy import greedy_placement
from solver.instances import InstanceSize, random_problem
from solver.linear import SolveLimits
from solver.matrix import FLOW_UNIT, build_matrix
from solver.placement import solve_placement
from solver.settings import PlacementSettings

DEMAND = Path(__file__).parents[1] / "examples" / "demand-four-sites.yaml"
FLEET_LIMIT_S = 10.0
STEP_LIMIT_S = 5.0


def random_rows(child: ChildSolver, seeds: tuple[int, ...]) -> list[Row]:
    """(10 sites, 30 models): first plan to 1 %, its bounds, the greedy, and the next period."""
    times: list[float] = []
    lp_over: list[float] = []
    gaps: list[float] = []
    greedy_share: list[float] = []
    kept: list[bool] = []
    settings = PlacementSettings(time_limit_s=60.0)
    for seed in seeds:
        problem = random_problem(InstanceSize(10, 30), seed)
        built = build_matrix(problem)
        lp = linked_lp_bound(built.model, child, SolveLimits(60.0))
        began = time.perf_counter()
        found = solve_placement(problem, settings, solve=child)
        times.append(time.perf_counter() - began)
        net_bound = found.bound - found.misses.penalty(problem)
        if lp is not None:
            lp_over.append(lp.bound.value * FLOW_UNIT / net_bound)
        gaps.append((found.bound - found.value) / found.bound)
        greedy_share.append(greedy_placement(problem, built).net(problem) / found.net(problem))
        places = replace(problem.placements, current=found.replicas, prewarm_current=found.prewarmed)
        again = solve_placement(replace(problem, placements=places), settings, solve=child)
        kept.append(bool((again.replicas == found.replicas).all()))
    slowest, widest = max(times), max(gaps)
    return [
        row("10x30/time_to_1_percent", slowest, "s", f"<= {FLEET_LIMIT_S:g}", slowest <= FLEET_LIMIT_S),
        row("10x30/gap", widest, "share of the bound", "<= 0.01", widest <= 0.0101),
        row("10x30/linked_lp_over_best_bound", max(lp_over), "ratio", "<= 1.05", max(lp_over) <= 1.05),
        row("10x30/greedy_share", min(greedy_share), "share of the plan", ">= 0.9", min(greedy_share) >= 0.9),
        row("10x30/unchanged_input_keeps_replicas", float(np.mean(kept)), "share of runs", "= 1", all(kept)),
    ]


def step_rows(child: ChildSolver) -> list[Row]:
    """One whole planner step on the four-site fleet: cold, then with the first plan running."""
    fleet, catalog = reference_fleet("four-sites"), load_catalog()
    demand = read_demand(DEMAND, fleet)
    began = time.perf_counter()
    first = plan_once(fleet, catalog, demand, solve=child)
    cold_s = time.perf_counter() - began
    began = time.perf_counter()
    again = plan_once(fleet, catalog, demand, first, solve=child)
    warm_s = time.perf_counter() - began
    moves = len(again.moves)
    return [
        row("four-sites/step", cold_s, "s", f"<= {STEP_LIMIT_S:g}", cold_s <= STEP_LIMIT_S),
        row("four-sites/next_step", warm_s, "s", f"<= {STEP_LIMIT_S:g}", warm_s <= STEP_LIMIT_S),
        row("four-sites/gap", first.gap, "share of the bound", "<= 0.01", first.gap <= 0.0101),
        row("four-sites/moves_on_unchanged_input", float(moves), "moves", "= 0", moves == 0),
    ]


def size_rows(child: ChildSolver) -> list[Row]:
    """Plans at (20, 100) and (50, 300) from nothing, the next period, and what other solvers do at these sizes."""
    middle, problem, found = first_plan_rows(20, 100, 0.01, 60.0)
    small = solve_placement(random_problem(InstanceSize(10, 30), 0), PlacementSettings(), solve=child)
    large, wide, vast = first_plan_rows(50, 300, 0.02, 300.0, memory_gb=3.0)
    return [
        *middle,
        *next_period_rows(problem, found),
        *large,
        *checker_rows(wide, vast),
        *reference_rows(child, 10, 30, small, (("highs", 20.0), ("cbc", 30.0), ("cp_sat", 20.0))),
        *reference_rows(child, 20, 100, found, (("highs", 60.0),)),
    ]


def rows(quick: bool) -> list[Row]:
    """All rows; ``quick`` uses one random problem in place of three and has a greedy plan checked."""
    with ChildSolver() as child:
        found = [*step_rows(child), *random_rows(child, (0,) if quick else (0, 1, 2)), *redirect_rows(20, 100)]
        if quick:
            problem = random_problem(InstanceSize(50, 300), 0)
            greedy = greedy_placement(problem, build_matrix(problem))
            bounded = replace(greedy, bound=float((problem.commodities.width * problem.commodities.value).sum()))
            return [*found, *checker_rows(problem, bounded)]
        return [*found, *size_rows(child)]
