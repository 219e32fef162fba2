"""Dynamo's offline replay serves what our router chose, where its interpreter is installed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.proof.referee.assignment import assigned
from benchmarks.proof.referee.figures import figures
from benchmarks.proof.referee.replay import PYTHON, dynamo_python, replayed
from benchmarks.proof.referee.step_curves import common
from benchmarks.proof.scenarios import CLASSES
from data.fleet.reference import reference_fleet
from planner.arm import Arm
from planner.scenario import Scenario, carried_out
from planner.sim.settings import SimSettings
from planner.trace_source import FileTrace, Shaped

pytestmark = pytest.mark.skipif(dynamo_python() is None, reason=f"{PYTHON} names no interpreter")


def test_equal_step_times_give_nearly_equal_times_on_every_gpu(tmp_path: Path) -> None:
    rng, path = np.random.default_rng(5), tmp_path / "trace.jsonl"
    with path.open("w") as lines:
        for number in range(600):
            length = 512 * int(rng.integers(0, 18)) + int(rng.integers(100, 500))
            talk = 1000 * int(rng.integers(1, 30))
            row = {
                "timestamp": 300 * number,
                "input_length": length,
                "output_length": int(rng.integers(2, 300)),
                "hash_ids": [*(talk + block for block in range(length // 512)), 100_000 + number],
            }
            lines.write(json.dumps(row) + "\n")
    source = Shaped(FileTrace(str(path), "mooncake"), classes=CLASSES)
    scenario = Scenario(reference_fleet("mixed-pool"), source, SimSettings(step_noise=0.0))
    specs = [common(spec) for spec in carried_out(scenario.fleet, None).specs]
    found = assigned(scenario, specs, Arm("least_request", "least_request"), 1)
    python = dynamo_python()
    assert python is not None
    served = replayed(python, found, "cold_prompt")
    mine, theirs = figures(found, found.times, found.hit_rate), figures(found, served.times, served.hit_rate)
    assert theirs["completed"] == mine["completed"] == len(found.dispatches)
    for gpu in ("L40S", "A100", "H100"):
        rows = [row for row, one in enumerate(found.dispatches) if specs[one.endpoint].gpu_type == gpu]
        ratio = served.times[rows].mean(axis=0) / found.times[rows].mean(axis=0)
        assert ratio == pytest.approx([1.0, 1.0], abs=0.05)
    assert theirs["hit_rate"] == pytest.approx(mine["hit_rate"], abs=0.03)
