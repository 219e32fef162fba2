"""What the API can ask for: the loop, its store, and questions answered in processes of their own."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from data.catalog.load import load_catalog
from data.errors import DocumentError, PlanFileError, SettingError
from data.fleet.check import check_fleet
from data.fleet.load import parse_fleet
from data.fleet.types import Fleet
from planner.api.messages import WhatIfQuestion
from planner.api.problem import ProblemError
from planner.demand import DemandTable
from planner.demand_file import parse_demand
from planner.loop.runner import PlannerLoop
from planner.loop.what_if import WhatIf, WhatIfJob, surviving, what_if, without_gpus
from planner.plan_store.layout import Published
from planner.work_pool import WorkError


@dataclass(frozen=True, slots=True)
class DeskSettings:
    """Bounds of the API.

    Attributes:
        what_if_deadline_s: Time for one question (1 to 3,600).
        what_if_limit_s: Time of its placement search (0.1 to the deadline).
        what_if_at_a_time: Questions answered at a time; one more is refused (1 to 64).
        most_bytes: Largest body of a request (1,000 to 100,000,000).
        body_wait_s: Longest time that a body may take to come (0.1 to 3,600).
        calls_at_a_time: Calls served at a time, health pages not counted; one more is refused (1 to 10,000).
    """

    what_if_deadline_s: float = 60.0
    what_if_limit_s: float = 20.0
    what_if_at_a_time: int = 1
    most_bytes: int = 4_000_000
    body_wait_s: float = 30.0
    calls_at_a_time: int = 64

    def __post_init__(self) -> None:
        for name, low, high in (
            ("what_if_deadline_s", 1, 3600),
            ("what_if_limit_s", 0.1, self.what_if_deadline_s),
            ("what_if_at_a_time", 1, 64),
            ("most_bytes", 1000, 100_000_000),
            ("body_wait_s", 0.1, 3600),
            ("calls_at_a_time", 1, 10_000),
        ):
            value = getattr(self, name)
            if not low <= value <= high:
                raise SettingError("out of range", field=name, value=value, expected=f"{low:g} to {high:,g}")


class Desk:
    """Answers for the API; safe to use from many threads.

    Args:
        loop: The loop.
        settings: Bounds.
        apart: Runs a question elsewhere; see :func:`planner.apart.run_apart`.
        clock: Seconds since the epoch.
    """

    def __init__(
        self, loop: PlannerLoop, settings: DeskSettings, apart: Callable[..., Any], clock: Callable[[], float]
    ) -> None:
        self.loop, self.settings = loop, settings
        self._apart, self._clock = apart, clock
        self._questions = threading.BoundedSemaphore(settings.what_if_at_a_time)

    def current(self) -> Published:
        """What is in force; a problem where nothing is yet."""
        found = self.loop.parts.store.current()
        if found is None:
            raise ProblemError(404, "no-plan", "no plan has been published yet")
        return found

    def version(self, number: int) -> Published:
        """One version; a problem where there is none."""
        try:
            return self.loop.parts.store.folder.version(number)
        except PlanFileError as error:
            raise ProblemError(404, "no-version", str(error)) from error

    def ask(self, question: WhatIfQuestion) -> WhatIf:
        """Answer a what-if question, within the deadline and the bound on questions at a time."""
        loop = self.loop
        fleet = asked_fleet(question, loop.fleet)
        demand = asked_demand(question, fleet, loop.state.recent)
        current = loop.parts.store.current()
        planner = loop.parts.planner
        limit_s = min(planner.placement.time_limit_s, self.settings.what_if_limit_s)
        job = WhatIfJob(
            fleet,
            demand,
            question.demand_scale,
            None if current is None else surviving(current.plan, _counts(question)),
            self._clock(),
            replace(planner, placement=replace(planner.placement, time_limit_s=limit_s)),
            loop.parts.loop,
        )
        with self._turn():
            try:
                answer: WhatIf = self._apart(what_if, job, deadline_s=self.settings.what_if_deadline_s)
            except WorkError as error:
                raise ProblemError(504, "deadline", f"the question was given up: {error}") from error
        return answer

    @contextmanager
    def _turn(self) -> Iterator[None]:
        if not self._questions.acquire(blocking=False):
            after = f"{self.settings.what_if_limit_s:.0f}"
            raise ProblemError(
                429, "busy", "as many questions are being answered as may be", {"Retry-After": after}
            )
        try:
            yield
        finally:
            self._questions.release()


def asked_fleet(question: WhatIfQuestion, fleet: Fleet) -> Fleet:
    """The fleet that a question is about.

    Raises:
        DocumentError: It is wrong, with all its faults.
    """
    if question.fleet is not None:
        fleet = parse_fleet(json.dumps(question.fleet), "fleet")
    if not question.gpus:
        return fleet
    fleet = without_gpus(fleet, _counts(question))
    faults = check_fleet(fleet, load_catalog())
    if faults:
        error = DocumentError(faults[0].problem, source="gpus", field=faults[0].field, expected=faults[0].expected)
        error.problems = tuple(faults)
        raise error
    return fleet


def asked_demand(question: WhatIfQuestion, fleet: Fleet, recent: tuple[DemandTable, ...]) -> DemandTable:
    """The demand that a question is about, else that of the loop's last good step.

    Raises:
        InputError: It is wrong.
        ProblemError: None is given and none is known.
    """
    if question.demand is not None:
        text = json.dumps(question.demand.model_dump(exclude_unset=True))
        return parse_demand(text, "demand", fleet)
    if not recent:
        raise ProblemError(409, "no-demand", "no demand is known yet: give one in the question")
    known = {model.key for model in fleet.models}
    rows = tuple(row for row in recent[-1].rows if row.model in known)
    return replace(recent[-1], rows=rows, missing=())


def _counts(question: WhatIfQuestion) -> dict[tuple[str, str], int]:
    return {(change.site, change.gpu_type): change.count for change in question.gpus}
