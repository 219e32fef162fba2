"""The placements of the contest, each as a plan file, or as a folder of plans that follow one another.

All are made for the demand of a seed that no reported run uses. Rivals' replicas are planned once more with every
site frozen: so they get the best traffic shares and capacity split that there are for them, and differ in where
replicas stand and in nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np

from benchmarks.value.scene import PLANNING_SEED, Scene
from data.catalog.load import load_catalog
from data.fleet.types import Placed
from data.plan import PlanDocument
from data.plan_io import write_plan
from data.types import IntArray
from planner.capacity_cache import CapacityCache
from planner.capacity_table import capacity_table
from planner.demand import DemandTable
from planner.demand_trace import TraceWindow, demand_from_trace
from planner.load_tests import SearchSettings
from planner.placement_input import PlacementInput, placement_input
from planner.plan_execution import placed_by
from planner.service import plan_once
from planner.settings import PlannerSettings
from solver.greedy import greedy_placement
from solver.matrix import build_matrix
from solver.placement_rivals.regret_greedy import regret_greedy

SPELLS = (0.0, 200.0, 300.0)
"""Before, during and after the hot spell: a plan is made for each."""
BIN_S = 20.0
PRIORITY = {"interactive": 0, "long_context": 0, "batch": 1}
COARSE = SearchSettings(requests=500, target_error=0.05, seeds=4, most_seeds=8)
"""Errors of some 5 %, in half a minute of a core for all configurations."""
STEP_S = 1.0
"""A plan that is carried out takes force so long after the run began."""


def demand(scene: Scene, start_s: float = 0.0, end_s: float | None = None) -> DemandTable:
    """What the planning seed's tenants ask for in a part of the run; the whole of it as the demo counts it."""
    whole = end_s is None
    window = TraceWindow(start_s, scene.seconds if end_s is None else end_s, 60.0 if whole else BIN_S)
    return demand_from_trace(scene.scenario().trace.batches(PLANNING_SEED), scene.fleet, window)


def planned(scene: Scene, settings: PlannerSettings | None = None) -> PlanDocument:
    """FleetMind's plan, as the demo makes it."""
    return plan_once(scene.fleet, load_catalog(), demand(scene), settings=settings)


def measured(scene: Scene) -> PlanDocument:
    """The same with capacities measured by load tests, coarsely, in place of the closed form."""
    cache = CapacityCache(None, COARSE)
    return plan_once(scene.fleet, load_catalog(), demand(scene), check=cache)


def standing(scene: Scene, placed: tuple[Placed, ...] | None = None) -> PlanDocument:
    """A plan that leaves these replicas (the fleet's own by default) where they stand."""
    fleet = scene.fleet if placed is None else replace(scene.fleet, placement=placed)
    frozen = PlannerSettings(frozen_sites=tuple(site.name for site in fleet.sites), prewarm_limit=0)
    plan = plan_once(fleet, load_catalog(), demand(scene), settings=frozen)
    if {(p.site, p.config): p.replicas for p in placed_by(plan) if p.replicas} != {
        (p.site, p.config): p.replicas for p in fleet.placement if p.replicas
    }:
        raise RuntimeError("replicas of a frozen placement have moved")
    return plan


def by_greedy(scene: Scene) -> PlanDocument:
    """The planner's constructive greedy in place of its integer program."""

    def replicas(given: PlacementInput) -> IntArray:
        return greedy_placement(given.problem, build_matrix(given.problem)).replicas

    return _by_rule(scene, replicas)


def by_regret(scene: Scene) -> PlanDocument:
    """Priority and regret, as llm-d's autoscaler; every GPU has the same price."""

    def replicas(given: PlacementInput) -> IntArray:
        priority = [PRIORITY[name] for name in given.classes]
        return regret_greedy(given.problem, given.problem.placements.gpus.astype(np.float64), priority)

    return _by_rule(scene, replicas)


def _by_rule(scene: Scene, rule: Callable[[PlacementInput], IntArray]) -> PlanDocument:
    fleet, settings, wanted = scene.fleet, PlannerSettings(), demand(scene)
    table = capacity_table(fleet, load_catalog(), wanted, settings)
    given = placement_input(fleet, table, wanted, fleet.placement, settings)
    places, counts = given.problem.placements, rule(given)
    placed = tuple(
        Placed(given.sites[int(places.site[i])].name, places.config[i], int(counts[i]))
        for i in np.flatnonzero(counts).tolist()
    )
    return standing(scene, placed)


def moved(scene: Scene) -> list[tuple[float, PlanDocument]]:
    """What stands, and FleetMind's plan, carried out from the first second on with its loads and drains."""
    return [(0.0, standing(scene)), (STEP_S, planned(scene))]


def in_steps(scene: Scene, prewarm_limit: int) -> list[tuple[float, PlanDocument]]:
    """A plan for each part of the run, each from the one before, with prewarmed copies or without."""
    found: list[tuple[float, PlanDocument]] = []
    ends = (*SPELLS[1:], scene.seconds)
    for start_s, end_s in zip(SPELLS, ends, strict=True):
        settings = PlannerSettings(prewarm_limit=prewarm_limit, period_s=end_s - start_s)
        running = found[-1][1] if found else None
        plan = plan_once(scene.fleet, load_catalog(), demand(scene, start_s, end_s), running, settings)
        found.append((start_s, plan))
    return found


WHOLE_RUN: Mapping[str, Callable[[Scene], PlanDocument]] = {
    "planned": planned,
    "measured": measured,
    "greedy": by_greedy,
    "regret": by_regret,
    "static with shares": standing,
}
"""Placements that stand from the first to the last second."""
CARRIED_OUT: Mapping[str, Callable[[Scene], list[tuple[float, PlanDocument]]]] = {
    "carried out": moved,
    "in steps": lambda scene: in_steps(scene, 1),
    "in steps, no prewarm": lambda scene: in_steps(scene, 0),
}
"""Placements that change during the run."""


def plan_path(name: str, scene: Scene, folder: Path) -> Path:
    """The file or folder of a placement; made if it is not there yet."""
    path = folder / f"{name.replace(' ', '-').replace(',', '')}-{scene.rate_per_s:.4g}-{scene.seconds:g}"
    if name in WHOLE_RUN:
        path = path.with_name(path.name + ".json")
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True)
            write_plan(WHOLE_RUN[name](scene), path)
    elif not path.exists():
        write_sequence(CARRIED_OUT[name](scene), path)
    return path


def write_sequence(plans: list[tuple[float, PlanDocument]], folder: Path) -> None:
    """Plans into a folder, each valid from its moment on; the folder appears when all are written."""
    aside = folder.with_name(folder.name + ".tmp")
    aside.mkdir(parents=True, exist_ok=True)
    began = datetime.fromisoformat(plans[0][1].valid_from)
    for number, (at_s, plan) in enumerate(plans):
        begins = began + timedelta(seconds=at_s)
        ends = begins + timedelta(hours=1)
        stamped = replace(plan, valid_from=_utc(begins), valid_until=_utc(ends))
        write_plan(stamped, aside / f"{number}.json")
    aside.rename(folder)


def _utc(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
