"""One cell of the contest after another: find the load, run every arm with common seeds, keep the figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.proof.learned import learned_arm
from benchmarks.proof.runs import Cell, RunFile
from benchmarks.proof.scenarios import reported, training
from benchmarks.proof.tuning import SEEDS as TUNING_SEEDS
from benchmarks.proof.tuning import arm_of, tuned
from data.errors import SettingError
from planner.arm import Arm
from planner.load_level import LoadSearch, load_level
from planner.measures import ATTAINMENT_OFFERED, GOODPUT
from planner.run_pool import RunPool
from planner.scenario import Scenario
from router.policies.settings import Setting
from router.registry import POLICIES

LEVELS = (0.95, 0.85, 0.65)
"""Attainment of least-request that sets a load."""
SEEDS = (1, 2, 3, 4, 5)
LEVEL_SEEDS = (1, 2)
SETS_THE_LOAD = Arm("least_request", "least_request")
SETS_THE_AGENTIC_LOAD = Arm("kv_cost_dynamo", "kv_cost_dynamo")
"""Least-request loses so many prefixes that it meets 82 % of the agentic sessions' targets at no load at all."""
OURS = "tokenpilot"
ABLATIONS = (
    Arm("tokenpilot, others do not count", OURS, {"harm_price": 0.0, "loss_price": 0.0}),
    Arm("tokenpilot, nobody loses tokens", OURS, {"loss_price": 0.0}),
    Arm("tokenpilot, medians are sure", OURS, {"spread_factor": 0.0, "least_spread": 0.001}),
    Arm("tokenpilot, cached prefixes do not count", OURS, {"reuse": False}),
    Arm("tokenpilot, evictions are free", OURS, {"eviction_price": 0.0}),
)
STRONG = (
    "least_request",
    "kv_cost_dynamo",
    "mooncake_no_transfer",
    "sticky_until_saturated_llmd",
    "predicted_latency_llmd",
    "prefix_cache_aibrix",
    OURS,
)
"""Policies that run at every level, with their defaults beside their tuned settings."""
HOPELESS = ("random", "kv_aware_vllm_router", "latency_based_litellm", "prefix_hash_smg")
"""Policies that lose by half or more, and are the slowest to simulate: the short traces must do for them."""
SHORT = ("synthetic", "azure-code")
MIDDLE = 0.85
Note = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class CellResult:
    """A cell and the arms that ran in it."""

    cell: Cell
    arms: tuple[Arm, ...]


@dataclass(frozen=True, slots=True)
class Contestants:
    """The best setting of each policy on the training traffic, and TokenPilot with a model trained on it."""

    tuned: Mapping[str, Arm]
    learned: Arm | None


def sets_the_load(trace: str) -> Arm:
    """Whose attainment sets the loads of a trace."""
    return SETS_THE_AGENTIC_LOAD if trace == "agentic" else SETS_THE_LOAD


def level_cell(
    fleet: str, trace: str, scenario: Scenario, level: float, runs: RunFile, pool: RunPool, start: float = 1.0
) -> Cell:
    """The cell at the speed where least-request meets the targets of the share ``level`` of what is offered."""
    setter = sets_the_load(trace)

    def attainment_at(speed: float) -> float:
        cell = Cell(fleet, trace, scenario, speed)
        runs.run(cell, [(setter, seed) for seed in LEVEL_SEEDS], pool)
        return runs.mean(cell, setter, LEVEL_SEEDS, ATTAINMENT_OFFERED).mean

    found = load_level(attainment_at, LoadSearch(level, tolerance=0.01, start_speed=start))
    return Cell(fleet, trace, scenario, found.speed, f"{level:.0%}")


def contestants(fleet: str, runs: RunFile, pool: RunPool, models: Path, note: Note) -> Contestants:
    """Tune and train on the training traffic, where least-request meets 85 % of it.

    Args:
        fleet: Its name.
        runs: Takes the trials.
        pool: Runs them.
        models: Folder of trained models, one folder a fleet; what stands there is used.
        note: Takes a line on each policy.
    """
    cell = level_cell(fleet, "training", training(fleet), MIDDLE, runs, pool)
    found = tuned(cell, list(POLICIES), runs, pool)
    for policy, arm in found.items():
        note(f"{fleet}: {policy} tuned to {arm.name} ({runs.mean(cell, arm, TUNING_SEEDS, GOODPUT).mean:,.0f})")
    learned = learned_arm(cell, OURS, models / fleet)
    note(f"{fleet}: " + ("no model was good enough" if learned is None else "latency model trained"))
    return Contestants(found, learned)


def untuned() -> Contestants:
    """The strong policies as they come; Dynamo's rule and llm-d's with the setting that is known to suit them."""
    better: dict[str, dict[str, Setting]] = {
        "kv_cost_dynamo": {"scale": 16.0},
        "predicted_latency_llmd": {"headroom": "most"},
    }
    return Contestants({policy: arm_of(policy, better.get(policy, {})) for policy in STRONG}, None)


def arms_of(known: Contestants, trace: str, level: float) -> tuple[Arm, ...]:
    """Tuned settings of every policy that runs here, defaults of the strong ones, the ablations of ours."""
    found = known.tuned
    if level != MIDDLE:
        return tuple(found[policy] for policy in STRONG)
    policies = [policy for policy in found if policy not in HOPELESS or trace in SHORT]
    defaults = [Arm(policy, policy) for policy in STRONG if found[policy].settings]
    learned = () if known.learned is None else (known.learned,)
    return (*(found[policy] for policy in policies), *defaults, *ABLATIONS, *learned)


def run_cells(
    fleet: str,
    traces: Sequence[str],
    known: Contestants,
    runs: RunFile,
    pool: RunPool,
    note: Note,
    levels: Sequence[float] = LEVELS,
) -> list[CellResult]:
    """Every trace at every level that exists there; finished cells are read from ``runs``."""
    results = []
    for trace in traces:
        scenario, start = reported(fleet, trace), 1.0
        for level in levels:
            try:
                cell = level_cell(fleet, trace, scenario, level, runs, pool, start)
            except SettingError as error:
                note(f"{fleet}, {trace}: no load at which {level:.0%} are met: {error}")
                continue
            start = cell.speed
            arms = arms_of(known, trace, level)
            runs.run(cell, [(arm, seed) for arm in arms for seed in SEEDS], pool)
            results.append(CellResult(cell, arms))
            note(f"{fleet}, {trace}, {level:.0%} (speed {cell.speed:.3g}): {len(arms)} arms done")
    return results
