"""The difference between what is true and what the router sees: late load reports, late KV events.

All engines are sampled at the same moments by copying columns; no step here loops over endpoints.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol, runtime_checkable

import numpy as np

from data.types import FloatArray, IntArray
from planner.sim.kv_cache import Notices
from planner.sim.settings import SimSettings
from router.endpoints import EndpointTable
from router.leases import LeaseBook
from router.prefix import EventPrefixIndex
from router.reports import apply_reports
from router.types import BoolArray


class Truth:
    """True state of all endpoints as columns; between events the blocks in use grow linearly.

    Args:
        capacity_blocks: KV blocks of each endpoint.
    """

    def __init__(self, capacity_blocks: IntArray) -> None:
        n = len(capacity_blocks)
        self.capacity = capacity_blocks.astype(np.float64)
        self.waiting = np.zeros(n)
        self.running = np.zeros(n)
        self.used = np.zeros(n)
        """Blocks in use at ``since_s``."""
        self.growth = np.zeros(n)
        """Blocks a second since then."""
        self.since_s = np.zeros(n)
        self.ready = np.ones(n, dtype=bool)
        self.incarnation = np.zeros(n, dtype=np.int64)

    def kv_use(self, now_s: float) -> FloatArray:
        """Share of the blocks in use, 0 to 1."""
        used = self.used + self.growth * (now_s - self.since_s)
        share: FloatArray = np.minimum(used / self.capacity, 1.0)
        return share


Sample = tuple[float, FloatArray, FloatArray, FloatArray, BoolArray, IntArray, BoolArray | None]
Event = tuple[float, int, Notices | None]
"""When it becomes visible, the endpoint, what changed; ``None`` = the cache was lost."""


@runtime_checkable
class HearsBlocks(Protocol):
    """A policy with a prefix index of its own; the simulator tells it of the events that fill the router's."""

    def blocks_changed(self, endpoint: int, notices: Notices | None) -> None:
        """What an engine stored and evicted became visible just now; ``None`` = it lost everything."""
        ...


class Observer:
    """Carries samples and events to the router's table and index, each after its delay.

    Args:
        settings: Scrape period and delay, lag of KV events.
        truth: What is sampled.
        table: The router's table; its report and life-cycle columns are written here.
        book: The router's leases.
        index: The router's prefix index.
        on_reset: Told of each endpoint that is seen to have left or come back empty.
        hears: Told of each event as the index takes it in; ``None`` = nobody.
    """

    def __init__(
        self,
        settings: SimSettings,
        truth: Truth,
        table: EndpointTable,
        book: LeaseBook,
        index: EventPrefixIndex,
        on_reset: Callable[[int], None],
        hears: HearsBlocks | None = None,
    ) -> None:
        self._settings = settings
        self._truth = truth
        self._table = table
        self._book = book
        self._index = index
        self._on_reset = on_reset
        self._hears = hears
        self._samples: deque[Sample] = deque()
        self._events: deque[Event] = deque()
        self._rows = np.arange(len(table))
        self._seen_incarnation = truth.incarnation.copy()
        self._scrapes = 0
        self._silent: BoolArray | None = None
        self._held: list[tuple[int, Notices | None]] = []
        self.next_s = 0.0
        """When the engines are sampled next: a multiple of the period."""

    def begin(self, start_s: float) -> None:
        """The first sample is the last multiple of the period at or before the start of the run."""
        self._scrapes = int(start_s // self._settings.scrape_period_s)
        self.next_s = self._scrapes * self._settings.scrape_period_s

    def sample(self) -> None:
        """Sample all engines at ``next_s``."""
        truth, now_s = self._truth, self.next_s
        samples, delay = self._samples, self._settings.scrape_delay_s
        # Of the samples that are visible by now only the newest can ever be read.
        while len(samples) > 1 and samples[1][0] + delay <= now_s:
            samples.popleft()
        samples.append(
            (
                now_s,
                truth.running.copy(),
                truth.waiting.copy(),
                truth.kv_use(now_s),
                truth.ready.copy(),
                truth.incarnation.copy(),
                self._silent,
            )
        )
        self._scrapes += 1
        self.next_s = self._scrapes * self._settings.scrape_period_s

    def silence(self, silent: BoolArray | None, now_s: float) -> None:
        """From now on nothing comes from these endpoints; events held back before are sent again."""
        self._silent = silent
        held, self._held = self._held, []
        for endpoint, notices in held:
            self.kv_changed(endpoint, notices, now_s)

    def kv_changed(self, endpoint: int, notices: Notices | None, now_s: float) -> None:
        """Engine ``endpoint`` publishes what it stored and evicted (``None`` = it lost everything) now."""
        if self._silent is not None and self._silent[endpoint]:
            self._held.append((endpoint, notices))
            return
        self._events.append((now_s + self._settings.kv_event_lag_s, endpoint, notices))

    def refresh(self, now_s: float) -> None:
        """Let the router see everything that is visible by ``now_s``."""
        samples, delay = self._samples, self._settings.scrape_delay_s
        newest: Sample | None = None
        while samples and samples[0][0] + delay <= now_s:
            newest = samples.popleft()
        if newest is not None:
            self._report(newest)
        events, index = self._events, self._index
        while events and events[0][0] <= now_s:
            _, endpoint, notices = events.popleft()
            if self._hears is not None:
                self._hears.blocks_changed(endpoint, notices)
            if notices is None:
                index.cleared(endpoint)
                continue
            stored, removed = notices
            if stored:
                index.stored(endpoint, stored)
            if removed:
                index.removed(endpoint, removed)

    def _report(self, sample: Sample) -> None:
        sampled_at_s, running, waiting, kv_use, ready, incarnation, silent = sample
        table, seen, rows = self._table, self._seen_incarnation, self._rows
        told = ready
        if silent is not None:
            # Of those nothing new is known: they stand as they did.
            incarnation, told = np.where(silent, seen, incarnation), ready & ~silent
            ready = np.where(silent, table.ready, ready)
        if not np.array_equal(incarnation, seen):
            for endpoint in np.flatnonzero(incarnation > seen).tolist():
                self.reset(endpoint, int(incarnation[endpoint]))
            # A sample from before an endpoint left says nothing about what stands there now.
            ready, told = ready & (incarnation >= seen), told & (incarnation >= seen)
        table.ready[:] = ready
        if not told.all():
            rows = np.flatnonzero(told)
            running, waiting, kv_use = running[rows], waiting[rows], kv_use[rows]
        apply_reports(table, self._book, rows, sampled_at_s, running, waiting, kv_use)

    def left(self, endpoint: int) -> None:
        """The router itself has let an endpoint go: it need not wait for a report to know."""
        self.reset(endpoint, int(self._truth.incarnation[endpoint]))

    def reset(self, endpoint: int, incarnation: int) -> None:
        """The router learns that an endpoint left or came back empty: it forgets what it knew about it."""
        self._seen_incarnation[endpoint] = incarnation
        self._book.drop_endpoint(endpoint)
        self._on_reset(endpoint)
