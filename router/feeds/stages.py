"""Stages in the life of an endpoint, and how long each one spent in them.

Stages before ``ready`` only go forward within one incarnation: an engine that has answered once is not loading its
process any more, whatever a later attempt runs into.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

MOST_GONE = 100
"""Endpoints that left and are remembered, the latest ones."""


class Stage(enum.StrEnum):
    """Where an endpoint stands."""

    PLANNED = "planned"
    """It is listed; nothing has been heard from it and nothing tried."""
    LOADING = "loading"
    """It was tried and does not answer yet."""
    WARMING = "warming"
    """Its process answers, but no completion has succeeded."""
    READY = "ready"
    """It may take requests, as far as its health and load allow."""
    DRAINING = "draining"
    """It takes no new requests and ends what it has."""
    GONE = "gone"
    """It is listed no more."""


COMING = (Stage.PLANNED, Stage.LOADING, Stage.WARMING)
"""Stages before the first request, in their order."""


@dataclass(slots=True)
class Life:
    """One incarnation of an endpoint.

    Attributes:
        stage: Where it stands now.
        since_s: Since when, by the clock of the book.
        coming: How far it has come on the way to ``ready``.
        why: Why the latest probe failed, one word; empty = none failed.
        spent_s: Seconds in the stages that it has left, each.
    """

    stage: Stage
    since_s: float
    coming: Stage = Stage.PLANNED
    why: str = ""
    spent_s: dict[Stage, float] = field(default_factory=dict)

    def seconds(self, now_s: float) -> dict[Stage, float]:
        """Seconds in each stage that it has entered, the present one included."""
        found = dict(self.spent_s)
        found[self.stage] = found.get(self.stage, 0.0) + max(now_s - self.since_s, 0.0)
        return found


class StageBook:
    """Lives of all listed endpoints by id, and of the latest ones that left.

    Args:
        clock: Seconds; only differences count.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.lives: dict[str, Life] = {}
        self.gone: deque[tuple[str, Life]] = deque(maxlen=MOST_GONE)
        """Endpoints that left, oldest first."""
        self.left_in_all = 0
        """Endpoints that left since the start."""

    def begin(self, endpoint_id: str) -> None:
        """The endpoint is new, or another incarnation of it began."""
        self.lives[endpoint_id] = Life(Stage.PLANNED, self._clock())

    def came_to(self, endpoint_id: str, stage: Stage, why: str = "") -> None:
        """It has come as far as ``stage`` of ``COMING``; unknown ids are ignored."""
        life = self.lives.get(endpoint_id)
        if life is None:
            return
        life.why = why or life.why
        if COMING.index(stage) > COMING.index(life.coming):
            life.coming = stage
            if life.stage in COMING:
                self._enter(life, stage)

    def note(self, endpoint_id: str, ready: bool, draining: bool) -> None:
        """What the router's table says of it; unknown ids are ignored."""
        life = self.lives.get(endpoint_id)
        if life is None:
            return
        if ready:
            life.why = ""
        self._enter(life, Stage.DRAINING if draining else Stage.READY if ready else life.coming)

    def left(self, endpoint_id: str) -> None:
        """It is listed no more."""
        life = self.lives.pop(endpoint_id, None)
        if life is not None:
            self._enter(life, Stage.GONE)
            self.gone.append((endpoint_id, life))
            self.left_in_all += 1

    def _enter(self, life: Life, stage: Stage) -> None:
        if life.stage is not stage:
            now_s = self._clock()
            life.spent_s = life.seconds(now_s)
            life.stage, life.since_s = stage, now_s
