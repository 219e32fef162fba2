"""A planner that is killed at any point leaves a whole plan in force, and the next one goes on from it."""

from __future__ import annotations

import os
import random
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from data.plan_io import read_plan
from planner.plan_store.layout import StoreFolder
from planner.plan_store.store import PlanStore

ROOT = Path(__file__).resolve().parents[2]
PUBLISHER = """
import os, sys, time
from dataclasses import replace
from pathlib import Path
from data.plan import PlanDocument, PlannedReplicas, PlanStatus
from planner.plan_store.store import PlanStore

store = PlanStore(Path(sys.argv[1]), keep_versions=20)
assert store.lead(time.time())
time_text = "2026-01-01T00:00:00Z"
rows = tuple(PlannedReplicas(f"site-{i}", "c", "m@v1", "H100", 1, 0) for i in range(200))
status = PlanStatus.OPTIMAL
base = PlanDocument("p", None, time_text, time_text, time_text, "f", {}, status, 1.0, 1.0, 1.0, "b", rows)
number = int(sys.argv[2])
while True:
    number += 1
    plan = replace(base, plan_id=f"p-{number}", replicas=tuple(replace(row, replicas=number) for row in rows))
    entry = store.publish(plan, time.time())
    # One write: print makes several of an unbuffered stream, and a kill may come between them.
    os.write(1, f"{entry.version} {number}\\n".encode())
    time.sleep(float(sys.argv[3]))
    store.lead(time.time())
"""


def start(store: Path, number: int, pause_s: float = 0.0) -> subprocess.Popen[bytes]:
    """A process that publishes one plan after the other, with a pause outside every lock between them."""
    command = [sys.executable, "-c", PUBLISHER, str(store), str(number), str(pause_s)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT)


def last_line(process: subprocess.Popen[bytes]) -> tuple[int, int]:
    """Version and number that the dead process had reported last."""
    assert process.stdout is not None
    lines = [line for line in process.stdout.read().split(b"\n") if line.count(b" ") == 1]
    version, number = lines[-1].split()
    return int(version), int(number)


def kill_often(store: Path, times: int, seed: int) -> None:
    draw = random.Random(seed)
    number = epoch = 0
    for _ in range(times):
        process = start(store, number)
        assert process.stdout is not None
        try:
            assert select.select([process.stdout], [], [], 60.0)[0], "the process published something"
            until = time.monotonic() + draw.uniform(0.0, 0.06)
            while time.monotonic() < until:
                # Readers beside the writer see whole plans all along.
                found = StoreFolder(store).current()
                assert found is not None
                assert len({row.replicas for row in found.plan.replicas}) == 1
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
        version, number = last_line(process)
        process.stdout.close()
        found = StoreFolder(store).current()
        assert found is not None
        assert found.entry.version in (version, version + 1), (
            "what was reported is in force, or one that was not yet"
        )
        assert {row.replicas for row in found.plan.replicas} == {number + found.entry.version - version}
        assert found.entry.epoch == epoch + 1, "each planner after a killed one has the next fencing token"
        assert {row.replicas for row in read_plan(store / "plan.json").replicas} <= {number, number + 1}
        epoch, number = found.entry.epoch, found.plan.replicas[0].replicas


def test_eight_kills_leave_eight_whole_plans(tmp_path: Path) -> None:
    kill_often(tmp_path / "plans", 8, seed=1)


@pytest.mark.slow
def test_fifty_kills_leave_fifty_whole_plans(tmp_path: Path) -> None:
    kill_often(tmp_path / "plans", 50, seed=2)


def test_a_planner_paused_before_it_publishes_is_refused_when_it_wakes(tmp_path: Path) -> None:
    """SIGSTOP is like a long pause of a machine: the process lives, holds its locks, and does nothing."""
    store = tmp_path / "plans"
    process = start(store, 0, pause_s=0.5)
    assert process.stdout is not None
    try:
        assert process.stdout.readline()
        other = PlanStore(store)
        os.kill(process.pid, signal.SIGSTOP)
        for _ in range(100):
            try:
                leads = other.lead(time.time() + other.leader.lease_s + 1)
                break
            except TimeoutError:
                # It was stopped while it held the store's lock: then nobody may publish until it goes on.
                os.kill(process.pid, signal.SIGCONT)
                process.stdout.readline()
                os.kill(process.pid, signal.SIGSTOP)
        assert leads
        before = StoreFolder(store).current()
        os.kill(process.pid, signal.SIGCONT)
        assert process.wait(60) != 0, "its next publication is refused"
        after = StoreFolder(store).current()
        assert before is not None
        assert after == before
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
