"""The paged KV memory against a naive model that keeps every holder in plain lists."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from planner.sim import kv_cache
from planner.sim.kv_cache import KvCache

BLOCK = 4
SEGMENT = 10  # not a multiple of the engine block: three blocks, the last one half empty
SEGMENT_BLOCKS = 3
STALE_ENTRIES = kv_cache.STALE_ENTRIES


def chain(root: int, length: int) -> tuple[int, ...]:
    """Ids of a prompt: chains of the same root share their first two blocks, whatever follows."""
    shared = [root * 1000 + 1, root * 1000 + 2]
    return tuple((shared + [root * 1000 + 100 + length * 10 + i for i in range(length)])[: length + 2])


class KvCacheMachine(RuleBasedStateMachine):
    """Sequences come, compute segment by segment, grow, and go; the model counts from first principles."""

    @initialize(capacity=st.integers(min_value=6, max_value=40))
    def build(self, capacity: int) -> None:
        kv_cache.STALE_ENTRIES = 3  # so that tidying up happens in these small caches
        self.cache = KvCache(capacity, BLOCK)
        self.cache.use_segments(SEGMENT)
        self.holders: list[dict] = []
        self.lru: list[int] = []
        self.published: set[int] = set()

    def referenced(self) -> set[int]:
        return {block for holder in self.holders for block in holder["hashes"][: holder["held"]]}

    def evict_for(self, blocks: int) -> None:
        """The model's own eviction, oldest first, only as far as needed."""
        capacity = self.cache.capacity
        while capacity - self.model_used() - len(self.lru) * SEGMENT_BLOCKS < blocks:
            self.lru.pop(0)

    def model_used(self) -> int:
        return len(self.referenced()) * SEGMENT_BLOCKS + sum(holder["private"] for holder in self.holders)

    @rule(root=st.integers(0, 2), length=st.integers(0, 3))
    def arrive(self, root: int, length: int) -> None:
        hashes = chain(root, length)
        hits = self.cache.match(hashes, len(hashes))
        resident = self.referenced() | set(self.lru)
        expected = next((i for i, block in enumerate(hashes) if block not in resident), len(hashes))
        assert hits == expected
        idle = [block for block in hashes[:hits] if block in self.lru]
        assert self.cache.idle_blocks(hashes, hits) == len(idle) * SEGMENT_BLOCKS
        self.cache.acquire(hashes, hits)
        self.lru = [block for block in self.lru if block not in idle]
        self.holders.append({"hashes": hashes, "held": hits, "private": 0})

    @precondition(lambda self: self.holders)
    @rule(pick=st.integers(0, 1000))
    def compute_segment(self, pick: int) -> None:
        holder = self.holders[pick % len(self.holders)]
        if holder["held"] == len(holder["hashes"]) or self.cache.room < SEGMENT_BLOCKS:
            return
        self.evict_for(SEGMENT_BLOCKS)
        self.cache.take(SEGMENT_BLOCKS)
        block = holder["hashes"][holder["held"]]
        self.cache.commit(holder["hashes"], holder["held"], holder["held"] + 1)
        self.lru = [other for other in self.lru if other != block]
        holder["held"] += 1

    @precondition(lambda self: self.holders)
    @rule(pick=st.integers(0, 1000), blocks=st.integers(1, 5))
    def grow(self, pick: int, blocks: int) -> None:
        if self.cache.room < blocks:
            return
        self.evict_for(blocks)
        self.cache.take(blocks)
        self.holders[pick % len(self.holders)]["private"] += blocks

    @precondition(lambda self: self.holders)
    @rule(pick=st.integers(0, 1000))
    def leave(self, pick: int) -> None:
        holder = self.holders.pop(pick % len(self.holders))
        self.cache.give(holder["private"])
        self.cache.release(holder["hashes"], holder["held"])
        still = self.referenced()
        for block in reversed(holder["hashes"][: holder["held"]]):
            if block not in still:
                self.lru.append(block)

    @rule()
    def collect(self) -> None:
        notices = self.cache.collect()
        if notices is not None:
            stored, removed = notices
            assert not self.published & set(stored)
            assert set(removed) <= self.published
            self.published = (self.published | set(stored)) - set(removed)
        assert self.published == self.referenced() | set(self.lru)

    def teardown(self) -> None:
        kv_cache.STALE_ENTRIES = STALE_ENTRIES

    @rule()
    def crash(self) -> None:
        self.cache.clear()
        self.holders, self.lru, self.published = [], [], set()

    @invariant()
    def blocks_are_conserved(self) -> None:
        if not hasattr(self, "cache"):
            return
        cache = self.cache
        assert cache.free >= 0
        assert cache.cached_free == len(self.lru) * SEGMENT_BLOCKS
        assert cache.used == self.model_used()
        assert cache.used + cache.cached_free + cache.free == cache.capacity

    @invariant()
    def the_queue_of_freed_segments_stays_short(self) -> None:
        if hasattr(self, "cache"):
            assert len(self.cache._lru) <= max(3, 2 * self.cache.capacity // SEGMENT_BLOCKS) + 4

    @invariant()
    def residency_is_prefix_closed(self) -> None:
        if not hasattr(self, "cache"):
            return
        resident = self.referenced() | set(self.lru)
        assert self.cache.resident() == len(resident)
        for root in range(3):
            for length in range(4):
                held = [block in resident for block in chain(root, length)]
                assert held == sorted(held, reverse=True)


TestKvCache = KvCacheMachine.TestCase
TestKvCache.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
