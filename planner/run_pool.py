"""Runs many (arm, seed) jobs, in worker processes where that helps.

Workers are *spawned*, not forked: the parent may hold threads of OpenMP, gRPC or a solver, and a fork copies their
locks but not the threads, which hangs the child. A spawned worker costs about a second of imports once per pool.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from data.errors import SettingError, TokenFleetError
from planner.arm import Arm
from planner.sim.result import RunResult

MakeRun = Callable[[Arm, int], RunResult]
"""Runs one arm with one seed; must be picklable when several workers are used."""
OnDone = Callable[[Arm, int, RunResult], None]
"""Told of each finished run, in the order in which runs finish."""
Job = tuple[Arm, int]


class RunPool:
    """Runs jobs on up to ``workers`` processes; with one worker everything runs in this process.

    Use it as a context manager. Leaving it through an exception (an interrupt included) stops the workers at
    once; nothing that they were doing reaches a file.
    """

    def __init__(self, workers: int) -> None:
        if workers < 1:
            raise SettingError("setting out of range", field="workers", value=workers, expected="1 or more")
        self.workers = workers
        self._executor: ProcessPoolExecutor | None = None
        self._others: set[int | None] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._executor is None:
            return
        if kind is not None:
            self._stop_workers()
        self._executor.shutdown(wait=True, cancel_futures=True)
        self._executor = None

    def run(self, make_run: MakeRun, jobs: Sequence[Job], on_done: OnDone | None = None) -> list[RunResult]:
        """Results in the order of ``jobs``; the first error of a run is raised as it was."""
        if self.workers == 1 or len(jobs) <= 1:
            return [_run_here(make_run, job, on_done) for job in jobs]
        executor = self._started()
        with _interrupts_held_back():  # the first job starts the workers
            futures: dict[Future[RunResult], int] = {
                executor.submit(make_run, arm, seed): index for index, (arm, seed) in enumerate(jobs)
            }
        results: dict[int, RunResult] = {}
        waiting = set(futures)
        while waiting:
            finished, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for future in sorted(finished, key=futures.__getitem__):
                index = futures[future]
                results[index] = _result(future, jobs[index])
                if on_done is not None:
                    on_done(*jobs[index], results[index])
        return [results[index] for index in range(len(jobs))]

    def _started(self) -> ProcessPoolExecutor:
        if self._executor is None:
            self._others = {child.pid for child in multiprocessing.active_children()}
            context = multiprocessing.get_context("spawn")
            self._executor = ProcessPoolExecutor(self.workers, mp_context=context)
        return self._executor

    def _stop_workers(self) -> None:
        for child in multiprocessing.active_children():
            if child.pid not in self._others:
                child.terminate()


def default_workers(jobs: int) -> int:
    """One worker a processor, and never more than there are jobs."""
    return max(1, min(os.cpu_count() or 1, jobs))


@contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Ctrl-C reaches every process of the terminal, but only the parent shall act on it and stop the workers.

    Processes started inside inherit the block and keep it from their first instruction on; the parent gets what
    was held back when it leaves.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _run_here(make_run: MakeRun, job: Job, on_done: OnDone | None) -> RunResult:
    result = make_run(*job)
    if on_done is not None:
        on_done(*job, result)
    return result


def _result(future: Future[RunResult], job: Job) -> RunResult:
    try:
        return future.result()
    except BrokenProcessPool as error:
        arm, seed = job
        raise TokenFleetError(
            f"a worker process died while {arm.name!r} with seed {seed} was waiting or running"
            " (out of memory?); try fewer workers"
        ) from error
