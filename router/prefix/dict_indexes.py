"""The two indexes over a dictionary of masks: one fed by engine events, one that guesses from own dispatches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from router.prefix.dict_masks import BlockMasks


class EventPrefixIndex(BlockMasks):
    """Index fed by the engines' own block events; holds no more than the engines do.

    Events may repeat, come for unknown blocks, or come in any order: none of that is an error.
    """

    def __init__(self, n_endpoints: int, prefix_closed: bool = True) -> None:
        super().__init__(n_endpoints, prefix_closed)
        self.unmatched_removes = 0
        """Removals of blocks that the endpoint was not known to hold."""

    def stored(self, endpoint: int, block_hashes: Iterable[int]) -> None:
        """The endpoint now holds these blocks."""
        self._asked = None
        masks, bit = self._masks, self._bits[endpoint]
        for block in block_hashes:
            mask = masks.get(block)
            if mask is None:
                masks[block] = bit
            elif not mask & bit:
                masks[block] = mask | bit

    def removed(self, endpoint: int, block_hashes: Iterable[int]) -> None:
        """The endpoint evicted these blocks."""
        self._asked = None
        bit = self._bits[endpoint]
        for block in block_hashes:
            if not self._discard(bit, block):
                self.unmatched_removes += 1

    def cleared(self, endpoint: int) -> None:
        """The endpoint lost its whole cache, left, or came back as a new incarnation."""
        self._asked = None
        self._clear(self._bits[endpoint])


class ApproxPrefixIndex(BlockMasks):
    """Guess of what endpoints hold, from the router's own dispatches: a bounded LRU for each endpoint.

    The blocks of one prompt are touched from its tail to its head, so the least recently used block of an
    endpoint is always the tail of a chain and residency stays prefix-closed.

    Args:
        n_endpoints: Rows of the endpoint table.
        capacity_blocks: Blocks kept for each endpoint: one number, or one a row (each at least 1).
    """

    def __init__(self, n_endpoints: int, capacity_blocks: int | Sequence[int]) -> None:
        super().__init__(n_endpoints)
        each = [capacity_blocks] * n_endpoints if isinstance(capacity_blocks, int) else list(capacity_blocks)
        self.capacity_blocks = tuple(max(int(blocks), 1) for blocks in each)
        self._recent: list[dict[int, None]] = [{} for _ in range(n_endpoints)]
        self._latest: dict[int, int] = {}

    def insert(self, endpoint: int, block_hashes: Sequence[int]) -> None:
        """A prompt was sent to the endpoint. Of a prompt longer than its capacity only the head is kept."""
        self._asked = None
        recent, bit, room = self._recent[endpoint], self._bits[endpoint], self.capacity_blocks[endpoint]
        masks, latest = self._masks, self._latest
        for block in reversed(block_hashes[:room]):
            if block in recent:
                del recent[block]
            else:
                masks[block] = masks.get(block, 0) | bit
            recent[block] = None
            latest[block] = endpoint
        for block in [old for old, _ in zip(recent, range(len(recent) - room), strict=False)]:
            self._forget(endpoint, block)

    def latest_holder(self, block: int) -> int:
        """Who was sent this block last; any other holder if that one has dropped it; -1 if nobody holds it."""
        mask = self._masks.get(block, 0)
        if not mask:
            return -1
        endpoint = self._latest[block]
        return endpoint if mask & self._bits[endpoint] else (mask & -mask).bit_length() - 1

    def dropped(self, endpoint: int) -> None:
        """Forget everything about an endpoint that left or came back empty."""
        self._asked = None
        for block in list(self._recent[endpoint]):
            self._forget(endpoint, block)

    def _forget(self, endpoint: int, block: int) -> None:
        del self._recent[endpoint][block]
        self._discard(self._bits[endpoint], block)
        if block not in self._masks:
            del self._latest[block]
