"""Finished runs, kept in a file of JSON lines: a contest that was stopped goes on where it was.

A run is known by what it depends on: fleet, trace, speed, arm (policy, settings, flow control, site rule, model)
and seed. Only the measured figures are kept.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from planner.arm import Arm
from planner.intervals import Estimate, estimate, paired_relative_difference
from planner.measures import MEASURES, Measure
from planner.run_pool import RunPool
from planner.scenario import Scenario

Figures = dict[str, float]


@dataclass(frozen=True, slots=True)
class Cell:
    """One column of the contest: a scenario at a speed.

    Attributes:
        fleet: Its name.
        trace: Its name.
        scenario: At the trace's own speed.
        speed: Factor on the arrival rate.
        level: What the speed stands for, for people.
    """

    fleet: str
    trace: str
    scenario: Scenario
    speed: float
    level: str = ""

    def key(self, arm: Arm, seed: int) -> str:
        """What a run of this cell depends on."""
        parts: Sequence[object] = (
            self.fleet,
            self.trace,
            f"{self.speed:.6g}",
            arm.policy,
            sorted(arm.settings.items()),
            arm.flow or "",
            sorted(arm.flow_settings.items()),
            arm.predictor_path or "",
            seed,
        )
        return json.dumps(parts)


class RunFile:
    """Figures of runs by key, appended to a file as they come.

    Args:
        path: The file; made when the first run is kept. A last line cut short by a kill is ignored.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._found: dict[str, Figures] = {}
        if path.exists():
            for line in path.read_text().splitlines():
                try:
                    row = json.loads(line)
                except ValueError:
                    continue
                self._found[row["key"]] = {k: math.nan if v is None else v for k, v in row["figures"].items()}

    def __contains__(self, key: str) -> bool:
        return key in self._found

    def __getitem__(self, key: str) -> Figures:
        return self._found[key]

    def keep(self, key: str, figures: Figures) -> None:
        """Append one run."""
        self._found[key] = figures
        row = {"key": key, "figures": {k: None if math.isnan(v) else v for k, v in figures.items()}}
        with self._path.open("a") as out:
            out.write(json.dumps(row) + "\n")

    def run(
        self,
        cell: Cell,
        jobs: Iterable[tuple[Arm, int]],
        pool: RunPool,
        on_run: Callable[[Arm, int, Figures], None] | None = None,
    ) -> None:
        """Run what is not there yet."""
        missing = [(arm, seed) for arm, seed in jobs if cell.key(arm, seed) not in self]

        def done(arm: Arm, seed: int, result: object) -> None:
            figures = {measure.key: float(measure.of(result)) for measure in MEASURES}  # type: ignore[arg-type]
            self.keep(cell.key(arm, seed), figures)
            if on_run is not None:
                on_run(arm, seed, figures)

        if missing:
            pool.run(cell.scenario.at_speed(cell.speed).run, missing, done)

    def values(self, cell: Cell, arm: Arm, seeds: Iterable[int], measure: Measure) -> list[float]:
        """The figure of each seed; ``KeyError`` for a run that is missing."""
        return [self[cell.key(arm, seed)][measure.key] for seed in seeds]

    def mean(self, cell: Cell, arm: Arm, seeds: Iterable[int], measure: Measure) -> Estimate:
        """Mean over the seeds with its interval."""
        return estimate(self.values(cell, arm, seeds, measure))

    def gain(self, cell: Cell, arm: Arm, over: Arm, seeds: Sequence[int], measure: Measure) -> Estimate:
        """``arm`` over ``over`` less 1, paired by seed."""
        ours, theirs = self.values(cell, arm, seeds, measure), self.values(cell, over, seeds, measure)
        return paired_relative_difference(ours, theirs)
