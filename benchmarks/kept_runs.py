"""Runs that are kept in a file as they end, so that a benchmark that was stopped goes on where it was.

The file should be for one state of the code (:func:`code_digest` in its name); a run is found again only if its
scenario, arm and seed read the same.
"""

from __future__ import annotations

import hashlib
import pickle
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from planner.arm import Arm
from planner.run_pool import MakeRun, OnDone, RunPool
from planner.sim.result import RunResult

SOURCES = ("benchmarks", "data", "models", "planner", "router", "solver")
ROOT = Path(__file__).resolve().parents[1]


def code_digest(root: Path = ROOT) -> str:
    """Of all source files, their names included."""
    digest = hashlib.sha256()
    for folder in SOURCES:
        for path in sorted((root / folder).rglob("*.py")):
            digest.update(str(path.relative_to(root)).encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


class KeptRuns(RunPool):
    """A pool whose results go to a file; those that are there already are not run again.

    Args:
        workers: Processes; 1 = this one.
        path: The file, made on first use. A part that was being written when the process ended is left out.
    """

    def __init__(self, workers: int, path: Path) -> None:
        super().__init__(workers)
        self._path = path
        self._found = dict(_read(path))

    def __len__(self) -> int:
        """Runs that are kept."""
        return len(self._found)

    def run(
        self, make_run: MakeRun, jobs: Sequence[tuple[Arm, int]], on_done: OnDone | None = None
    ) -> list[RunResult]:
        """As ``RunPool.run``; each new run is told on stderr and kept."""
        keys = [_key(make_run, *job) for job in jobs]
        missing = [place for place, key in enumerate(keys) if key not in self._found]
        began = time.perf_counter()

        def keep(arm: Arm, seed: int, result: RunResult) -> None:
            self._keep(_key(make_run, arm, seed), result)
            line = f"{arm.name}, seed {seed}: {time.perf_counter() - began:.0f} s"
            print(f"   run {len(self._found)}, {line}", file=sys.stderr, flush=True)

        super().run(make_run, [jobs[place] for place in missing], keep)
        results = [self._found[key] for key in keys]
        if on_done is not None:
            for job, result in zip(jobs, results, strict=True):
                on_done(*job, result)
        return results

    def _keep(self, key: str, result: RunResult) -> None:
        self._found[key] = result
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("ab") as file:
            pickle.dump((key, result), file)

    def forget(self) -> None:
        """The benchmark has ended: remove the file."""
        self._path.unlink(missing_ok=True)


def _key(make_run: MakeRun, arm: Arm, seed: int) -> str:
    """Of what a run depends on; ``make_run`` is a method of a scenario, or a function of arm and seed alone."""
    owner: Any = getattr(make_run, "__self__", make_run)
    text = repr((owner, getattr(make_run, "__name__", ""), arm, seed))
    return hashlib.sha256(text.encode()).hexdigest()


def _read(path: Path) -> list[tuple[str, RunResult]]:
    found: list[tuple[str, RunResult]] = []
    if not path.exists():
        return found
    whole = 0
    with path.open("rb+") as file:
        while True:
            try:
                found.append(pickle.load(file))
            except (EOFError, pickle.UnpicklingError):
                file.truncate(whole)
                return found
            whole = file.tell()
