"""The feeds of a whole fleet: who is connected, under which incarnation, and in which mode."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from data.types import IntArray
from router.kv_events.apply import FeedSettings, RowEvents
from router.kv_events.counters import LAG_BOUNDS_S, EventCounters
from router.kv_events.feed import Feed
from router.kv_events.messages import Stored
from router.kv_events.subscriber import EventSource, KvEventSubscriber
from router.prefix.index import PrefixIndex
from router.prefix.snapshot_file import RowSnapshot
from router.prefix.warm_restart import Dropped, capture_row, restore_row

StoredObserver = Callable[[int, Stored], None]


@dataclass(frozen=True, slots=True)
class _Connected:
    feed: Feed
    endpoint_id: str
    incarnation: str


class FleetFeeds:
    """Connects rows of the endpoint table with the events of their engines. Lives on one event loop.

    Args:
        index: Where the blocks go.
        subscriber: Receives the messages.
        on_stored: Sees the row and each stored event before it is applied, for parity checks of token ids. Rows
            where only engine hashes are used are left out: their tokens are not even decoded.
    """

    def __init__(
        self, index: PrefixIndex, subscriber: KvEventSubscriber, on_stored: StoredObserver | None = None
    ) -> None:
        self._index, self._subscriber, self._on_stored = index, subscriber, on_stored
        self._connected: dict[int, _Connected] = {}
        self._gone_lag_bins: IntArray = np.zeros(len(LAG_BOUNDS_S) + 1, dtype=np.int64)
        self._gone_lag_s = 0.0

    def connect(
        self,
        row: int,
        endpoint_id: str,
        incarnation: str,
        settings: FeedSettings,
        source: EventSource,
        saved: RowSnapshot | None = None,
    ) -> Dropped | None:
        """Listen to the engine of a row, which starts empty or with what was saved; tells why that was dropped.

        A row that listens already begins anew.
        """
        self.disconnect(row)
        seen = None
        if self._on_stored is not None and settings.hash_source == "tokens":
            seen = partial(self._on_stored, row)
        events = RowEvents(self._index, row, settings, on_stored=seen)
        feed, dropped = Feed(events), None
        if saved is not None:
            feed, dropped = restore_row(self._index, events, saved, incarnation)
            # The engine may be silent from now on, but need not have been while nobody listened.
            feed.catch_up()
        self._connected[row] = _Connected(feed, endpoint_id, incarnation)
        self._subscriber.add(feed, source)
        return dropped

    def disconnect(self, row: int) -> None:
        """Stop listening and forget all that the row held; numbers, blocks and counts go together."""
        self._subscriber.remove(row)
        known = self._connected.pop(row, None)
        if known is not None:
            self._gone_lag_bins += known.feed.counters.lag_bins
            self._gone_lag_s += known.feed.counters.lag_sum_s
            self._index.cleared(row)

    def known_as(self, row: int, incarnation: str) -> None:
        """Which life of its engine a row listens to, once that can be told; empty = it can't, nothing is kept."""
        known = self._connected.get(row)
        if known is not None:
            self._connected[row] = replace(known, incarnation=incarnation)

    def restarted(self, row: int) -> None:
        """The engine of a row began anew: what it told before counts no more."""
        known = self._connected.get(row)
        if known is not None:
            known.feed.restart()
            self.known_as(row, "")

    def guess(self, row: int, capacity_blocks: int) -> None:
        """Go by own dispatches from now on, as after a failed parity check: events are no longer listened to."""
        self.disconnect(row)
        self._index.set_capacity(row, capacity_blocks)

    async def close(self) -> None:
        """Stop listening altogether; what was held stays."""
        await self._subscriber.close()

    def warming(self) -> list[int]:
        """Rows whose history has not been seen through yet."""
        return self._subscriber.warming()

    def counters(self) -> Iterable[tuple[str, EventCounters]]:
        """Endpoint and what happened to its events."""
        return [(known.endpoint_id, known.feed.counters) for known in list(self._connected.values())]

    def lag(self) -> tuple[IntArray, float]:
        """Batches by lag, one bin for each of ``LAG_BOUNDS_S`` and one above, and the sum of all lags in seconds.

        Endpoints that have left are part of it.
        """
        counters = [known.feed.counters for known in list(self._connected.values())]
        bins = sum((each.lag_bins for each in counters), self._gone_lag_bins.copy())
        return bins, self._gone_lag_s + sum(each.lag_sum_s for each in counters)

    def rows(self) -> list[int]:
        """Rows that listen."""
        return list(self._connected)

    def capture(self) -> list[RowSnapshot]:
        """What every row holds whose events are in order, to be written to a file."""
        rows = [self.capture_row(row) for row in self.rows()]
        return [row for row in rows if row is not None]

    def capture_row(self, row: int) -> RowSnapshot | None:
        """What one row holds; ``None`` where that is not sure: events out of order, or an unknown life."""
        known = self._connected.get(row)
        if known is None or not known.incarnation:
            return None
        return capture_row(self._index, known.feed, known.endpoint_id, known.incarnation)
