"""Tuning: every policy gets the same number of trials on the training traffic, its defaults among them.

The settings to try come from the policy's own grid. Where that holds more than the budget, a seeded sample of it
is drawn; where it holds less, the rest of the budget is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np

from benchmarks.proof.runs import Cell, RunFile
from planner.arm import Arm
from planner.measures import GOODPUT
from planner.run_pool import RunPool
from router.policies.settings import Setting
from router.registry import policy_entry

TRIALS = 12
SEEDS = (101, 102)
"""Away from the seeds that are reported."""


def trials(policy: str, budget: int = TRIALS, seed: int = 0) -> list[Arm]:
    """Arms to try: the defaults first, then a sample of the policy's grid."""
    entry = policy_entry(policy)
    names = sorted(entry.grid)
    defaults = entry.settings()
    grid = [
        found
        for values in product(*(entry.grid[name] for name in names))
        if (found := _changed(dict(zip(names, values, strict=True)), defaults))
    ]
    if len(grid) > budget - 1:
        kept = np.random.default_rng(seed).choice(len(grid), budget - 1, replace=False)
        grid = [grid[i] for i in sorted(kept.tolist())]
    return [arm_of(policy, values) for values in [{}, *grid]]


def arm_of(policy: str, settings: dict[str, Setting]) -> Arm:
    """An arm whose name tells its settings."""
    name = ":".join([policy, *(f"{key}={value}" for key, value in sorted(settings.items()))])
    return Arm(name, policy, settings)


def tuned(cell: Cell, policies: Sequence[str], runs: RunFile, pool: RunPool) -> dict[str, Arm]:
    """The arm with most Goodput of each policy, over the tuning seeds; the defaults win ties."""
    tried = {policy: trials(policy) for policy in policies}
    runs.run(cell, [(arm, seed) for arms in tried.values() for arm in arms for seed in SEEDS], pool)
    return {
        policy: max(arms, key=lambda arm: runs.mean(cell, arm, SEEDS, GOODPUT).mean)
        for policy, arms in tried.items()
    }


def _changed(values: dict[str, Setting], defaults: object) -> dict[str, Setting]:
    return {name: value for name, value in values.items() if value != getattr(defaults, name)}
