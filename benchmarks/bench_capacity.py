"""How far the capacity table is from the simulator, by (model, GPU type, degree, class).

*Compared*: the largest rate of requests at which the mean attainment is the percentile, in requests/s (definition
in ``planner.capacity_search``). ``value`` is the checked table as the planner uses it: measured at the grid point,
carried to the shape and the group by the closed form. ``reference`` is the simulated engine at the shape itself,
and group, with draws of its own (the test of ``planner.sim.load_test`` shows that a routed simulation
of the same requests gives the same times, to the last bit). ``ratio`` is value / reference, ``closed_ratio`` the
closed form / reference; ``error`` is the relative standard error of the reference and ``value_error`` that of the
table. A ratio within 7 % counts as met.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from data.catalog.load import Catalog, load_catalog
from data.catalog.memory import kv_tokens_at
from data.fleet.reference import reference_fleet
from data.fleet.types import Model, WorkloadClass
from models.capacity import CapacitySettings, ClassShape, GroupRate, ReplicaLimits, group_rate
from models.capacity_check import CapacityCase, CheckedRate, checked_group_rate
from planner.capacity_search import LEAST_ALONE, SustainedRate, measure_case, search
from planner.load_tests import LoadTests, SearchSettings

Row = dict[str, Any]
FLEETS = ("one-pool", "mixed-pool", "four-sites")
TARGET_ERROR = 0.07
OTHER_GPUS = ("A100", "B200", "H100", "H200", "L40S")
VARIATION = 1.0
"""What the planner assumes where no lengths were measured."""
QUICK = ("llama-3.1-8b/A100x1/interactive/2000", "llama-3.3-70b/H100x4/interactive/2000",
         "qwen3-30b-a3b/H200x1/batch/4000")  # fmt: skip
GROUPS_EVERY = 6
"""Every sixth cell is also compared for groups of two and eight replicas."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One place of the table."""

    name: str
    case: CapacityCase


def cells(catalog: Catalog, variation: float = VARIATION) -> Iterator[Cell]:
    """Each different one of the reference fleets, and their models on GPU types that they do not use."""
    seen: set[str] = set()
    for fleet in [reference_fleet(name) for name in reversed(FLEETS)]:
        for model in fleet.models:
            own = {(c.gpu_type, c.tensor_parallel) for c in fleet.configs if c.model == model.key}
            ways = [*sorted(own), *(_others(catalog, model, own) if fleet.name == "four-sites" else ())]
            for gpu, degree in ways:
                for kind in fleet.classes:
                    slo = "/".join(str(t) for t in (kind.slo.ttft_s, kind.slo.tpot_s) if t is not None)
                    name = f"{model.catalog}/{gpu}x{degree}/{kind.name}/{kind.expected_input_tokens}"
                    case = _case(catalog, model, gpu, degree, kind, variation)
                    if case is None or f"{name} {slo}" in seen:
                        continue
                    seen.add(f"{name} {slo}")
                    yield Cell(name if fleet.name == "four-sites" else f"{name}/{fleet.name}", case)


def _others(catalog: Catalog, model: Model, own: set[tuple[str, int]]) -> list[tuple[str, int]]:
    """GPU types of ``OTHER_GPUS`` that the fleet does not use, at the least degree that the catalog has."""
    least: dict[str, int] = {}
    for facts in catalog.replicas(model.catalog):
        gpu, degree = facts.gpu_type, facts.tensor_parallel
        if gpu in OTHER_GPUS and gpu not in {name for name, _ in own}:
            least[gpu] = min(degree, least.get(gpu, degree))
    return sorted(least.items())


def _case(
    catalog: Catalog, model: Model, gpu: str, degree: int, kind: WorkloadClass, variation: float
) -> CapacityCase | None:
    facts = catalog.facts(model.catalog, gpu, degree)
    room = kv_tokens_at(facts, catalog.gpu(gpu), model.engine.gpu_memory_utilization)
    if room <= 0:
        return None
    limits = ReplicaLimits(room, model.engine.max_num_seqs, model.engine.max_num_batched_tokens)
    shape = ClassShape(kind.expected_input_tokens, kind.expected_output_tokens, 0.0, variation)
    return CapacityCase(facts.times, limits, shape, kind.slo, 0.95, model.context_limit_tokens)


def reference(case: CapacityCase, replicas: int, guess: float, settings: SearchSettings) -> SustainedRate:
    """The sustained rate at the very shape and group, by other draws."""
    return search(LoadTests(case, replicas, settings), case, guess, settings)


def compare(cell: Cell, sizes: tuple[int, ...], settings: SearchSettings, rival: SearchSettings) -> list[Row]:
    """One row a group size: the table measured with ``settings``, the reference with ``rival``."""
    constants, shape = CapacitySettings(), cell.case.shape
    case = cell.case
    closed = group_rate(case.times, case.limits, shape, case.slo, constants)
    errors: list[float] = []

    def check(case: CapacityCase, closed: GroupRate) -> CheckedRate:
        found = measure_case(case, closed, settings)
        errors.append(max(found.one_error, found.group_error))
        return found

    law = checked_group_rate(case, constants, check)
    if law is None:
        raise RuntimeError("a check that measures always answers")
    rows = []
    for size in sizes:
        value = law.of(size) / shape.output_tokens
        found = reference(case, size, max(value, 1e-3), rival)
        rows.append(_row(cell.name, size, value, closed.of(size) / shape.output_tokens, found, errors[0]))
    return rows


def _row(name: str, size: int, value: float, closed: float, found: SustainedRate, value_error: float) -> Row:
    ratio = value / found.rate if found.rate > 0 else (1.0 if value == 0 else math.inf)
    return {
        "id": f"capacity/{name}/{size}",
        "area": "capacity",
        "value": round(value, 4),
        "unit": "requests/s",
        "reference": round(found.rate, 4),
        "ratio": round(ratio, 3),
        "closed_ratio": round(closed / found.rate, 3) if found.rate > 0 else None,
        "error": round(found.error, 3),
        "value_error": round(value_error, 3),
        "met_alone": round(found.met_alone, 3),
        "target": f"within {TARGET_ERROR:.0%}",
        "met": abs(ratio - 1.0) <= TARGET_ERROR,
    }


def rows(quick: bool) -> list[Row]:
    """All cells; with ``quick=True`` three of them, with fewer tests."""
    settings = SearchSettings(target_error=0.03, most_seeds=24) if quick else SearchSettings()
    rival = replace(settings, seed=1, most_seeds=2 * settings.most_seeds)
    found: list[Row] = []
    for number, cell in enumerate(cells(load_catalog())):
        if not quick or cell.name in QUICK:
            groups = (2, 8) if not quick and number % GROUPS_EVERY == 0 else ()
            found += compare(cell, (1, *groups), settings, rival)
            print(f"   {cell.name}", file=sys.stderr, flush=True)
    return [*found, *_summary(found)]


def _summary(found: list[Row]) -> list[Row]:
    usable = [row for row in found if row["met_alone"] >= LEAST_ALONE]
    errors = np.array([abs(row["ratio"] - 1.0) for row in usable])
    figures = {"median_error": float(np.median(errors)), "worst_error": float(errors.max())}
    return [
        {"id": f"capacity/{name}", "area": "capacity", "value": round(value, 3), "unit": "relative",
         "reference": None, "ratio": None, "target": f"<= {TARGET_ERROR}", "met": value <= TARGET_ERROR}
        for name, value in figures.items()
    ]  # fmt: skip


if __name__ == "__main__":
    for line in rows(quick="--quick" in sys.argv[1:]):
        print(line)
