"""Blocks that were just sent somewhere, counted as held until the engine's own events can have come."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from data.types import IntArray
from router.prefix import EventPrefixIndex


class SpeculativeBlocks:
    """Prompts of recent dispatches, each kept for ``ttl_s`` seconds after it was last sent."""

    def __init__(self, n_endpoints: int, ttl_s: float) -> None:
        self._index = EventPrefixIndex(n_endpoints)
        self._ttl_s = ttl_s
        self._queue: deque[tuple[float, int, Sequence[int]]] = deque()
        self._until_s: dict[tuple[int, int], float] = {}

    def __len__(self) -> int:
        return len(self._until_s)

    def add(self, endpoint: int, block_hashes: Sequence[int], now_s: float) -> None:
        """A prompt was sent to the endpoint."""
        until = now_s + self._ttl_s
        self._index.stored(endpoint, block_hashes)
        self._queue.append((until, endpoint, block_hashes))
        for block in block_hashes:
            self._until_s[endpoint, block] = until

    def matched(self, block_hashes: tuple[int, ...], now_s: float) -> IntArray:
        """Leading blocks sent to each endpoint within the time to live."""
        self._expire(now_s)
        return self._index.matched_blocks(block_hashes)

    def reset(self, endpoint: int) -> None:
        """Forget the endpoint."""
        self._index.cleared(endpoint)
        self._queue = deque(entry for entry in self._queue if entry[1] != endpoint)
        self._until_s = {key: until for key, until in self._until_s.items() if key[0] != endpoint}

    def _expire(self, now_s: float) -> None:
        while self._queue and self._queue[0][0] <= now_s:
            _, endpoint, blocks = self._queue.popleft()
            # A block that was sent again meanwhile stays until its later time.
            gone = [block for block in blocks if self._until_s.get((endpoint, block), now_s + 1) <= now_s]
            for block in gone:
                del self._until_s[endpoint, block]
            self._index.removed(endpoint, gone)
