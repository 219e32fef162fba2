"""The work pool of a Ray cluster (extra ``ray``): the same results as on one machine, from many of them."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

from planner.ray_session import ray_session
from planner.work_pool import Job, Result, WorkError, WorkSettings, deadline_error, died_error


class RayPool:
    """Runs jobs as Ray tasks of one processor each.

    Use it as a context manager; the connection lasts as long. The workers need this package and the same files
    under the same paths: models, plans and traces are read where a job runs.

    Args:
        address: See :func:`planner.ray_session.ray_session`.
        settings: Limits of each ``map``.
        cpus: Processors of a cluster that is started here.
        clock: Seconds that only go forward.
    """

    def __init__(
        self,
        address: str,
        settings: WorkSettings | None = None,
        *,
        cpus: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.address = address
        self.settings = settings or WorkSettings()
        self._cpus = cpus
        self._clock = clock
        self._stack = ExitStack()
        self._ray: Any = None

    @property
    def workers(self) -> int:
        """Processors of the cluster, at least 1."""
        return max(int(self.ray.cluster_resources().get("CPU", 1)), 1)

    def __enter__(self) -> Self:
        self._ray = self._stack.enter_context(ray_session(self.address, self._cpus))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ray = None
        self._stack.close()

    def map(self, function: Callable[[Job], Result], jobs: Sequence[Job]) -> Iterator[tuple[int, Result]]:
        """See :meth:`planner.work_pool.WorkPool.map`."""
        for index, (reference,) in self._finished(1, function, jobs):
            yield index, self._result(reference, jobs[index])

    def map_held(
        self, function: Callable[[Job], tuple[Any, Result]], jobs: Sequence[Job]
    ) -> Iterator[tuple[int, Any, Result]]:
        """The same for a function that makes something large and tells of it; the large part stays in the cluster.

        Gives ``(index, reference, told)``. If what a reference stands for is lost with its machine, Ray makes it
        again.
        """
        for index, (held, told) in self._finished(2, function, jobs):
            yield index, held, self._result(told, jobs[index])

    def _finished(self, returns: int, function: Any, jobs: Sequence[Any]) -> Iterator[tuple[int, list[Any]]]:
        """References to what each job returned, in the order in which jobs finish."""
        ray = self.ray
        limit_s = self.settings.deadline_s
        until_s = None if limit_s is None else self._clock() + limit_s
        # The function, which may hold a whole scenario, goes to the cluster once.
        shared = ray.put(function)
        task = ray.remote(max_retries=self.settings.retries, num_cpus=1, num_returns=returns)(_call)
        waiting = deque(range(len(jobs)))
        running: dict[Any, tuple[int, list[Any]]] = {}
        most = self.workers * self.settings.in_flight
        try:
            while waiting or running:
                while waiting and len(running) < most:
                    index = waiting.popleft()
                    made = task.remote(shared, jobs[index])
                    references = made if returns > 1 else [made]
                    running[references[-1]] = (index, references)
                left_s = None if until_s is None else max(until_s - self._clock(), 0.0)
                finished, _ = ray.wait(list(running), num_returns=1, timeout=left_s)
                if not finished:
                    raise deadline_error(self.settings, len(waiting) + len(running), len(jobs))
                yield running.pop(finished[0])
        finally:
            for reference in running if self._ray is not None else ():
                ray.cancel(reference, force=True)

    def _result(self, reference: Any, job: object) -> Any:
        ray = self.ray
        try:
            return ray.get(reference)
        except ray.exceptions.RayTaskError as error:
            raise error.cause from error
        except (
            ray.exceptions.WorkerCrashedError,
            ray.exceptions.OutOfMemoryError,
            ray.exceptions.NodeDiedError,
        ) as error:
            raise died_error(job, self.settings.retries + 1) from error

    @property
    def ray(self) -> Any:
        """The connected Ray module; ``WorkError`` outside the ``with`` block."""
        if self._ray is None:
            raise WorkError("a Ray pool is used outside its with block")
        return self._ray


def _call(function: Callable[[Job], Result], job: Job) -> Result:
    return function(job)
