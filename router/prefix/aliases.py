"""Engine hash to own hash for one endpoint: what lets removals, which carry engine hashes only, find own keys."""

from __future__ import annotations

import numpy as np

from data.types import IntArray
from router.compiled import compiled
from router.prefix.slots import FILL, ZERO, UInt64Array, erase, find, shift_of, slots_for
from router.prompts.xxh64 import TokenArray, chain

ENTRIES, SHIFT = range(2)


class Aliases:
    """Blocks of one endpoint under both names; 18 bytes a slot at a fill of at most 0.8.

    Args:
        expected_blocks: Blocks to make room for at once; more is reached by doubling.
        max_blocks: Bound (at least 1).
    """

    def __init__(self, expected_blocks: int = 0, max_blocks: int = 1 << 22) -> None:
        self._expected, self.max_blocks = expected_blocks, max_blocks
        self.clear()

    def __len__(self) -> int:
        return int(self._state[ENTRIES])

    def memory_bytes(self) -> int:
        """Bytes allocated."""
        return self._table.nbytes + self._tags.nbytes

    def clear(self) -> None:
        """Forget all."""
        self._allocate(slots_for(min(self._expected, self.max_blocks)))

    def extend(
        self,
        engine_hashes: UInt64Array,
        parent: int | None,
        tokens: TokenArray,
        root: np.uint64,
        media: UInt64Array,
    ) -> tuple[UInt64Array, int | None] | None:
        """Own hashes of newly stored blocks, and of their parent; ``None`` if the parent is not known.

        Args:
            engine_hashes: One a block.
            parent: Engine hash of the block before, ``None`` = the chain begins here.
            tokens: Token ids of the blocks; a whole number for each.
            root: Seed of a chain that begins here.
            media: As in :func:`router.prompts.xxh64.chain`.
        """
        while self._state[ENTRIES] + len(engine_hashes) > self._limit:
            self._grow()
        before = np.uint64(parent or 0)
        own, seed, known = _extend(
            engine_hashes, before, parent is not None, tokens, root, media, self._table, self._state
        )
        if not known:
            return None
        return own, None if parent is None else int(seed)

    def take(self, engine_hashes: UInt64Array) -> UInt64Array:
        """Own hashes of removed blocks, which are forgotten here; unknown ones are left out."""
        return _take(engine_hashes, self._table, self._tags, self._state)

    def pairs(self) -> tuple[UInt64Array, UInt64Array]:
        """Engine hashes and own hashes of all blocks."""
        used = self._table[self._table[:, 1] != 0]
        return used[:, 0].copy(), used[:, 1].copy()

    def load(self, engine_hashes: UInt64Array, own: UInt64Array) -> None:
        """Add pairs that :meth:`pairs` gave."""
        while len(self) + len(engine_hashes) > self._limit:
            self._grow()
        _put(engine_hashes, own, self._table, self._state)

    def _grow(self) -> None:
        engine, own = self.pairs()
        self._allocate(2 * len(self._table))
        _put(engine, own, self._table, self._state)

    def _allocate(self, slots: int) -> None:
        self._table: UInt64Array = np.zeros((slots, 2), dtype=np.uint64)
        self._tags = np.zeros(slots, dtype=np.uint16)
        self._limit = int(slots * FILL)
        self._state: IntArray = np.array([0, int(shift_of(slots))], dtype=np.int64)


@compiled
def _extend(
    engine_hashes: UInt64Array,
    parent: np.uint64,
    has_parent: bool,
    tokens: TokenArray,
    root: np.uint64,
    media: UInt64Array,
    table: UInt64Array,
    state: IntArray,
) -> tuple[UInt64Array, np.uint64, bool]:
    seed = root
    if has_parent:
        slot = find(table, np.uint64(state[SHIFT]), parent)
        if slot < 0:
            return np.empty(0, dtype=np.uint64), seed, False
        seed = table[slot, 1]
    own = chain(tokens, tokens.shape[0] // engine_hashes.shape[0], seed, media)
    _put(engine_hashes, own, table, state)
    return own, seed, True


@compiled
def _put(engine_hashes: UInt64Array, own: UInt64Array, table: UInt64Array, state: IntArray) -> None:
    shift = np.uint64(state[SHIFT])
    for i in range(engine_hashes.shape[0]):
        slot = find(table, shift, engine_hashes[i])
        if slot < 0:
            slot = -1 - slot
            table[slot, 0] = engine_hashes[i]
            state[ENTRIES] += 1
        # The word 0 marks an empty slot; one hash in 2^64 is off by one here.
        table[slot, 1] = max(own[i], np.uint64(1))


@compiled
def _take(
    engine_hashes: UInt64Array,
    table: UInt64Array,
    tags: np.ndarray[tuple[int], np.dtype[np.uint16]],
    state: IntArray,
) -> UInt64Array:
    shift = np.uint64(state[SHIFT])
    own = np.empty(engine_hashes.shape[0], dtype=np.uint64)
    found = 0
    for i in range(engine_hashes.shape[0]):
        slot = find(table, shift, engine_hashes[i])
        if slot >= 0 and table[slot, 1] != ZERO:
            own[found] = table[slot, 1]
            found += 1
            erase(table, tags, shift, slot)
            state[ENTRIES] -= 1
    return own[:found]
