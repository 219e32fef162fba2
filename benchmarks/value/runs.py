"""Runs of the contest, kept in a file of JSON lines: one that was stopped goes on where it was."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.proof.runs import Figures, RunFile
from benchmarks.value.placements import plan_path
from benchmarks.value.scene import Scene, ValueRun
from benchmarks.value.variants import SPREAD, Variant
from planner.arm import Arm
from planner.intervals import Estimate, estimate, paired_difference, paired_relative_difference
from planner.load_level import LoadSearch, load_level
from planner.measures import ATTAINMENT_OFFERED, MEASURES, Measure
from planner.plan_execution import read_plans
from planner.run_pool import RunPool
from planner.sim.result import RunResult

SEEDS = (1, 2, 3, 4, 5)
LEVEL_SEEDS = (1, 2)
TOLERANCE = 0.015


@dataclass(frozen=True, slots=True)
class Book:
    """Where finished runs and made plans are.

    Attributes:
        runs: The runs.
        plans: Folder of the plans.
        pool: Where new runs go.
    """

    runs: RunFile
    plans: Path
    pool: RunPool

    def run(self, scene: Scene, variants: Iterable[Variant], seeds: Sequence[int] = SEEDS) -> None:
        """Run what is not there yet, arm by arm; each is told on stderr."""
        for variant in variants:
            arm = variant.arm(self._plan(scene, variant))
            missing = [(arm, seed) for seed in seeds if self.key(scene, variant, seed) not in self.runs]
            if not missing:
                continue
            began = time.process_time()
            make = ValueRun(scene.scenario(budgets=variant.budgets), variant.split)

            def done(_: Arm, seed: int, run: RunResult, variant: Variant = variant) -> None:
                self.runs.keep(self.key(scene, variant, seed), figures_of(run))

            self.pool.run(make, missing, done)
            line = f"{scene.rate_per_s:.4g} requests/s, {variant.id}: {len(missing)} runs"
            print(f"   {line}, {time.process_time() - began:.0f} s of processor", file=sys.stderr, flush=True)

    def key(self, scene: Scene, variant: Variant, seed: int) -> str:
        """What a run depends on: load, arm, the plans by what they decide, split, budgets, seed."""
        path = self._plan(scene, variant)
        plans = [] if path is None else [(one.at_s, one.plan.plan_id) for one in read_plans(str(path))]
        parts = [f"{scene.rate_per_s:.6g}", scene.seconds, variant.text, plans]
        return json.dumps([*parts, variant.split, variant.budgets, seed])

    def values(self, scene: Scene, variant: Variant, name: str, seeds: Sequence[int] = SEEDS) -> list[float]:
        """A figure of each seed; ``KeyError`` for a run or figure that is missing."""
        return [self.runs[self.key(scene, variant, seed)][name] for seed in seeds]

    def mean(self, scene: Scene, variant: Variant, name: str, seeds: Sequence[int] = SEEDS) -> Estimate:
        """Mean over the seeds with its interval."""
        return estimate(self.values(scene, variant, name, seeds))

    def change(
        self, scene: Scene, variant: Variant, over: Variant, measure: Measure, seeds: Sequence[int] = SEEDS
    ) -> Estimate:
        """``variant`` against ``over``, paired by seed: points for shares, else relative."""
        pair = self.values(scene, variant, measure.key, seeds), self.values(scene, over, measure.key, seeds)
        return paired_difference(*pair) if measure.unit == "share" else paired_relative_difference(*pair)

    def _plan(self, scene: Scene, variant: Variant) -> Path | None:
        return plan_path(variant.placement, scene, self.plans) if variant.placement else None


def figures_of(run: RunResult) -> Figures:
    """All measures, attainment and Goodput of each class and tenant, and what ``extra`` holds."""
    found = {measure.key: float(measure.of(run)) for measure in MEASURES}
    for kind, groups in (("class", run.by_class), ("tenant", run.by_tenant)):
        for name, group in groups.items():
            found[f"attained/{kind}/{name}"] = group.attainment_offered
            found[f"goodput/{kind}/{name}"] = group.goodput_tokens_per_s
    return {**found, **run.extra}


def scene_at(level: float, book: Book, start_rate_per_s: float) -> Scene:
    """The load at which least request over all sites, on the fleet's own placement, attains ``level``."""

    def attainment_at(rate_per_s: float) -> float:
        scene = Scene(rate_per_s)
        book.run(scene, [SPREAD], LEVEL_SEEDS)
        return book.mean(scene, SPREAD, ATTAINMENT_OFFERED.key, LEVEL_SEEDS).mean

    found = load_level(attainment_at, LoadSearch(level, tolerance=TOLERANCE, start_speed=start_rate_per_s))
    return Scene(found.speed)
