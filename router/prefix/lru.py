"""Blocks that one endpoint is believed to hold, least recently used out first: a hash table and a linked list."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from data.types import FloatArray, IntArray
from router.compiled import compiled
from router.prefix.slots import GOLDEN, HALF, UInt64Array

Int32Array = npt.NDArray[np.int32]
NEWEST, OLDEST, USED, FREE = range(4)
"""What ``state`` holds: ends of the list, places ever used, head of the list of places given back (-1 = none)."""


class LruBlocks:
    """The last ``capacity`` distinct blocks, most recently sent first.

    A prompt is touched from its tail to its head, so the oldest block is always the tail of a chain: what is held
    stays prefix-closed. Costs about 32 bytes a block of capacity, taken when the capacity is set.

    Args:
        capacity: Blocks kept (at least 1).
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._keys: UInt64Array = np.zeros(capacity, dtype=np.uint64)
        self._links: Int32Array = np.zeros((capacity, 2), dtype=np.int32)
        self._places: Int32Array = np.zeros(1 << int(capacity * 1.25).bit_length(), dtype=np.int32)
        self._sent_s: FloatArray = np.zeros(capacity)
        self._state: IntArray = np.array([-1, -1, 0, -1], dtype=np.int64)
        self._len = 0

    def __len__(self) -> int:
        return self._len

    def memory_bytes(self) -> int:
        """Bytes allocated."""
        return self._keys.nbytes + self._links.nbytes + self._places.nbytes + self._sent_s.nbytes

    def touch(self, hashes: UInt64Array, now_s: float = 0.0) -> tuple[UInt64Array, UInt64Array]:
        """A prompt was sent: ``(evicted, new)`` blocks, to be applied in that order.

        Of a prompt longer than the capacity only the head is kept.
        """
        head = hashes[: self.capacity]
        changed = np.empty((2, len(head)), dtype=np.uint64)
        new, evicted = _touch(
            head, now_s, self._keys, self._links, self._places, self._sent_s, self._state, changed
        )
        self._len += new - evicted
        return changed[1, :evicted], changed[0, :new]

    def expire(self, before_s: float) -> UInt64Array:
        """Drop the blocks that were last sent before this moment."""
        gone = np.empty(self._len, dtype=np.uint64)
        count = _expire(before_s, self._keys, self._links, self._places, self._sent_s, self._state, gone)
        self._len -= count
        return gone[:count]

    def oldest_first(self) -> UInt64Array:
        """All blocks, the one to go next first."""
        return _walk(self._keys, self._links, self._state, self._len)


@compiled
def _seek(keys: UInt64Array, places: Int32Array, key: np.uint64) -> int:
    last = places.shape[0] - 1
    slot: int = int(((key ^ (key >> HALF)) * GOLDEN) >> HALF) & last
    while places[slot] != 0 and keys[places[slot] - 1] != key:
        slot = (slot + 1) & last
    return slot


@compiled
def _forget(keys: UInt64Array, places: Int32Array, slot: int) -> None:
    last = places.shape[0] - 1
    hole, probe = slot, (slot + 1) & last
    while places[probe] != 0:
        key = keys[places[probe] - 1]
        start = int(((key ^ (key >> HALF)) * GOLDEN) >> HALF) & last
        if ((probe - start) & last) >= ((probe - hole) & last):
            places[hole] = places[probe]
            hole = probe
        probe = (probe + 1) & last
    places[hole] = 0


@compiled
def _unlink(links: Int32Array, state: IntArray, place: int) -> None:
    newer, older = links[place, 0], links[place, 1]
    if newer >= 0:
        links[newer, 1] = older
    else:
        state[NEWEST] = older
    if older >= 0:
        links[older, 0] = newer
    else:
        state[OLDEST] = newer


@compiled
def _push(links: Int32Array, state: IntArray, place: int) -> None:
    head = state[NEWEST]
    links[place, 0], links[place, 1] = -1, head
    if head >= 0:
        links[head, 0] = place
    else:
        state[OLDEST] = place
    state[NEWEST] = place


@compiled
def _touch(
    hashes: UInt64Array,
    now_s: float,
    keys: UInt64Array,
    links: Int32Array,
    places: Int32Array,
    sent_s: FloatArray,
    state: IntArray,
    changed: UInt64Array,
) -> tuple[int, int]:
    new = evicted = 0
    for i in range(hashes.shape[0] - 1, -1, -1):
        key = hashes[i]
        slot = _seek(keys, places, key)
        if places[slot] != 0:
            place = int(places[slot]) - 1
            sent_s[place] = now_s
            _unlink(links, state, place)
            _push(links, state, place)
            continue
        if state[FREE] >= 0:
            place = state[FREE]
            state[FREE] = links[place, 1]
        elif state[USED] < keys.shape[0]:
            place = state[USED]
            state[USED] += 1
        else:
            place = state[OLDEST]
            changed[1, evicted] = keys[place]
            evicted += 1
            _forget(keys, places, _seek(keys, places, keys[place]))
            _unlink(links, state, place)
            slot = _seek(keys, places, key)
        keys[place] = key
        sent_s[place] = now_s
        places[slot] = place + 1
        _push(links, state, place)
        changed[0, new] = key
        new += 1
    return new, evicted


@compiled
def _expire(
    before_s: float,
    keys: UInt64Array,
    links: Int32Array,
    places: Int32Array,
    sent_s: FloatArray,
    state: IntArray,
    gone: UInt64Array,
) -> int:
    count = 0
    while state[OLDEST] >= 0 and sent_s[state[OLDEST]] < before_s:
        place = state[OLDEST]
        gone[count] = keys[place]
        count += 1
        _forget(keys, places, _seek(keys, places, keys[place]))
        _unlink(links, state, place)
        links[place, 1] = state[FREE]
        state[FREE] = place
    return count


@compiled
def _walk(keys: UInt64Array, links: Int32Array, state: IntArray, count: int) -> UInt64Array:
    out = np.empty(count, dtype=np.uint64)
    place = state[OLDEST]
    for i in range(out.shape[0]):
        out[i] = keys[place]
        place = links[place, 0]
    return out
