"""Paged KV memory of one replica: reference-counted blocks and a prefix cache with LRU eviction.

Memory is counted in engine blocks. A *segment* is one complete prompt block of the trace (for instance 512 tokens
= 32 engine blocks): the unit in which prefixes are known, shared, cached and evicted. All other tokens (the
partial end of a prompt, generated tokens, prompts without hashes) live in *private* blocks of one sequence.

At any moment ``used + cached_free + free == capacity``: blocks that somebody holds, blocks of segments that
nobody holds but that may be hit again, and blocks with nothing in them.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence

from data.errors import TraceError

Notices = tuple[tuple[int, ...], tuple[int, ...]]
"""Segments that became resident and segments that were evicted since the last collection."""


STALE_ENTRIES = 64
"""The queue of freed segments is not tidied below this length."""


class KvCache:
    """Blocks of one replica.

    A sequence that holds a segment holds all segments before it, and it gives them back from the end of its
    prompt to the start. The least recently used free segment is therefore always a leaf: residency stays
    prefix-closed.

    Args:
        capacity_blocks: Engine blocks in all (at least 1).
        block_tokens: Tokens of one engine block (at least 1).
        caching: ``False`` turns the prefix cache off: nothing is ever shared or kept.
    """

    __slots__ = (
        "_freed",
        "_gone",
        "_idle",
        "_lru",
        "_new",
        "_popped",
        "_refs",
        "block_tokens",
        "cached_free",
        "caching",
        "capacity",
        "free",
        "segment_blocks",
        "segment_tokens",
    )

    def __init__(self, capacity_blocks: int, block_tokens: int, caching: bool = True) -> None:
        self.capacity = capacity_blocks
        self.block_tokens = block_tokens
        self.caching = caching
        self.free = capacity_blocks
        """Blocks with nothing in them."""
        self.cached_free = 0
        """Blocks of cached segments that nobody holds."""
        self.segment_tokens = 0
        """Tokens of one segment; 0 until a prompt with hashes was seen."""
        self.segment_blocks = 0
        # Resident segments: above 0 the number of holders, else minus the number under which it was last freed.
        self._refs: dict[int, int] = {}
        # Freed segments, oldest first; entries whose number is not the segment's own any more are passed over.
        self._lru: deque[int] = deque()
        self._freed = 0
        self._popped = 0
        self._new: list[int] = []
        self._gone: list[int] = []

    @property
    def room(self) -> int:
        """Blocks that can be had: empty ones and those of segments nobody holds."""
        return self.free + self.cached_free

    @property
    def used(self) -> int:
        """Blocks held by sequences."""
        return self.capacity - self.free - self.cached_free

    def use_segments(self, tokens: int) -> None:
        """Fix the tokens of one segment; a trace has one block size.

        Raises:
            TraceError: If another size was fixed before.
        """
        if self.segment_tokens not in (0, tokens):
            raise TraceError(
                "prompt blocks change their size within one trace",
                field="block_tokens",
                value=tokens,
                expected=str(self.segment_tokens),
            )
        self.segment_tokens = tokens
        self.segment_blocks = self.blocks_for(tokens)

    def blocks_for(self, tokens: int) -> int:
        """Engine blocks that hold ``tokens`` private tokens; 0 below 1 token."""
        return -(-tokens // self.block_tokens) if tokens > 0 else 0

    def match(self, hashes: Sequence[int], limit: int) -> int:
        """Leading segments of ``hashes[:limit]`` that are resident."""
        refs = self._refs
        for position in range(limit):
            if hashes[position] not in refs:
                return position
        return limit

    def idle_blocks(self, hashes: Sequence[int], count: int) -> int:
        """Blocks of the first ``count`` resident segments that nobody holds: acquiring takes them out of room."""
        refs = self._refs
        return len({block for block in hashes[:count] if refs[block] <= 0}) * self.segment_blocks

    def acquire(self, hashes: Sequence[int], count: int) -> None:
        """Hold the first ``count`` segments, which must be resident."""
        refs = self._refs
        for position in range(count):
            block = hashes[position]
            held = refs[block]
            if held > 0:
                refs[block] = held + 1
            else:
                self.cached_free -= self.segment_blocks
                refs[block] = 1

    def release(self, hashes: Sequence[int], count: int) -> None:
        """Give back the first ``count`` segments, last one first; those that nobody else holds stay cached."""
        refs, lru, freed = self._refs, self._lru, self._freed
        before = freed
        for position in range(count - 1, -1, -1):
            block = hashes[position]
            held = refs[block] - 1
            if held:
                refs[block] = held
            else:
                refs[block] = -freed
                lru.append(block)
                freed += 1
        self._freed = freed
        self.cached_free += (freed - before) * self.segment_blocks
        if len(lru) > STALE_ENTRIES and len(lru) * self.segment_blocks > 2 * self.cached_free:
            self._renumber()

    def take(self, blocks: int) -> None:
        """Take private blocks, evicting least recently used segments as needed; needs ``blocks <= room``."""
        self.free -= blocks
        while self.free < 0:
            self._evict()

    def give(self, blocks: int) -> None:
        """Give private blocks back."""
        self.free += blocks

    def commit(self, hashes: Sequence[int], start: int, stop: int) -> None:
        """Turn private blocks into the cached segments ``hashes[start:stop]``, held by the caller.

        If a segment is resident already (another sequence computed it meanwhile) the caller's own copy is given
        back and the resident one is held instead.
        """
        refs, new = self._refs, self._new
        for position in range(start, stop):
            block = hashes[position]
            held = refs.get(block)
            if held is None:
                refs[block] = 1
                new.append(block)
                continue
            self.free += self.segment_blocks
            if held > 0:
                refs[block] = held + 1
            else:
                self.cached_free -= self.segment_blocks
                refs[block] = 1

    def collect(self) -> Notices | None:
        """What became resident and what was evicted since the last call, net; ``None`` if nothing changed."""
        new, gone = self._new, self._gone
        if not new and not gone:
            return None
        self._new, self._gone = [], []
        if not new or not gone or set(new).isdisjoint(gone):
            return tuple(new), tuple(gone)
        return net_changes(new, gone)

    def clear(self) -> None:
        """Lose everything, as in a crash; gives no notices."""
        self.free = self.capacity
        self.cached_free = 0
        self._refs.clear()
        self._lru.clear()
        self._freed = self._popped = 0
        self._new.clear()
        self._gone.clear()

    def resident(self) -> int:
        """Segments in memory, held or not."""
        return len(self._refs)

    def _evict(self) -> None:
        lru, refs = self._lru, self._refs
        while True:
            block = lru.popleft()
            number = self._popped
            self._popped = number + 1
            if refs.get(block) == -number:
                break
        del refs[block]
        self.free += self.segment_blocks
        self.cached_free -= self.segment_blocks
        self._gone.append(block)

    def _renumber(self) -> None:
        """Drop the entries that are passed over, so that the queue stays as short as the cache."""
        refs = self._refs
        kept = [block for number, block in enumerate(self._lru, self._popped) if refs.get(block) == -number]
        for number, block in enumerate(kept):
            refs[block] = -number
        self._lru = deque(kept)
        self._freed, self._popped = len(kept), 0


def net_changes(stored: Sequence[int], evicted: Sequence[int]) -> Notices:
    """What is left of changes in which some segments came and went: stored and evicted alternate for each."""
    balance = Counter(stored)
    balance.subtract(evicted)
    came = tuple(block for block, change in balance.items() if change > 0)
    return came, tuple(block for block, change in balance.items() if change < 0)
