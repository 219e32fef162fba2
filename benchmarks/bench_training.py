"""Training of latency models from the log: time, peak memory, and what a router beside it feels.

Run from the root of the checkout: the workers of the measurements are processes of their own.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.training_log import FLEET, write_log
from planner.priority import PRIORITIES, Priority

Row = dict[str, Any]
QUICK_ROWS, FULL_ROWS = 100_000, 1_000_000
TARGET_S, TARGET_GB = 90.0, 3.0
PROBE_S = {True: 5.0, False: 25.0}
"""How long decisions are timed beside a training."""
PACE_S = 0.002
"""Time between two decisions: a router that is busy, but not alone on its processor."""
CANDIDATES = 100


def rows(quick: bool) -> list[Row]:
    """Rows of the result table."""
    count = QUICK_ROWS if quick else FULL_ROWS
    with tempfile.TemporaryDirectory() as folder:
        log, store = Path(folder) / "log", Path(folder) / "store"
        write_log(log, count)
        found = list(_training(log, store, count))
        found += _beside(log, Path(folder), store, PROBE_S[quick])
    return found


def _command(log: Path, store: Path, priority: Priority) -> list[str]:
    program = "from planner.cli.main import main; main()"
    return [
        sys.executable, "-c", program, "train", "--log", str(log), "--store", str(store), "--fleet", FLEET,
        "--priority", priority, "--json",
    ]  # fmt: skip


def _training(log: Path, store: Path, count: int) -> Iterator[Row]:
    """The whole command in a process of its own; its peak is read from the system's account of that process."""
    program = f"""
import json, resource, subprocess, time
began = time.perf_counter()
done = subprocess.run({_command(log, store, "normal")!r}, capture_output=True, text=True, check=True)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps({{
    "wall_s": time.perf_counter() - began, "cpu_s": used.ru_utime + used.ru_stime, "peak_kb": used.ru_maxrss,
    "trained": json.loads(done.stdout),
}}))
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    got = json.loads(ran.stdout)
    size = f"{count // 1000}k"
    yield _row(f"train_{size}_wall", got["wall_s"], "s", f"<= {TARGET_S:g} s", got["wall_s"] <= TARGET_S)
    yield _row(f"train_{size}_processor", got["cpu_s"], "s")
    peak_gb = got["peak_kb"] * 1024 / 1e9
    yield _row(f"train_{size}_peak", peak_gb, "GB", f"<= {TARGET_GB:g} GB", peak_gb <= TARGET_GB)
    yield _row(f"train_{size}_loss", got["trained"]["report"]["model"]["loss"], "pinball loss")


def _beside(log: Path, folder: Path, store: Path, span_s: float) -> Iterator[Row]:
    """Decisions of another process while trainings run on every processor: 99th percentile against undisturbed."""
    alone_us = _probe(store, span_s)
    yield _row("decision_p99_undisturbed", alone_us, "us")
    for priority in PRIORITIES:
        trainings = [_endless(log, folder / f"{priority}-{k}", priority) for k in range(2)]
        try:
            beside_us = _probe(store, span_s)
        finally:
            for training in trainings:
                training.terminate()
                training.wait()
        yield _row(f"decision_p99_beside_training_{priority}", beside_us / alone_us, "ratio")


def _endless(log: Path, store: Path, priority: Priority) -> subprocess.Popen[bytes]:
    """Trainings one after the other until it is stopped."""
    program = f"""
import sys
from planner.cli.main import cli
arguments = {_command(log, store, priority)[3:]!r}
while True:
    cli(arguments, standalone_mode=False)
"""
    return subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _probe(store: Path, span_s: float) -> float:
    command = [sys.executable, "-m", "benchmarks.bench_training", str(store), str(span_s)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(json.loads(ran.stdout)["p99_us"])


def time_decisions(store: Path, span_s: float) -> float:
    """99th percentile in microseconds of predictions for ``CANDIDATES`` endpoints, one each ``PACE_S``."""
    from models.store import ModelStore

    predictor = ModelStore(store).load()
    probe = np.array(predictor.card.probe.features, dtype=np.float64)
    features = np.ascontiguousarray(np.resize(probe, (CANDIDATES, probe.shape[1])))
    predictor.predict(features)
    times, due = [], time.perf_counter()
    until = due + span_s
    while due < until:
        time.sleep(max(due - time.perf_counter(), 0.0))
        predictor.predict(features)
        # From the moment it was due: a caller also feels how long the router waited for a processor.
        times.append(time.perf_counter() - due)
        due = max(due + PACE_S, time.perf_counter())
    return float(np.quantile(times, 0.99)) * 1e6


def _row(name: str, value: float, unit: str, target: str | None = None, met: bool | None = None) -> Row:
    return {
        "id": name,
        "area": "training",
        "value": value,
        "unit": unit,
        "reference": None,
        "ratio": None,
        "target": target,
        "met": met,
    }


if __name__ == "__main__":
    print(json.dumps({"p99_us": time_decisions(Path(sys.argv[1]), float(sys.argv[2]))}))
