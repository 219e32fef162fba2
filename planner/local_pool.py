"""The work pool of one machine: worker processes, or this process alone.

Workers are *spawned*, not forked: the parent may hold threads of OpenMP, gRPC or a solver, and a fork copies their
locks but not the threads, which hangs the child. A spawned worker costs about a second of imports once per pool.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

from data.errors import SettingError
from planner.work_pool import Job, Result, WorkSettings, deadline_error, died_error


class LocalPool:
    """Runs jobs on up to ``workers`` processes; with one worker everything runs in this process.

    Use it as a context manager. Leaving it through an exception (an interrupt included) stops the workers at
    once; nothing that they were doing reaches a file. In this process alone a deadline is looked at between jobs.

    Args:
        workers: Processes (1 or more).
        settings: Limits of each ``map``.
        clock: Seconds that only go forward.
    """

    def __init__(
        self,
        workers: int,
        settings: WorkSettings | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if workers < 1:
            raise SettingError("setting out of range", field="workers", value=workers, expected="1 or more")
        self.workers = workers
        self.settings = settings or WorkSettings()
        self._clock = clock
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

    def map(self, function: Callable[[Job], Result], jobs: Sequence[Job]) -> Iterator[tuple[int, Result]]:
        """See :meth:`planner.work_pool.WorkPool.map`."""
        limit_s = self.settings.deadline_s
        until_s = None if limit_s is None else self._clock() + limit_s
        if self.workers == 1 or len(jobs) <= 1:
            return self._map_here(function, jobs, until_s)
        return self._map_out(function, jobs, until_s)

    def _map_here(
        self, function: Callable[[Job], Result], jobs: Sequence[Job], until_s: float | None
    ) -> Iterator[tuple[int, Result]]:
        for index, job in enumerate(jobs):
            if until_s is not None and self._clock() >= until_s:
                raise deadline_error(self.settings, len(jobs) - index, len(jobs))
            yield index, function(job)

    def _map_out(
        self, function: Callable[[Job], Result], jobs: Sequence[Job], until_s: float | None
    ) -> Iterator[tuple[int, Result]]:
        waiting = deque(range(len(jobs)))
        running: dict[Future[Result], int] = {}
        tries = [0] * len(jobs)
        while waiting or running:
            while waiting and len(running) < self.workers * self.settings.in_flight:
                index = waiting.popleft()
                tries[index] += 1
                running[self._submit(function, jobs[index])] = index
            left_s = None if until_s is None else max(until_s - self._clock(), 0.0)
            finished, _ = wait(running, timeout=left_s, return_when=FIRST_COMPLETED)
            if not finished:
                self._discard()
                raise deadline_error(self.settings, len(waiting) + len(running), len(jobs))
            died = sorted(running[one] for one in finished if isinstance(one.exception(), BrokenProcessPool))
            for future in sorted(finished, key=running.__getitem__):
                index = running.pop(future)
                if index not in died:
                    yield index, future.result()
            if died:
                # One death breaks the whole executor: everything handed out is lost with it.
                again = sorted({*died, *running.values()})
                running.clear()
                self._discard()
                for index in again:
                    if tries[index] > self.settings.retries:
                        raise died_error(jobs[index], tries[index])
                waiting.extendleft(reversed(again))

    def _submit(self, function: Callable[[Job], Result], job: Job) -> Future[Result]:
        with _interrupts_held_back():  # the first job starts the workers
            try:
                return self._started().submit(function, job)
            except BrokenProcessPool as error:
                # A worker died between two jobs; the caller finds it among the finished ones.
                future: Future[Result] = Future()
                future.set_exception(error)
                return future

    def _started(self) -> ProcessPoolExecutor:
        if self._executor is None:
            self._others = {child.pid for child in multiprocessing.active_children()}
            context = multiprocessing.get_context("spawn")
            self._executor = ProcessPoolExecutor(self.workers, mp_context=context)
        return self._executor

    def _discard(self) -> None:
        """Stop the workers and forget their executor; the next job starts others."""
        if self._executor is not None:
            self._stop_workers()
            self._executor.shutdown(wait=True, cancel_futures=True)
            self._executor = None

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
    before: Any = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
