"""Every arm in both simulators: the load, the runs, and the figures kept in a file as they come."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from benchmarks.proof.contest import LEVEL_SEEDS, SETS_THE_LOAD
from benchmarks.proof.referee.assignment import Assignment, assigned
from benchmarks.proof.referee.figures import Figures, figures
from benchmarks.proof.referee.replay import Form, replayed
from benchmarks.proof.referee.step_curves import common
from benchmarks.proof.runs import Cell, RunFile
from planner.arm import Arm
from planner.load_level import LoadSearch, load_level
from planner.scenario import carried_out
from router.endpoints import EndpointSpec

Curves = Literal["catalog", "common"]
"""Step times that routers and engines go by: the catalog's, or those that both simulators can hold exactly."""
FORMS: Mapping[Curves, tuple[Form, ...]] = {"catalog": ("cold_prompt", "same_work"), "common": ("cold_prompt",)}
OURS = "ours"
LEVEL = 0.85
ARMS = (
    Arm("least_request", "least_request"),
    Arm("kv_cost_dynamo", "kv_cost_dynamo"),
    Arm("kv_cost_dynamo:scale=16", "kv_cost_dynamo", {"scale": 16.0}),
    Arm("mooncake_no_transfer", "mooncake_no_transfer"),
    Arm("predicted_latency_llmd:headroom=most", "predicted_latency_llmd", {"headroom": "most"}),
    Arm("sticky_until_saturated_llmd", "sticky_until_saturated_llmd"),
    Arm("prefix_cache_aibrix", "prefix_cache_aibrix"),
    Arm("tokenpilot", "tokenpilot"),
)
Note = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Referee:
    """Runs an arm here, serves what it chose in the other simulator, and keeps the figures of both.

    Attributes:
        python: Interpreter of the other simulator.
        runs: Where figures are kept; what is there is not run again.
        note: Told of each run.
    """

    python: str
    runs: RunFile
    note: Note

    def cell(self, cell: Cell, curves: Curves) -> Cell:
        """The cell at the speed where least-request meets 85 % in our simulator."""

        def attainment_at(speed: float) -> float:
            tried = replace(cell, speed=speed)
            found = [self._ours(tried, curves, SETS_THE_LOAD, seed)["attained"] for seed in LEVEL_SEEDS]
            return sum(found) / len(found)

        found = load_level(attainment_at, LoadSearch(LEVEL, tolerance=0.01))
        self.note(f"{cell.trace}, {curves}: speed {found.speed:.4g}, least request {found.attainment:.1%}")
        return replace(cell, speed=found.speed, level=f"{LEVEL:.0%}")

    def score(self, cell: Cell, curves: Curves, arm: Arm, seed: int) -> dict[str, Figures]:
        """Figures of one run in our simulator and in each form of the other."""
        keys = {name: _key(cell, curves, name, arm, seed) for name in (OURS, *FORMS[curves])}
        if not all(key in self.runs for key in keys.values()):
            found = assigned(cell.scenario.at_speed(cell.speed), endpoints(cell, curves), arm, seed)
            self._keep(keys[OURS], ours(found))
            for form in FORMS[curves]:
                served = replayed(self.python, found, form)
                self._keep(keys[form], figures(found, served.times, served.hit_rate))
            self.note(f"{cell.trace}, {curves}: {arm.name}, seed {seed}")
        return {name: self.runs[key] for name, key in keys.items()}

    def _ours(self, cell: Cell, curves: Curves, arm: Arm, seed: int) -> Figures:
        key = _key(cell, curves, OURS, arm, seed)
        if key not in self.runs:
            scenario = cell.scenario.at_speed(cell.speed)
            self._keep(key, ours(assigned(scenario, endpoints(cell, curves), arm, seed)))
        return self.runs[key]

    def _keep(self, key: str, found: Figures) -> None:
        if key not in self.runs:
            self.runs.keep(key, found)


def endpoints(cell: Cell, curves: Curves) -> Sequence[EndpointSpec]:
    """The fleet's endpoints with these step times."""
    specs = carried_out(cell.scenario.fleet, None).specs
    return [common(spec) for spec in specs] if curves == "common" else specs


def ours(found: Assignment) -> Figures:
    """Figures of the run that chose."""
    return figures(found, found.times, found.hit_rate)


def _key(cell: Cell, curves: Curves, name: str, arm: Arm, seed: int) -> str:
    return f"referee/{curves}/{name}/{cell.key(arm, seed)}"
