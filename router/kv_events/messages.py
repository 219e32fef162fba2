"""Shapes of KV-cache events on the wire: the map form (vLLM 0.32) and the positional form (older vLLM, SGLang).

Both have the same field names, so that whoever reads them need not know the form. Block hashes are 64-bit
integers, signed or not, or digests as bytes. Fields that are not used are not decoded.
"""

from __future__ import annotations

from typing import Any

import msgspec

Hash = int | bytes


class RawBatch(msgspec.Struct, array_like=True, gc=False):
    """One message: when it was made (Unix seconds), its events undecoded, the data-parallel rank."""

    ts: float
    events: msgspec.Raw
    rank: int | None = None


class MapStored(msgspec.Struct, tag_field="type", tag="BlockStored", gc=False):
    """Blocks that became resident, first to last of one chain."""

    block_hashes: list[Hash]
    parent_block_hash: Hash | None = None
    token_ids: list[int] | None = None
    block_size: int = 0
    lora_id: int | None = None
    medium: str | None = None
    lora_name: str | None = None
    extra_keys: list[Any] | None = None
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None


class MapStoredBare(msgspec.Struct, tag_field="type", tag="BlockStored", gc=False):
    """The same, its tokens left out."""

    block_hashes: list[Hash]
    parent_block_hash: Hash | None = None
    block_size: int = 0
    lora_id: int | None = None
    medium: str | None = None
    lora_name: str | None = None
    extra_keys: list[Any] | None = None
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None


class MapRemoved(msgspec.Struct, tag_field="type", tag="BlockRemoved", gc=False):
    """Blocks that were evicted."""

    block_hashes: list[Hash]
    medium: str | None = None
    group_idx: int | None = None


class MapCleared(msgspec.Struct, tag_field="type", tag="AllBlocksCleared", gc=False):
    """The whole cache was emptied."""


class ArrayStored(msgspec.Struct, array_like=True, tag="BlockStored", gc=False):
    """Blocks that became resident, positional form."""

    block_hashes: list[Hash]
    parent_block_hash: Hash | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None = None
    medium: str | None = None
    lora_name: str | None = None
    extra_keys: list[Any] | None = None
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None


class ArrayStoredBare(msgspec.Struct, array_like=True, tag="BlockStored", gc=False):
    """The same, its tokens left undecoded."""

    block_hashes: list[Hash]
    parent_block_hash: Hash | None
    token_ids: msgspec.Raw
    block_size: int
    lora_id: int | None = None
    medium: str | None = None
    lora_name: str | None = None
    extra_keys: list[Any] | None = None
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None


class ArrayRemoved(msgspec.Struct, array_like=True, tag="BlockRemoved", gc=False):
    """Blocks that were evicted, positional form."""

    block_hashes: list[Hash]
    medium: str | None = None
    group_idx: int | None = None


class ArrayCleared(msgspec.Struct, array_like=True, tag="AllBlocksCleared", gc=False):
    """The whole cache was emptied, positional form."""


Stored = MapStored | MapStoredBare | ArrayStored | ArrayStoredBare
Removed = MapRemoved | ArrayRemoved
Cleared = MapCleared | ArrayCleared
Event = Stored | Removed | Cleared
STORED = (MapStored, MapStoredBare, ArrayStored, ArrayStoredBare)
REMOVED = (MapRemoved, ArrayRemoved)
