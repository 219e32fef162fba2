"""The life of engines: waiting, loading, ready, down, drained; what breaks; the GPUs and time they hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from data.errors import SettingError
from planner.sim.changes import Drain, Start
from planner.sim.engines import Engines
from planner.sim.events import EventQueue, Handler
from planner.sim.gpu_ledger import GpuLedger, PoolKey
from planner.sim.sequence import Sequence as EngineSequence
from planner.sim.settings import FailureEvent
from router.endpoints import EndpointSpec
from router.types import BoolArray

Life = Literal["off", "waiting", "loading", "ready", "down"]
HOLDS_NONE = ("off", "waiting")
"""Lives without GPUs."""
COMING = ("waiting", "loading")
"""Lives of a replica that is to serve and does not yet."""
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
        gpus: GPUs of each (site, GPU type): a start waits until enough are free. A pool not listed has no limit.

    Attributes:
        in_flight: Attempts sent to each endpoint that have not ended, in transit or in the engine.
        on_lost: Told of each crash; set by whoever puts the run together.
        on_left: Told of each endpoint that has drained; the same.
    """

    def __init__(
        self,
        engines: Engines,
        specs: Sequence[EndpointSpec],
        events: EventQueue,
        draining: BoolArray,
        gpus: Mapping[PoolKey, int] | None = None,
    ) -> None:
        n = len(specs)
        self._ledger = GpuLedger(specs, gpus or {})
        self._load_s: dict[int, float | None] = {}
        self._held_drains: list[Drain] = []
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
            SettingError: If an endpoint is not a row number, or more replicas stand than there are GPUs for.
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
        for endpoint, life in enumerate(self._life):
            if life not in HOLDS_NONE:
                self._ledger.hold(endpoint)
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
        held = [self._held_s(row, now_s) for row, life in enumerate(self._life) if life not in HOLDS_NONE]
        return (self._gpu_seconds + sum(held)) / 3600.0

    def gpus_held(self) -> Counter[PoolKey]:
        """GPUs that replicas of each (site, GPU type) hold now."""
        held: Counter[PoolKey] = Counter()
        for spec, life in zip(self._specs, self._life, strict=True):
            if life not in HOLDS_NONE:
                held[spec.site, spec.gpu_type] += spec.gpus
        return held

    def _start(self, now_s: float, change: Start) -> None:
        endpoint = change.endpoint
        self._draining[endpoint] = False
        self._held_drains = [drain for drain in self._held_drains if drain.endpoint != endpoint]
        if self._life[endpoint] == "off":
            self._load_s[endpoint] = change.load_s
            self._life[endpoint] = "waiting"
            if self._ledger.take(endpoint):
                self._has_gpus(now_s, [endpoint])

    def _has_gpus(self, now_s: float, endpoints: Sequence[int]) -> None:
        for endpoint in endpoints:
            self._held_since[endpoint] = now_s
            self._load(now_s, endpoint, self._load_s.pop(endpoint))

    def _drain(self, now_s: float, change: Drain) -> None:
        if any(self._life[endpoint] in COMING for endpoint in change.after) and self._under_way():
            self._held_drains.append(change)
            return
        self._draining[change.endpoint] = True
        self._leave_if_empty(change.endpoint, now_s)

    def _under_way(self) -> bool:
        """Whether anything loads or drains; if nothing does, those who wait would wait for each other."""
        return any(
            life == "loading" or (draining and life not in HOLDS_NONE)
            for life, draining in zip(self._life, self._draining.tolist(), strict=True)
        )

    def _release_drains(self, now_s: float) -> None:
        """Drains whose replacements have come begin."""
        held, self._held_drains = self._held_drains, []
        for drain in held:
            self._drain(now_s, drain)

    def _leave_if_empty(self, endpoint: int, now_s: float) -> None:
        life = self._life[endpoint]
        if self.in_flight[endpoint] or life == "off":
            return
        self._life[endpoint] = "off"
        self._episode[endpoint] += 1
        if life == "waiting":
            self._has_gpus(now_s, self._ledger.leave(endpoint))
        else:
            self._gpu_seconds += self._held_s(endpoint, now_s)
            self._engines.lose(endpoint, now_s)
            self.on_left(now_s, endpoint)
            self._has_gpus(now_s, self._ledger.give(endpoint))
        if self._held_drains:
            self._release_drains(now_s)

    def _load(self, now_s: float, endpoint: int, load_s: float | None) -> None:
        self._life[endpoint] = "loading"
        seconds = self._specs[endpoint].load_s if load_s is None else load_s
        self._later(now_s + seconds, self._loaded, endpoint)

    def _loaded(self, now_s: float, argument: tuple[int, int]) -> None:
        endpoint, episode = argument
        if self._episode[endpoint] == episode:
            self._life[endpoint] = "ready"
            self._engines.truth.ready[endpoint] = True
            if self._held_drains:
                self._release_drains(now_s)

    def _crash(self, now_s: float, failure: FailureEvent) -> None:
        endpoint = failure.endpoint
        if self._life[endpoint] in HOLDS_NONE:
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
