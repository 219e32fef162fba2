"""The messages of one endpoint: in order, once each; breaks are replayed, or cost the endpoint its entries.

Pure: messages and clock readings go in; whether a replay is wanted can be read off.
"""

from __future__ import annotations

from collections import deque
from enum import Enum

from router.kv_events.apply import RowEvents
from router.kv_events.decode import decode_batch

MAX_HELD = 20_000
"""Messages held back while a replay runs; more are dropped, oldest first, and leave a gap that is seen later."""


class FeedState(Enum):
    """What is known of an endpoint's events."""

    SILENT = "silent"
    """Nothing was ever received."""
    REPLAYING = "replaying"
    """A gap is being closed."""
    LIVE = "live"
    """All messages so far were applied, or their loss was made good by clearing."""


class Feed:
    """Orders the messages of one endpoint.

    Args:
        events: Applies them.
        next_sequence: Number of the next message if the ones before are known to be applied (warm restart).
        last_made_at_s: When the newest of those was made (Unix seconds).
    """

    def __init__(self, events: RowEvents, next_sequence: int | None = None, last_made_at_s: float = 0.0) -> None:
        self.events = events
        self.counters = events.counters
        self.state = FeedState.SILENT
        self.next_sequence = next_sequence
        """Number of the next message; ``None`` before the first."""
        self.replay_from: int | None = None
        """First message to ask for again; ``None`` = no replay is wanted."""
        self.last_made_at_s = last_made_at_s
        """When the newest batch was made (Unix seconds): what is behind in number but newer began anew."""
        self._held: deque[tuple[int, bytes]] = deque(maxlen=MAX_HELD)

    @property
    def warming(self) -> bool:
        """Whether the first history has not been seen through yet."""
        return self.state is not FeedState.LIVE

    def receive(self, sequence: int, payload: bytes, now_s: float) -> None:
        """A message came; ``now_s`` is Unix time."""
        if self.replay_from is not None:
            self._held.append((sequence, payload))
            return
        if self.next_sequence == sequence:
            self._apply(sequence, payload, now_s)
        elif self.next_sequence is None:
            self._first(sequence, payload, now_s)
        elif sequence > self.next_sequence:
            self.counters.gaps += 1
            self._want(self.next_sequence, sequence, payload)
        else:
            self._behind(sequence, payload, now_s)

    def replayed(self, sequence: int, payload: bytes, now_s: float) -> None:
        """A message that was asked for again; what was applied before is passed over."""
        if self.replay_from is None or (self.next_sequence is not None and sequence < self.next_sequence):
            return
        if self.next_sequence is not None and sequence > self.next_sequence:
            self._lose(sequence)
        self._apply(sequence, payload, now_s, self.state)

    def replay_ended(self, now_s: float) -> None:
        """The replay is over: complete, cut short, or never answered. Messages held back are applied."""
        if self.replay_from is None:
            return
        first = self._held[0][0] if self._held else None
        if first is not None and self.next_sequence is not None and first > self.next_sequence:
            self._lose(first)
        elif self.next_sequence is not None:
            self.counters.replays += 1
        self.replay_from = None
        self.state = FeedState.LIVE
        held, self._held = self._held, deque(maxlen=MAX_HELD)
        for sequence, payload in held:
            if self.next_sequence is None:
                self.next_sequence = sequence
            if sequence >= self.next_sequence or self.replay_from is not None:
                self.receive(sequence, payload, now_s)

    def catch_up(self) -> None:
        """Ask for whatever came after the known number (warm restart); without one there is nothing to ask for."""
        if self.next_sequence is not None:
            self.replay_from = self.next_sequence
            self.state = FeedState.REPLAYING

    def restart(self) -> None:
        """The endpoint is a new incarnation: everything about the old one is forgotten together."""
        self.events.clear()
        self.state = FeedState.SILENT
        self.next_sequence = self.replay_from = None
        self._held.clear()
        self.last_made_at_s = 0.0

    def _first(self, sequence: int, payload: bytes, now_s: float) -> None:
        if sequence:
            self._want(0, sequence, payload)
            return
        self._apply(sequence, payload, now_s)

    def _want(self, start: int, sequence: int, payload: bytes) -> None:
        self.replay_from = start
        self.state = FeedState.REPLAYING
        self._held.append((sequence, payload))

    def _behind(self, sequence: int, payload: bytes, now_s: float) -> None:
        """A number from before: a repeat, or the first one seen of an engine that began anew."""
        batch = decode_batch(payload, with_tokens=False)
        if batch is None or not batch.made_at_s > self.last_made_at_s:
            self.counters.duplicates += 1
            return
        self.counters.restarts += 1
        self.restart()
        self._first(sequence, payload, now_s)

    def _lose(self, upto: int) -> None:
        self.counters.lost += 1
        self.events.clear()
        self.next_sequence = upto

    def _apply(self, sequence: int, payload: bytes, now_s: float, state: FeedState = FeedState.LIVE) -> None:
        self.next_sequence = sequence + 1
        self.state = state
        batch = decode_batch(payload, self.events.needs_tokens)
        if batch is None:
            # What it said is unknown: it may have removed blocks.
            self.counters.malformed += 1
            self.events.clear()
            return
        if batch.made_at_s > self.last_made_at_s:
            self.last_made_at_s = batch.made_at_s
        self.events.apply(batch, now_s)
