"""Apply the events of one endpoint to the prefix index."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from data.errors import InputError, SettingError
from router.kv_events.counters import EventCounters
from router.kv_events.decode import Batch, hash_of, hashes_of
from router.kv_events.messages import REMOVED, STORED, Hash, Stored
from router.prefix.aliases import Aliases
from router.prefix.index import PrefixIndex
from router.prefix.slots import UInt64Array
from router.prompts.block_hashes import NO_MEDIA, mix, token_array
from router.prompts.prefix_scope import PUBLIC, BlockExtras, Scope, media_key, parse_extra_keys

HashSource = Literal["tokens", "engine"]
DEVICE = "GPU"
Observer = Callable[[Stored], None]


@dataclass(frozen=True, slots=True)
class FeedSettings:
    """How the events of one endpoint are read.

    Attributes:
        model: Key ``name@version``.
        block_tokens: Tokens of a block of the engine, at least 1.
        hash_source: ``tokens`` = own hashes are computed from the events' token ids, within the tenant scope that
            the engine's cache salt names; ``engine`` = callers send the engine's own hashes, which are taken as
            they are (the salt is part of them).
        media: Kinds of memory whose blocks count as held.
        expected_blocks: Blocks the engine's cache holds, to make room at once.
        max_blocks: Above it the endpoint is cleared: removals must have been lost.
        lora_names: Adapter names by the engine's numbers, for engines that publish no names.

    Raises:
        SettingError: If a number is out of range.
    """

    model: str
    block_tokens: int = 16
    hash_source: HashSource = "tokens"
    media: tuple[str, ...] = (DEVICE,)
    expected_blocks: int = 0
    max_blocks: int = 1 << 22
    lora_names: tuple[tuple[int, str], ...] = ()

    def __post_init__(self) -> None:
        for name in ("block_tokens", "max_blocks"):
            if getattr(self, name) < 1:
                raise SettingError("out of range", field=name, value=getattr(self, name), expected=">= 1")


class RowEvents:
    """Applies batches to one row of the index; what was only guessed about the row is forgotten.

    Args:
        index: Where the blocks go.
        row: Row of the endpoint.
        settings: How to read the events.
        counters: Where things are counted.
        on_stored: Sees each stored event that has tokens before it is applied (the parity probe).
    """

    def __init__(
        self,
        index: PrefixIndex,
        row: int,
        settings: FeedSettings,
        counters: EventCounters | None = None,
        on_stored: Observer | None = None,
    ) -> None:
        self.row = row
        self.settings = settings
        self.counters = counters or EventCounters()
        self.aliases = Aliases(settings.expected_blocks, settings.max_blocks)
        self._index = index
        self._on_stored = on_stored
        self._own = settings.hash_source == "tokens"
        self._media = frozenset(settings.media)
        self._names = dict(settings.lora_names)
        self._ignored_groups: set[int] = set()
        self._roots: dict[tuple[str, str], np.uint64] = {}
        self._engine_root = Scope(settings.model, block_tokens=settings.block_tokens).root()
        self._gone: list[Hash] = []
        index.events_only(row)

    @property
    def needs_tokens(self) -> bool:
        """Whether payloads must be decoded with their token ids."""
        return self._own or self._on_stored is not None

    def apply(self, batch: Batch, now_s: float) -> None:
        """Apply one batch; ``now_s`` (Unix seconds) tells its lag."""
        counters = self.counters
        counters.batches += 1
        counters.malformed += batch.malformed
        for event in batch.events:
            if isinstance(event, REMOVED):
                if self._counts(event.medium, event.group_idx):
                    self._gone += event.block_hashes
                continue
            # Removals come one block an event: they are gathered, but never past a store.
            self._remove()
            if isinstance(event, STORED):
                self._store(event)
            else:
                self.clear()
        self._remove()
        if not math.isnan(batch.made_at_s):
            counters.lag(now_s - batch.made_at_s)

    def clear(self) -> None:
        """The endpoint holds nothing (any more)."""
        self._gone.clear()
        self.aliases.clear()
        self._index.cleared(self.row)
        self.counters.clears += 1

    def _counts(self, medium: str | None, group: int | None) -> bool:
        if medium is not None and medium not in self._media:
            self.counters.other_tiers += 1
            return False
        if group is not None and group in self._ignored_groups:
            self.counters.other_groups += 1
            return False
        return True

    def _remove(self) -> None:
        if not self._gone:
            return
        hashes = hashes_of(self._gone)
        self._gone.clear()
        if self._own:
            known = self.aliases.take(hashes)
            self.counters.unknown_removes += len(hashes) - len(known)
            self._index.removed(self.row, known)
        else:
            before = self._index.unmatched_removes
            self._index.removed(self.row, mix(hashes, self._engine_root))
            self.counters.unknown_removes += self._index.unmatched_removes - before
        self.counters.removed_blocks += len(hashes)

    def _store(self, event: Stored) -> None:
        if event.kv_cache_spec_kind not in (None, "full_attention"):
            self._ignored_groups.add(event.group_idx or 0)
        if not self._counts(event.medium, event.group_idx) or not event.block_hashes:
            return
        if event.block_size not in (0, self.settings.block_tokens):
            self.counters.block_size += 1
            return
        if self._on_stored is not None:
            self._on_stored(event)
        hashes = hashes_of(event.block_hashes)
        parent = None if event.parent_block_hash is None else hash_of(event.parent_block_hash)
        found = self._own_hashes(event, hashes, parent) if self._own else self._engine_hashes(hashes, parent)
        if found is None:
            return
        if self._index.resident(self.row) + len(hashes) > self.settings.max_blocks:
            self.counters.overflows += 1
            self.clear()
            return
        own, own_parent = found
        self._index.stored(self.row, own, own_parent)
        self.counters.stored_blocks += len(own)

    def _engine_hashes(self, hashes: UInt64Array, parent: int | None) -> tuple[UInt64Array, int | None]:
        if parent is None:
            return mix(hashes, self._engine_root), None
        before = mix(np.array([parent], dtype=np.uint64), self._engine_root)
        return mix(hashes, self._engine_root), int(before[0])

    def _own_hashes(
        self, event: Stored, hashes: UInt64Array, parent: int | None
    ) -> tuple[UInt64Array, int | None] | None:
        tokens = getattr(event, "token_ids", None)
        if not isinstance(tokens, list) or len(tokens) != len(hashes) * self.settings.block_tokens:
            self.counters.malformed += 1
            return None
        extras = self._extras(event, len(hashes))
        if extras is None:
            self.counters.not_comparable += 1
            return None
        try:
            ids = token_array(tokens)
        except InputError:
            self.counters.malformed += 1
            return None
        adapter, scope, media = extras
        found = self.aliases.extend(hashes, parent, ids, self._root(adapter, scope), media)
        if found is None:
            self.counters.orphans += 1
        return found

    def _extras(self, event: Stored, blocks: int) -> tuple[str, str, UInt64Array] | None:
        """Adapter, tenant scope and media keys; ``None`` if a part is not understood."""
        adapter = event.lora_name or ""
        if not adapter and event.lora_id is not None:
            adapter = self._names.get(event.lora_id, "")
            if not adapter:
                return None
        keys = event.extra_keys
        if keys is None or not any(keys):
            return adapter, PUBLIC, NO_MEDIA
        if len(keys) != blocks:
            return None
        each = [parse_extra_keys(key, adapter) for key in keys]
        if None in each:
            return None
        known: Sequence[BlockExtras] = [extra for extra in each if extra is not None]
        media = NO_MEDIA
        if any(extra.media for extra in known):
            media = np.array([media_key(extra.media) for extra in known], dtype=np.uint64)
        return adapter, known[0].tenant_scope, media

    def _root(self, adapter: str, tenant_scope: str) -> np.uint64:
        root = self._roots.get((adapter, tenant_scope))
        if root is None:
            if len(self._roots) >= 10_000:
                self._roots.clear()
            scope = Scope(self.settings.model, adapter, tenant_scope, self.settings.block_tokens)
            root = self._roots[adapter, tenant_scope] = scope.root()
        return root
