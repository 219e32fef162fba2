"""Which endpoint holds which prompt prefix: one dictionary from block hash to a bit mask of endpoints.

Residency is prefix-closed: an engine that holds a block holds all blocks before it (it evicts from the tail of a
chain). Along a prompt the masks can therefore only lose bits, and the places where they change are found by
bisection: O(changes · log blocks) lookups instead of O(blocks).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from data.types import IntArray

Change = tuple[int, int]
"""``(mask, end)``: the endpoints in ``mask`` hold the blocks up to, not including, position ``end``."""


def change_points(masks: dict[int, int], hashes: Sequence[int]) -> list[Change]:
    """Where the holders of a chain change, by bisection; needs prefix-closed residency."""
    changes: list[Change] = []
    get, n = masks.get, len(hashes)
    start = 0
    mask = get(hashes[0], 0) if n else 0
    while mask:
        if get(hashes[-1], 0) == mask:
            changes.append((mask, n))
            return changes
        same, other = start, n - 1
        while other - same > 1:
            middle = (same + other) // 2
            if get(hashes[middle], 0) == mask:
                same = middle
            else:
                other = middle
        changes.append((mask, other))
        start = other
        mask = get(hashes[start], 0)
    return changes


def change_points_linear(masks: dict[int, int], hashes: Sequence[int]) -> list[Change]:
    """The same by looking at every block; also right when chains have gaps (lost events, offload tiers)."""
    changes: list[Change] = []
    mask = -1
    for position, block in enumerate(hashes):
        held = masks.get(block, 0) & mask
        if held != mask and position:
            changes.append((mask, position))
        mask = held
        if not mask:
            return changes
    if mask > 0:
        changes.append((mask, len(hashes)))
    return changes


class BlockMasks:
    """Block hash to bit mask of holders, with the lookup that both indexes share.

    Args:
        n_endpoints: Rows of the endpoint table (at least 1).
        prefix_closed: ``False`` looks at every block of a chain instead of bisecting.
    """

    def __init__(self, n_endpoints: int, prefix_closed: bool = True) -> None:
        self.n_endpoints = n_endpoints
        self._masks: dict[int, int] = {}
        self._bits = [1 << row for row in range(n_endpoints)]
        self._find = change_points if prefix_closed else change_points_linear
        self._bytes = (n_endpoints + 7) // 8
        self._none = np.zeros(n_endpoints, dtype=np.int64)
        self._none.flags.writeable = False
        self._asked: tuple[int, ...] | None = None
        self._answer: IntArray = self._none

    def __len__(self) -> int:
        """Distinct blocks held anywhere, counted from what is really stored."""
        return len(self._masks)

    def matched_blocks(self, block_hashes: tuple[int, ...]) -> IntArray:
        """Leading blocks held without a gap, one entry an endpoint; the array is read-only.

        Asking again for the same tuple without a change in between costs nothing.
        """
        if block_hashes is self._asked:
            return self._answer
        self._asked = block_hashes
        self._answer = self._expand(self._find(self._masks, block_hashes))
        return self._answer

    def deepest(self, block_hashes: tuple[int, ...]) -> tuple[int, int]:
        """``(blocks, mask)`` of the longest match that anybody holds; ``(0, 0)`` if nobody holds the first."""
        changes = self._find(self._masks, block_hashes)
        return (changes[-1][1], changes[-1][0]) if changes else (0, 0)

    def holders(self, block: int) -> int:
        """Bit mask of the endpoints that hold one block."""
        return self._masks.get(block, 0)

    def resident(self, endpoint: int) -> int:
        """Blocks held by one endpoint, counted from what is really stored (looks at every block)."""
        bit = self._bits[endpoint]
        return sum(1 for mask in self._masks.values() if mask & bit)

    def _expand(self, changes: list[Change]) -> IntArray:
        if not changes:
            return self._none
        raw = b"".join([mask.to_bytes(self._bytes, "little") for mask, _ in changes])
        bits = np.unpackbits(np.frombuffer(raw, dtype=np.uint8), bitorder="little").view(bool)
        rows = bits.reshape(len(changes), self._bytes * 8)[:, : self.n_endpoints]
        counts = np.zeros(self.n_endpoints, dtype=np.int64)
        for held, (_, end) in zip(rows, changes, strict=True):
            # Later changes hold fewer endpoints and longer matches, so they overwrite.
            counts[held] = end
        counts.flags.writeable = False
        return counts

    def _discard(self, bit: int, block: int) -> bool:
        mask = self._masks.get(block, 0)
        if not mask & bit:
            return False
        if mask == bit:
            del self._masks[block]
        else:
            self._masks[block] = mask ^ bit
        return True

    def _clear(self, bit: int) -> None:
        for block in [block for block, mask in self._masks.items() if mask & bit]:
            self._discard(bit, block)
