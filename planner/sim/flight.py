"""One request on its way through a run, from its first arrival to its last attempt."""

from __future__ import annotations

import math
from dataclasses import dataclass

from data.fleet.types import WorkloadClass
from data.types import Request
from planner.sim.meter import Groups
from planner.sim.network import Paths
from planner.sim.sequence import Sequence
from router.types import RouteRequest

LEARNING_COUNT = 20
"""The declared mean output of a class weighs as much as this many observed requests."""


class ClassState:
    """One workload class in a run, with the mean output length that the router has learned.

    The mean starts at the declared one and moves with every completed request; the router never sees the length
    of a request before it has ended.
    """

    __slots__ = ("_count", "_tokens", "kind")

    def __init__(self, kind: WorkloadClass) -> None:
        self.kind = kind
        self._count = LEARNING_COUNT
        self._tokens = float(kind.expected_output_tokens * LEARNING_COUNT)

    @property
    def expected_output_tokens(self) -> float:
        """Mean output length known so far."""
        return self._tokens / self._count

    def learn(self, output_tokens: int) -> None:
        """A request of the class completed with that output length."""
        self._count += 1
        self._tokens += output_tokens


@dataclass(slots=True, eq=False)
class Flight:
    """State of one request; the fields below ``attempt`` belong to its current attempt.

    Attributes:
        arrival_s: First arrival; all times that clients see count from here.
        open: It has not ended for good.
        attempt: Counts from 0.
        active: The attempt was dispatched and has not ended.
        waiting: It stands in a queue of the flow control.
        broken: Its connection is dead, which is noticed in a while: nothing that comes back arrives.
        decided_s: When it was dispatched.
        delivered_s: When the engine got it; NaN before.
        engine_first_s: When the engine made its first token; NaN before.
        first_s: When the client had its first token; NaN before.
    """

    request: Request
    state: ClassState
    groups: Groups
    paths: Paths
    arrival_s: float
    model: str
    tenant: str
    open: bool = True
    attempt: int = 0
    active: bool = False
    waiting: bool = False
    broken: bool = False
    endpoint: int = -1
    lease: int = -1
    route: RouteRequest | None = None
    sequence: Sequence | None = None
    decided_s: float = 0.0
    delivered_s: float = math.nan
    engine_first_s: float = math.nan
    first_s: float = math.nan

    def begin(self, now_s: float) -> None:
        """A further attempt is decided on now."""
        self.decided_s = now_s
        self.first_s = self.delivered_s = self.engine_first_s = math.nan
        self.endpoint, self.sequence, self.broken = -1, None, False
