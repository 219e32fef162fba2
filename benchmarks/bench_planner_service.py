"""The planner as a service: one whole step of its loop, publishing, and kills.

*Step*: ``planner.loop.step.run_step`` on ``four-sites`` with ``examples/demand-four-sites.yaml``: observe,
closed-form capacities, solve, verify, and both plans simulated on requests drawn from the demand, with the default
settings; the first step moves replicas, the second finds the same again, and the third is a first one that also
looks for measured capacities, none of which is there yet. *Publish*: a plan of 2,000 rows into a
store, files synced. *Kills*: processes that publish in a loop are killed at random moments; ``value`` is the share
after which a whole plan was in force that the dead process had reported, or was about to.
"""

from __future__ import annotations

import os
import random
import resource
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from data.fleet.reference import reference_fleet
from data.plan import PlanDocument, PlannedReplicas, PlanStatus
from planner.loop.settings import LoopSettings
from planner.loop.sources import FileSource
from planner.loop.step import StepJob, run_step
from planner.plan_store.layout import StoreFolder
from planner.plan_store.store import PlanStore
from planner.settings import PlannerSettings

Row = dict[str, Any]
ROOT = Path(__file__).resolve().parents[1]
DEMAND = ROOT / "examples" / "demand-four-sites.yaml"
NOW_S = 1_800_000_000.0
STEP_TARGET_S = 30.0
KILLS, QUICK_KILLS = 50, 8
PUBLICATIONS = 30
AREA = "planner service"


def rows(quick: bool) -> list[Row]:
    """Times of a step and of publishing, and the share of kills that left a whole plan."""
    return [*_steps(quick), _publish(), _kills(QUICK_KILLS if quick else KILLS)]


def _steps(quick: bool) -> list[Row]:
    fleet, source = reference_fleet("four-sites"), FileSource(DEMAND)
    loop = LoopSettings(shadow_requests=500, shadow_seeds=1) if quick else LoopSettings()
    job = StepJob(fleet, (source,), None, (), NOW_S, PlannerSettings(), loop)
    began = time.perf_counter()
    first = run_step(job)
    first_s = time.perf_counter() - began
    again = replace(job, running=first.plan, recent=(first.demand,), now_s=NOW_S + 900.0)
    began = time.perf_counter()
    second = run_step(again)
    second_s = time.perf_counter() - began
    return [
        _row("step/first", first_s, "s", STEP_TARGET_S, first_s <= STEP_TARGET_S, **first.seconds),
        _row("step/unchanged", second_s, "s", STEP_TARGET_S, second_s <= STEP_TARGET_S, **second.seconds),
        _row("step/unchanged_moves", float(len(second.plan.moves)), "moves", 0.0, not second.plan.moves),
        _cold_step(job),
    ]


def _cold_step(job: StepJob) -> Row:
    """A first step with an empty file of measured capacities: they are measured beside the loop, not in it."""
    with tempfile.TemporaryDirectory() as name:
        used_s, began = _processor_s(), time.perf_counter()
        done = run_step(replace(job, capacity_cache=Path(name) / "capacities.json"))
        took_s = time.perf_counter() - began
        used_s = _processor_s() - used_s
    met, lacking = took_s <= STEP_TARGET_S, float(len(done.lacking))
    name = "step/first_cold_capacities"
    return _row(name, took_s, "s", STEP_TARGET_S, met, cpu_s=used_s, lacking=lacking, **done.seconds)


def _processor_s() -> float:
    """Processor time of this process and of those that it has waited for."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def _publish() -> Row:
    took = []
    with tempfile.TemporaryDirectory() as name:
        store = PlanStore(Path(name) / "plans")
        store.lead(time.time())
        for number in range(PUBLICATIONS):
            made = sample_plan(number, 2000)
            began = time.perf_counter()
            store.publish(made, time.time())
            took.append(time.perf_counter() - began)
    return _row("publish/2000_rows", statistics.median(took), "s", None, None, worst=max(took))


def _kills(times: int) -> Row:
    draw, whole, number = random.Random(3), 0, 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "plans"
        for _ in range(times):
            command = [sys.executable, "-m", "benchmarks.bench_planner_service", str(folder), str(number)]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT)
            assert process.stdout is not None
            select.select([process.stdout], [], [], 60.0)
            time.sleep(draw.uniform(0.0, 0.06))
            process.send_signal(signal.SIGKILL)
            reported = [int(line) for line in process.stdout.read().split(b"\n")[:-1]][-1]
            process.wait()
            process.stdout.close()
            found = StoreFolder(folder).current()
            counts = set() if found is None else {row.replicas for row in found.plan.replicas}
            whole += counts in ({reported}, {reported + 1})
            number = max(counts, default=number)
    return _row("kills/whole_plan_in_force", whole / times, "share", 1.0, whole == times, kills=times)


def sample_plan(number: int, count: int) -> PlanDocument:
    """A plan of so many rows that all hold the same number."""
    at = "2026-01-01T00:00:00Z"
    places = tuple(PlannedReplicas(f"site-{i}", "c", "m@v1", "H100", 1, number) for i in range(count))
    return PlanDocument(
        f"plan-{number}", None, at, at, at, "f", {}, PlanStatus.OPTIMAL, 1.0, 1.0, 1.0, "bound", places
    )


def _row(name: str, value: float, unit: str, target: float | None, met: bool | None, **more: float) -> Row:
    return {
        "id": f"planner_service/{name}",
        "area": AREA,
        "value": round(value, 4),
        "unit": unit,
        "reference": None,
        "ratio": None,
        "target": target,
        "met": met,
        **{key: round(number, 4) for key, number in more.items()},
    }


def _publish_for_ever(folder: Path, number: int) -> None:
    store = PlanStore(folder, keep_versions=20)
    assert store.lead(time.time())
    while True:
        number += 1
        store.publish(sample_plan(number, 200), time.time())
        os.write(1, f"{number}\n".encode())  # one write: a kill must not leave half a line


if __name__ == "__main__":
    if len(sys.argv) > 2:
        _publish_for_ever(Path(sys.argv[1]), int(sys.argv[2]))
    for line in rows(quick=True):
        print(line)
