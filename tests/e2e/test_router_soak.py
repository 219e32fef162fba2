"""A long run in process: unique prompts, endpoints that come, go, restart and drain, reports of every kind.

``TOKENFLEET_SOAK_DECISIONS`` sets the number of decisions; the full figure is 5,000,000.
"""

from __future__ import annotations

import os
import resource
import time
from collections import Counter, deque
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.router_fixture import MODEL, endpoints, fleet
from router.observe.metrics import RouterMetrics
from router.observe.metrics_listener import MetricsListener
from router.pb.v1 import router_pb2 as pb
from router.prompts.prefix_scope import ScopeKeys
from router.prompts.prompt_hashes import ScopedHashes
from router.reports import apply_reports
from router.serving.fleet_rows import LiveEndpoint
from router.serving.live import LiveRouter
from router.serving.live_build import LiveSettings, build_live

DECISIONS = int(os.environ.get("TOKENFLEET_SOAK_DECISIONS", "5000000"))
ENDPOINTS = 16
GUESSED = 8
"""Endpoints without events, whose caches the router guesses."""
STEP_S = 0.002
"""Time of the fleet between two decisions."""
OPEN = 400
"""Requests under way at a time."""
TICK_EVERY, REPORT_EVERY, FLAP_EVERY = 100, 125, 500
LOOK_EVERY = max(DECISIONS // 200, 1)
SHARED_BLOCKS, OWN_BLOCKS, BLOCK_TOKENS = 4, 6, 16
MOST_GROWTH, MOST_GROWTH_MB = 0.05, 20.0


@dataclass
class Soak:
    """A router on a clock by hand, and what is under way."""

    live: LiveRouter
    rng: np.random.Generator
    now: list[float]
    fleet_now: dict[str, LiveEndpoint]
    spare: list[LiveEndpoint] = field(default_factory=list)
    open: deque[int] = field(default_factory=deque)
    counts: Counter[str] = field(default_factory=Counter)
    kept: dict[int, deque[tuple[int, ...]]] = field(default_factory=dict)

    def decide(self, question: pb.RouteRequest) -> None:
        """One request, and the end of an older one."""
        self.now[0] += STEP_S
        reply = self.live.route(question)
        if reply.HasField("placement"):
            self.counts["placed"] += 1
            self.open.append(reply.placement.lease_id)
            self.engine_stores(reply.placement)
        else:
            self.counts[reply.refusal.reason] += 1
        if len(self.open) > OPEN:
            # Somewhere among those under way, not the oldest first.
            self.open.rotate(int(self.rng.integers(64)))
            self.end(self.open.popleft())

    def engine_stores(self, placed: pb.Placement) -> None:
        """What an engine with events would tell: the blocks of the prompt, and evictions beyond its room."""
        lease, row = self.live.leases.get(placed.lease_id), self.live.rows.row(placed.endpoint_id)
        assert lease is not None
        assert row is not None
        if not self.fleet_now[placed.endpoint_id].kv_events:
            return
        hashes = lease.request.block_hashes
        self.live.index.stored(row, hashes)
        kept = self.kept.setdefault(row, deque())
        kept.append(hashes)
        if len(kept) > 500:
            self.live.index.removed(row, kept.popleft()[SHARED_BLOCKS:])

    def end(self, lease: int) -> None:
        """An end of some kind; one in fifty is never told."""
        kind = int(self.rng.integers(50))
        if kind == 0:
            self.counts["untold"] += 1
            return
        event = pb.ReportEvent(lease_id=lease)
        if kind < 40 and kind % 2:
            self.tell(pb.ReportEvent(lease_id=lease, first_token=pb.FirstToken(ttft_s=0.1)))
        if kind < 42:
            event.finished.output_tokens = 20
        elif kind < 45:
            event.cancelled.output_tokens = 3
        elif kind < 47:
            event.cancelled.timed_out = True
        else:
            event.error.http_status = (400, 429, 503)[kind - 47]
        self.tell(event)
        if kind == 41:
            self.tell(event)

    def tell(self, event: pb.ReportEvent) -> None:
        """Report, whatever comes of it."""
        self.counts[self.live.reports.take(event, "", self.now[0]).value] += 1

    def report_load(self) -> None:
        """Fresh load of most endpoints; one in ten pages is late."""
        live, rows = self.live, [self.live.rows.row(name) for name in self.fleet_now]
        known = np.array([row for row in rows if row is not None and self.rng.random() > 0.1], dtype=np.int64)
        load = self.rng.integers(0, 30, len(known)).astype(float)
        apply_reports(live.core.table, live.core.book, known, self.now[0], load, load / 4, load / 40)

    def flap(self) -> None:
        """One endpoint leaves, comes, restarts, or starts or stops to drain."""
        kind = int(self.rng.integers(4))
        names = list(self.fleet_now)
        name = names[int(self.rng.integers(len(names)))]
        if kind == 0 and len(names) > ENDPOINTS // 2:
            self.spare.append(self.fleet_now.pop(name))
        elif kind == 1 and self.spare:
            back = self.spare.pop(int(self.rng.integers(len(self.spare))))
            self.fleet_now[back.endpoint_id] = replace(back, draining=False)
        elif kind == 2:
            self.counts["restarts"] += 1
            incarnation = str(self.counts["restarts"])
            self.fleet_now[name] = replace(self.fleet_now[name], incarnation=incarnation)
        else:
            live = self.fleet_now[name]
            self.fleet_now[name] = replace(live, draining=not live.draining and len(names) > ENDPOINTS // 2)
        changes = self.live.apply_endpoints(list(self.fleet_now.values()))
        for gone in (*changes.removed, *changes.added, *changes.restarted):
            row = self.live.rows.row(gone)
            if row is not None:
                self.kept.pop(row, None)
        self.counts["flaps"] += 1


def questions(rng: np.random.Generator, count: int) -> list[pb.RouteRequest]:
    """Prompts that nobody has asked before; some begin with one of 300 shared parts."""
    shared = np.random.default_rng(5).integers(0, 2**62, (300, SHARED_BLOCKS), dtype=np.uint64)
    own = rng.integers(0, 2**62, (count, OWN_BLOCKS), dtype=np.uint64)
    starts = shared[rng.integers(0, 300, count)]
    tokens = (SHARED_BLOCKS + OWN_BLOCKS) * BLOCK_TOKENS + 3
    return [
        pb.RouteRequest(
            model=MODEL,
            tenant="t",
            input_tokens=tokens,
            output_budget=64,
            block_tokens=BLOCK_TOKENS,
            block_hashes=np.concatenate([start, rest]).tobytes(),
        )
        for start, rest in zip(starts, own, strict=True)
    ]


def soak() -> Soak:
    """Sixteen endpoints, half of them with events."""
    now = [1_000_000.0]
    places = [replace(place, kv_events=i >= GUESSED) for i, place in enumerate(endpoints(ENDPOINTS))]
    small = [replace(place, spec=replace(place.spec, kv_capacity_tokens=40_000)) for place in places]
    live = build_live(
        fleet(),
        small,
        LiveSettings(seed=1, lease_base=1 << 40),
        hasher=ScopedHashes(ScopeKeys(b"0123456789abcdef")),
        clock=lambda: now[0],
        listeners=(MetricsListener(RouterMetrics(), "tokenpilot"),),
    )
    return Soak(live, np.random.default_rng(1), now, {place.endpoint_id: place for place in small})


def resident_mb() -> float:
    """Memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


@pytest.mark.slow
def test_memory_stands_still_and_counters_end_at_zero() -> None:
    """No unhandled error, nothing left charged, and the second half needs no more memory than the first."""
    world = soak()
    began_s = time.perf_counter()
    memory_mb = run(world)
    took_s = time.perf_counter() - began_s
    half = len(memory_mb) // 2
    first_mb, second_mb = max(memory_mb[:half]), max(memory_mb[half:])
    print(f"{DECISIONS} decisions in {took_s:.0f} s, {first_mb:.0f} MB, then {second_mb:.0f} MB")
    print(dict(world.counts))
    finish(world)
    assert second_mb - first_mb < max(MOST_GROWTH * first_mb, MOST_GROWTH_MB)
    assert world.counts["placed"] > 0.99 * DECISIONS
    assert world.counts["invalid"] == 0
    assert world.counts["flaps"] == DECISIONS // FLAP_EVERY


def run(world: Soak) -> list[float]:
    """All decisions; gives the memory at 200 moments."""
    memory_mb: list[float] = []
    done = 0
    while done < DECISIONS:
        for question in questions(world.rng, min(1000, DECISIONS - done)):
            world.decide(question)
            done += 1
            if done % TICK_EVERY == 0:
                world.live.tick()
            if done % REPORT_EVERY == 0:
                world.report_load()
            if done % FLAP_EVERY == 0:
                world.flap()
            if done % LOOK_EVERY == 0:
                memory_mb.append(resident_mb())
    return memory_mb


def finish(world: Soak) -> None:
    """End what is open and let what nobody tells of run out; then nothing may be charged."""
    live, table = world.live, world.live.core.table
    for lease in world.open:
        world.tell(pb.ReportEvent(lease_id=lease, finished=pb.Finished(output_tokens=5)))
    world.now[0] += 10_000.0
    live.tick()
    assert len(live.leases) == 0
    charged = (table.inflight, table.inflight_tokens, table.inflight_uncached_tokens, table.decoding)
    assert [float(np.abs(column).sum()) for column in charged] == [0.0] * 4
    assert len(live.index) <= ENDPOINTS * 40_000 // BLOCK_TOKENS
