"""All engines of a run: they take sequences, run their steps and publish what happens to their caches."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from data.errors import SettingError
from data.fleet.types import EngineSettings, Fleet
from data.types import Request
from planner.sim.events import EventQueue
from planner.sim.flight import Flight
from planner.sim.kv_cache import KvCache, Notices
from planner.sim.noise import NoiseStream
from planner.sim.observation import Truth
from planner.sim.replica import IDLE, Replica
from planner.sim.sequence import Sequence as EngineSequence
from planner.sim.settings import SimSettings
from planner.sim.step_times import StepTimes
from router.endpoints import EndpointSpec

OnStep = Callable[[float, list[EngineSequence], list[EngineSequence]], None]
"""Moment, sequences with their first token, sequences that ended."""
OnKv = Callable[[int, Notices | None, float], None]
"""Endpoint, what was stored and evicted (``None`` = everything was lost), moment."""


class Engines:
    """One replica for each endpoint.

    Args:
        fleet: Engine settings of the models.
        specs: The endpoints.
        settings: Seed and noise.
        events: Where the ends of steps are put.

    Attributes:
        replicas: The engines, in the order of ``specs``.
        truth: Their true state, kept up to date.
        on_step: Told of each step with a first or a last token; set by whoever puts the run together.
        on_kv: Told of each change of a cache; the same.
    """

    def __init__(
        self, fleet: Fleet, specs: Sequence[EndpointSpec], settings: SimSettings, events: EventQueue
    ) -> None:
        self._events = events
        engines = {model.key: model.engine for model in fleet.models}
        self.replicas = [
            build_replica(spec, engines.get(spec.model, EngineSettings()), settings, row)
            for row, spec in enumerate(specs)
        ]
        self.truth = Truth(np.array([replica.cache.capacity for replica in self.replicas], dtype=np.int64))
        self._pushed = [IDLE] * len(specs)
        self._on_step_end = self._step_end  # bound once, not at every step
        self.on_step: OnStep
        self.on_kv: OnKv

    def accept(self, endpoint: int, request: Request, flight: Flight, now_s: float) -> EngineSequence | None:
        """Queue a request at an engine that is up; ``None`` = it could never hold the request.

        Raises:
            TraceError: If the trace changes the size of its prompt blocks.
        """
        replica = self.replicas[endpoint]
        cache = replica.cache
        segments = 0
        if cache.caching and request.block_hashes:
            if request.block_tokens != cache.segment_tokens:
                cache.use_segments(request.block_tokens)
            # Only complete blocks can be shared; a partial one at the end stays private.
            segments = min(len(request.block_hashes), request.input_tokens // request.block_tokens)
        if not replica.fits(request.input_tokens, request.output_tokens):
            return None
        hashes = request.block_hashes
        sequence = EngineSequence(request.input_tokens, request.output_tokens, hashes, segments, flight)
        replica.submit(sequence, now_s)
        self.touch(endpoint)
        return sequence

    def cancel(self, endpoint: int, sequence: EngineSequence, now_s: float) -> tuple[int, int]:
        """Drop a sequence; gives the tokens that were computed and generated for it until then."""
        replica = self.replicas[endpoint]
        replica.cut(now_s)
        progress = replica.progress(sequence)
        replica.cancel(sequence, now_s)
        if replica.ends_s == IDLE:
            self._publish(endpoint, replica.cache.collect(), now_s)
        self.touch(endpoint)
        return progress

    def stop(self, flight: Flight, now_s: float) -> tuple[int, int] | None:
        """Drop what a flight has in an engine, see ``cancel``; ``None`` = it is in none."""
        if not flight.active or flight.sequence is None:
            return None
        return self.cancel(flight.endpoint, flight.sequence, now_s)

    def lose(self, endpoint: int, now_s: float) -> list[EngineSequence]:
        """An engine stops without warning or is taken away: its work and cache are gone; gives the work."""
        lost = self.replicas[endpoint].crash(now_s)
        self.truth.ready[endpoint] = False
        self.truth.incarnation[endpoint] += 1
        self.on_kv(endpoint, None, now_s)
        self.touch(endpoint)
        return lost

    def disturb(self, endpoint: int, now_s: float, slowdown: float, hung: bool) -> None:
        """From the end of the step in progress on, steps take ``slowdown`` times as long, or none is made."""
        replica = self.replicas[endpoint]
        replica.cut(now_s)
        replica.slowdown = slowdown
        replica.hung = hung
        if replica.ends_s == IDLE:
            replica.start(now_s)
        self.touch(endpoint)

    def preemptions(self) -> int:
        """Preemptions of all engines."""
        return sum(replica.queue.preemptions for replica in self.replicas)

    def touch(self, endpoint: int) -> None:
        """Bring the true columns up to date and the end of the segment into the queue."""
        replica, truth = self.replicas[endpoint], self.truth
        queue = replica.queue
        truth.waiting[endpoint] = len(queue.waiting)
        truth.running[endpoint] = len(queue.running)
        truth.used[endpoint] = replica.cache.used
        truth.since_s[endpoint] = replica.starts_s
        truth.growth[endpoint] = replica.blocks_per_s()
        ends_s = replica.ends_s
        if ends_s != self._pushed[endpoint]:
            self._pushed[endpoint] = ends_s
            if ends_s != IDLE:
                self._events.push_step_end(ends_s, self._on_step_end, endpoint)

    def _step_end(self, now_s: float, endpoint: int) -> None:
        replica = self.replicas[endpoint]
        if replica.ends_s != now_s:
            return  # the segment was cut or lost after this event was pushed
        firsts, ended = replica.finish(now_s)
        self._publish(endpoint, replica.notices, now_s)
        self.touch(endpoint)
        if firsts or ended:
            self.on_step(now_s, firsts, ended)

    def _publish(self, endpoint: int, notices: Notices | None, now_s: float) -> None:
        if notices is not None:
            self.on_kv(endpoint, notices, now_s)


def build_replica(spec: EndpointSpec, engine: EngineSettings, settings: SimSettings, row: int) -> Replica:
    """The replica of one endpoint."""
    capacity = spec.kv_capacity_tokens // engine.block_tokens
    if capacity < 1:
        raise SettingError(
            "no KV memory", field="kv_capacity_tokens", value=spec.kv_capacity_tokens,
            expected=f"at least {engine.block_tokens}",
        )  # fmt: skip
    cache = KvCache(capacity, engine.block_tokens, engine.prefix_caching)
    noise = NoiseStream(settings.step_noise, settings.seed, row)
    return Replica(cache, StepTimes(spec.times), noise, spec.batch_token_budget, spec.max_seqs)
