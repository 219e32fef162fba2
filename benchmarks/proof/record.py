"""The contest as one dated file: every cell, arm and seed, with the machine and the versions that ran it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.machine import machine
from benchmarks.proof.contest import SEEDS, CellResult
from benchmarks.proof.runs import RunFile
from planner.arm import Arm
from planner.measures import ATTAINMENT_OFFERED, GOODPUT, HIT_RATE, TTFT_P50, TTFT_P95

FIGURES = (GOODPUT, ATTAINMENT_OFFERED, TTFT_P50, TTFT_P95, HIT_RATE)
PACKAGES = ("numpy", "scipy", "lightgbm", "numba", "ortools")


def write_record(path: Path, results: Sequence[CellResult], runs: RunFile) -> None:
    """Write the file, one line a cell, aside and then in its place."""
    head = {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "versions": {name: version(name) for name in PACKAGES},
        "commit": _commit(),
        "seeds": list(SEEDS),
    }
    cells = ",\n".join(json.dumps(_cell(result, runs)) for result in results)
    aside = path.with_suffix(".tmp")
    aside.write_text(f'{json.dumps(head)[:-1]}, "cells": [\n{cells}\n]}}\n')
    aside.replace(path)


def _cell(result: CellResult, runs: RunFile) -> dict[str, Any]:
    cell = result.cell
    return {
        "fleet": cell.fleet,
        "trace": cell.trace,
        "level": cell.level,
        "speed": round(cell.speed, 6),
        "arms": [_arm(result, arm, runs) for arm in result.arms],
    }


def _arm(result: CellResult, arm: Arm, runs: RunFile) -> dict[str, Any]:
    figures = {
        measure.key: [round(value, 5) for value in runs.values(result.cell, arm, SEEDS, measure)]
        for measure in FIGURES
    }
    return {"name": arm.name, "policy": arm.policy, "settings": dict(arm.settings), **figures}


def _commit() -> str | None:
    """The checkout's commit, if it is one."""
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return done.stdout.strip() or None
