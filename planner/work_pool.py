"""Where many independent jobs run: one small seam, so that callers need not know of processes or clusters.

``planner.local_pool`` runs jobs on this machine, ``planner.ray_pool`` on a Ray cluster. A job's result depends on
the function and the job alone, so both give the same results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from data.errors import SettingError, TokenFleetError

Job = TypeVar("Job")
Result = TypeVar("Result")


class WorkError(TokenFleetError):
    """Jobs could not be finished: workers died again and again, or the time was up."""


@dataclass(frozen=True, slots=True)
class WorkSettings:
    """Limits of one ``map``.

    Attributes:
        in_flight: Jobs handed out at a time, for each worker (1 to 1,000); the rest wait here.
        retries: How often a job is tried again after the worker that ran it died (0 to 100). An error that the
            job itself raises is never retried.
        deadline_s: Time for all jobs of one ``map`` (> 0); ``None`` = as long as it takes.
    """

    in_flight: int = 2
    retries: int = 1
    deadline_s: float | None = None

    def __post_init__(self) -> None:
        for name, low, high in (("in_flight", 1, 1000), ("retries", 0, 100)):
            value = getattr(self, name)
            if not low <= value <= high:
                raise SettingError("setting out of range", field=name, value=value, expected=f"{low} to {high}")
        if self.deadline_s is not None and not self.deadline_s > 0:
            raise SettingError(
                "setting out of range", field="deadline_s", value=self.deadline_s, expected="above 0, or none"
            )


class WorkPool(Protocol):
    """Runs jobs somewhere. Leaving its ``with`` block through an exception stops what still runs."""

    @property
    def workers(self) -> int:
        """Jobs that run at the same time."""
        ...

    def map(self, function: Callable[[Job], Result], jobs: Sequence[Job]) -> Iterator[tuple[int, Result]]:
        """``(index, function(jobs[index]))`` of every job, in the order in which they finish.

        Args:
            function: Picklable where there are other processes; it must give the same result wherever it runs.
            jobs: Picklable too. They are handed out in order.

        Raises:
            WorkError: The deadline passed, or a job's workers died more often than it may be retried.
            Exception: The first error of a job, as it was raised there.
        """
        ...

    def __enter__(self) -> WorkPool:
        """Start to use the pool."""
        ...

    def __exit__(self, *raised: Any) -> None:
        """Free what the pool holds; after an exception, stop the workers at once."""
        ...


def in_order(pool: WorkPool, function: Callable[[Job], Result], jobs: Sequence[Job]) -> Iterator[Result]:
    """Results in the order of ``jobs``, each as soon as it and those before it are there."""
    early: dict[int, Result] = {}
    following = 0
    for index, result in pool.map(function, jobs):
        early[index] = result
        while following in early:
            yield early.pop(following)
            following += 1


def deadline_error(settings: WorkSettings, unfinished: int, total: int) -> WorkError:
    """The error of a ``map`` that ran out of time."""
    return WorkError(f"{unfinished} of {total} jobs unfinished after the deadline of {settings.deadline_s:g} s")


def died_error(job: object, tries: int) -> WorkError:
    """The error of a job whose workers died every time."""
    text = repr(job)
    shown = text if len(text) <= 120 else text[:117] + "..."
    times = "once" if tries == 1 else f"{tries} times"
    return WorkError(f"a worker process died {times} while a job waited or ran (out of memory?): {shown}")
