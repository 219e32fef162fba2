"""One cell of the contest after another: find the load, run every arm with common seeds, keep the figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.proof.runs import Cell, RunFile
from benchmarks.proof.scenarios import reported, training
from benchmarks.proof.tuning import SEEDS as TUNING_SEEDS
from benchmarks.proof.tuning import tuned
from planner.arm import Arm
from planner.load_level import LoadSearch, load_level
from planner.measures import ATTAINMENT_OFFERED, GOODPUT
from planner.run_pool import RunPool
from planner.scenario import Scenario
from router.registry import POLICIES

LEVELS = (0.95, 0.85, 0.65)
"""Attainment of least-request that sets a load."""
SEEDS = (1, 2, 3, 4, 5)
LEVEL_SEEDS = (1, 2)
SETS_THE_LOAD = Arm("least_request", "least_request")
OURS = "tokenpilot"
ABLATIONS = (
    Arm("tokenpilot, no harm price", "tokenpilot", {"harm_price": 0.0}),
    Arm("tokenpilot, no eviction price", "tokenpilot", {"eviction_price": 0.0}),
)
HOPELESS = ("random", "kv_aware_vllm_router", "latency_based_litellm", "prefix_hash_smg")
"""Run at the middle level only: they lose by half or more everywhere and take the longest to simulate."""
Note = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class CellResult:
    """A cell and the arms that ran in it."""

    cell: Cell
    arms: tuple[Arm, ...]


def level_cell(
    fleet: str, trace: str, scenario: Scenario, level: float, runs: RunFile, pool: RunPool, start: float = 1.0
) -> Cell:
    """The cell at the speed where least-request meets the targets of the share ``level`` of what is offered."""

    def attainment_at(speed: float) -> float:
        cell = Cell(fleet, trace, scenario, speed)
        runs.run(cell, [(SETS_THE_LOAD, seed) for seed in LEVEL_SEEDS], pool)
        return runs.mean(cell, SETS_THE_LOAD, LEVEL_SEEDS, ATTAINMENT_OFFERED).mean

    found = load_level(attainment_at, LoadSearch(level, tolerance=0.01, start_speed=start))
    return Cell(fleet, trace, scenario, found.speed, f"{level:.0%}")


def tuned_arms(fleet: str, runs: RunFile, pool: RunPool, note: Note) -> dict[str, Arm]:
    """The best setting of each policy on the training traffic, where least-request meets 85 %."""
    cell = level_cell(fleet, "training", training(fleet), 0.85, runs, pool)
    found = tuned(cell, list(POLICIES), runs, pool)
    for policy, arm in found.items():
        note(f"{fleet}: {policy} tuned to {arm.name} ({runs.mean(cell, arm, TUNING_SEEDS, GOODPUT).mean:,.0f})")
    return found


def arms_of(found: Mapping[str, Arm], level: float) -> tuple[Arm, ...]:
    """Defaults and tuned settings of every policy that runs at this level, and the ablations of ours."""
    policies = [policy for policy in found if level == 0.85 or policy not in HOPELESS]
    arms = [Arm(policy, policy) for policy in policies]
    arms += [found[policy] for policy in policies if found[policy].settings]
    return (*arms, *ABLATIONS)


def run_cells(
    fleet: str,
    traces: Sequence[str],
    found: Mapping[str, Arm],
    runs: RunFile,
    pool: RunPool,
    note: Note,
    levels: Sequence[float] = LEVELS,
) -> list[CellResult]:
    """Every trace at every level."""
    results = []
    for trace in traces:
        scenario, start = reported(fleet, trace), 1.0
        for level in levels:
            cell = level_cell(fleet, trace, scenario, level, runs, pool, start)
            start = cell.speed
            arms = arms_of(found, level)
            runs.run(cell, [(arm, seed) for arm in arms for seed in SEEDS], pool)
            results.append(CellResult(cell, arms))
            note(f"{fleet}, {trace}, {level:.0%} (speed {cell.speed:.3g}): {len(arms)} arms done")
    return results
