"""Runs many (arm, seed) jobs on a work pool and keeps their order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from planner.arm import Arm
from planner.local_pool import LocalPool, default_workers
from planner.sim.result import RunResult
from planner.work_pool import WorkPool

__all__ = ["MakeRun", "OnDone", "RunPool", "default_workers"]

MakeRun = Callable[[Arm, int], RunResult]
"""Runs one arm with one seed; must be picklable when several workers are used."""
OnDone = Callable[[Arm, int, RunResult], None]
"""Told of each finished run, in the order in which runs finish."""
Job = tuple[Arm, int]


class RunPool:
    """Runs jobs on a work pool; given a number, on that many processes of this machine (1 = this process).

    Use it as a context manager. Leaving it through an exception (an interrupt included) stops the workers at
    once; nothing that they were doing reaches a file.
    """

    def __init__(self, workers: int | WorkPool) -> None:
        self._pool: WorkPool = LocalPool(workers) if isinstance(workers, int) else workers

    @property
    def workers(self) -> int:
        """Runs that go on at the same time."""
        return self._pool.workers

    def __enter__(self) -> Self:
        self._pool.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.__exit__(kind, error, trace)

    def run(self, make_run: MakeRun, jobs: Sequence[Job], on_done: OnDone | None = None) -> list[RunResult]:
        """Results in the order of ``jobs``; the first error of a run is raised as it was."""
        results: dict[int, RunResult] = {}
        for index, result in self._pool.map(_Run(make_run), jobs):
            results[index] = result
            if on_done is not None:
                on_done(*jobs[index], result)
        return [results[index] for index in range(len(jobs))]


@dataclass(frozen=True, slots=True)
class _Run:
    """A run as a function of one job."""

    make_run: MakeRun

    def __call__(self, job: Job) -> RunResult:
        return self.make_run(*job)
