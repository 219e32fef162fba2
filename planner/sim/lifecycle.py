"""The life of engines: started, loading, ready, down, drained; what breaks; and the GPU time they hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from data.errors import SettingError
from planner.sim.changes import Drain, Start
from planner.sim.engines import Engines
from planner.sim.events import EventQueue, Handler
from planner.sim.sequence import Sequence as EngineSequence
from planner.sim.settings import FailureEvent
from router.endpoints import EndpointSpec
from router.types import BoolArray

Life = Literal["off", "loading", "ready", "down"]
OnLost = Callable[[float, list[EngineSequence]], None]
"""Moment and sequences that a crash took."""
OnLeft = Callable[[float, int], None]
"""Moment and endpoint that has drained."""


class Lifecycle:
    """Who is up, from the start of the run to its end.

    Args:
        engines: What is started, drained and broken.
        specs: The endpoints.
        events: Where changes and failures are put.
        draining: The router's column of draining endpoints: drains are its own orders, so it knows at once.

    Attributes:
        in_flight: Attempts sent to each endpoint that have not ended, in transit or in the engine.
        on_lost: Told of each crash; set by whoever puts the run together.
        on_left: Told of each endpoint that has drained; the same.
    """

    def __init__(
        self, engines: Engines, specs: Sequence[EndpointSpec], events: EventQueue, draining: BoolArray
    ) -> None:
        n = len(specs)
        self._engines = engines
        self._specs = specs
        self._events = events
        self._draining = draining
        self.in_flight = [0] * n
        self._life: list[Life] = ["ready"] * n
        # Number of the last thing that happened to an endpoint: a later event of an earlier thing is void.
        self._episode = [0] * n
        self._held_since = [0.0] * n
        self._gpu_seconds = 0.0
        self.on_lost: OnLost
        self.on_left: OnLeft

    def begin(
        self,
        start_s: float,
        starts: Sequence[Start],
        drains: Sequence[Drain],
        failures: Sequence[FailureEvent],
    ) -> None:
        """Put all that is planned into the queue; GPU time counts from here on.

        Raises:
            SettingError: If an endpoint is not a row number.
        """
        self._held_since = [start_s] * len(self._specs)
        seen: set[int] = set()
        changes: list[Start | Drain] = [*starts, *drains]
        for change in sorted(changes, key=lambda change: change.at_s):
            self._check(change.endpoint)
            if isinstance(change, Start) and change.endpoint not in seen:
                self._life[change.endpoint] = "off"
                self._engines.truth.ready[change.endpoint] = False
            seen.add(change.endpoint)
            handler: Handler = self._start if isinstance(change, Start) else self._drain
            self._events.push(max(change.at_s, start_s), handler, change)
        kinds: dict[str, Handler] = {"crash": self._crash, "slow": self._disturb, "hang": self._disturb}
        for failure in failures:
            self._check(failure.endpoint)
            self._events.push(max(failure.at_s, start_s), kinds[failure.kind], failure)

    def up(self, endpoint: int) -> bool:
        """Whether the engine accepts connections."""
        return self._life[endpoint] == "ready"

    def flight_ended(self, endpoint: int, now_s: float) -> None:
        """An attempt that was sent here has ended; a draining endpoint goes when it was the last one."""
        self.in_flight[endpoint] -= 1
        if self._draining[endpoint]:
            self._leave_if_empty(endpoint, now_s)

    def gpu_hours(self, now_s: float) -> float:
        """GPU time from the start of the run to now: held from the start command to the end of the drain."""
        held = [self._held_s(row, now_s) for row, life in enumerate(self._life) if life != "off"]
        return (self._gpu_seconds + sum(held)) / 3600.0

    def _start(self, now_s: float, change: Start) -> None:
        endpoint = change.endpoint
        self._draining[endpoint] = False
        if self._life[endpoint] == "off":
            self._held_since[endpoint] = now_s
            self._load(now_s, endpoint, change.load_s)

    def _drain(self, now_s: float, change: Drain) -> None:
        self._draining[change.endpoint] = True
        self._leave_if_empty(change.endpoint, now_s)

    def _leave_if_empty(self, endpoint: int, now_s: float) -> None:
        if self.in_flight[endpoint] or self._life[endpoint] == "off":
            return
        self._gpu_seconds += self._held_s(endpoint, now_s)
        self._life[endpoint] = "off"
        self._episode[endpoint] += 1
        self._engines.lose(endpoint, now_s)
        self.on_left(now_s, endpoint)

    def _load(self, now_s: float, endpoint: int, load_s: float | None) -> None:
        self._life[endpoint] = "loading"
        seconds = self._specs[endpoint].load_s if load_s is None else load_s
        self._later(now_s + seconds, self._loaded, endpoint)

    def _loaded(self, _now_s: float, argument: tuple[int, int]) -> None:
        endpoint, episode = argument
        if self._episode[endpoint] == episode:
            self._life[endpoint] = "ready"
            self._engines.truth.ready[endpoint] = True

    def _crash(self, now_s: float, failure: FailureEvent) -> None:
        endpoint = failure.endpoint
        if self._life[endpoint] == "off":
            return
        self._life[endpoint] = "down"
        lost = self._engines.lose(endpoint, now_s)
        self._later(now_s + failure.duration_s, self._restart, endpoint)
        self.on_lost(now_s, lost)

    def _restart(self, now_s: float, argument: tuple[int, int]) -> None:
        endpoint, episode = argument
        if self._episode[endpoint] == episode:
            self._load(now_s, endpoint, None)

    def _disturb(self, now_s: float, failure: FailureEvent) -> None:
        if self._life[failure.endpoint] != "ready":
            return
        hung = failure.kind == "hang"
        self._engines.disturb(failure.endpoint, now_s, 1.0 if hung else failure.factor, hung)
        self._later(now_s + failure.duration_s, self._recover, failure.endpoint)

    def _recover(self, now_s: float, argument: tuple[int, int]) -> None:
        endpoint, episode = argument
        if self._episode[endpoint] == episode:
            self._engines.disturb(endpoint, now_s, 1.0, hung=False)

    def _later(self, at_s: float, handler: Handler, endpoint: int) -> None:
        """Call back unless something else happens to the endpoint meanwhile."""
        self._episode[endpoint] += 1
        self._events.push(at_s, handler, (endpoint, self._episode[endpoint]))

    def _held_s(self, endpoint: int, now_s: float) -> float:
        return max(now_s - self._held_since[endpoint], 0.0) * self._specs[endpoint].gpus

    def _check(self, endpoint: int) -> None:
        if not 0 <= endpoint < len(self._specs):
            most = len(self._specs) - 1
            raise SettingError("no such endpoint", field="endpoint", value=endpoint, expected=f"0 to {most}")
