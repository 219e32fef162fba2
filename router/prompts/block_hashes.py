"""Chained 64-bit block hashes of prompts, as token ids or as the caller's own hashes, within a scope."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence

import numpy as np

from data.errors import InputError
from router.compiled import compiled
from router.prefix.slots import GOLDEN, UInt64Array
from router.prompts.prefix_scope import PUBLIC, MediaSpan, Scope, media_keys
from router.prompts.xxh64 import TokenArray, chain

SPREAD = np.uint64(29)
NO_MEDIA: UInt64Array = np.zeros(0, dtype=np.uint64)


def token_array(tokens: Sequence[int]) -> TokenArray:
    """Token ids as uint32.

    Raises:
        InputError: If one is negative, above 2^32 − 1 or no whole number. It tells the place, not the value.
    """
    if isinstance(tokens, np.ndarray) and tokens.dtype == np.uint32:
        return tokens
    try:
        return np.frombuffer(array("I", tokens), dtype=np.uint32)
    except (OverflowError, TypeError, ValueError):
        bad = next((i for i, t in enumerate(tokens) if not isinstance(t, int) or not 0 <= t < 2**32), 0)
        raise InputError("bad token id", field=f"tokens[{bad}]", expected="0 to 4294967295") from None


def hash_tokens(tokens: Sequence[int], scope: Scope, media: Sequence[MediaSpan] = ()) -> UInt64Array:
    """One hash a full block of the prompt, shape (tokens // block_tokens,).

    Raises:
        InputError: If a token id is out of range.
    """
    ids = token_array(tokens)
    blocks = len(ids) // scope.block_tokens
    return chain(ids, scope.block_tokens, scope.root(), media_keys(media, blocks, scope.block_tokens))


def scope_hashes(raw: bytes, scope: Scope) -> UInt64Array:
    """The caller's own block hashes (uint64, little-endian), mixed with the scope.

    They are opaque: equal ones in one scope are equal afterwards, in different scopes they differ.

    Raises:
        InputError: If the bytes are no whole number of hashes.
    """
    if len(raw) % 8:
        raise InputError(
            "block hashes cut short", field="block_hashes", value=len(raw), expected="a multiple of 8"
        )
    return scoped(np.frombuffer(raw, dtype="<u8").astype(np.uint64), scope)


def scoped(hashes: UInt64Array, scope: Scope) -> UInt64Array:
    """Hashes mixed with a scope: one vectorised step, one to one within a scope."""
    return mix(hashes, scope.root())


@compiled
def mix(hashes: UInt64Array, root: np.uint64) -> UInt64Array:
    """Hashes mixed with the root of a scope: an invertible step, so what was distinct stays distinct."""
    out = np.empty(hashes.shape[0], dtype=np.uint64)
    for i in range(hashes.shape[0]):
        mixed = (hashes[i] ^ root) * GOLDEN
        out[i] = mixed ^ (mixed >> SPREAD)
    return out


class PublicPrefixes:
    """Prompt beginnings that an operator declared public: shared by all tenants.

    Only whole blocks of them are shared; what a tenant adds behind is hashed in the tenant's own scope.
    """

    def __init__(self) -> None:
        self._known: dict[Scope, set[int]] = {}

    def declare(self, tokens: Sequence[int], scope: Scope) -> int:
        """Share this beginning for the scope's model, adapter and block size; how many blocks that is.

        Raises:
            InputError: If a token id is out of range, or if the beginning is shorter than a block.
        """
        public = _public(scope)
        hashes = hash_tokens(tokens, public).tolist()
        if not hashes:
            problem = "public prefix shorter than a block"
            raise InputError(problem, value=len(tokens), expected=f">= {scope.block_tokens} tokens")
        self._known.setdefault(public, set()).update(hashes)
        return len(hashes)

    def hash_prompt(
        self, tokens: Sequence[int], scope: Scope, media: Sequence[MediaSpan] = ()
    ) -> tuple[UInt64Array, int]:
        """Hashes of a tenant's prompt and how many leading blocks of it are public.

        A prompt that begins with a public prefix must reach the engine *without* a salt, or the engine would not
        share it; the tenant's part behind it is not found by other tenants here, but an engine shares it with
        whoever sends the very same tokens.
        """
        public = _public(scope)
        known = self._known.get(public)
        ids = token_array(tokens)
        size = scope.block_tokens
        keys = media_keys(media, len(ids) // size, size)
        if not known or scope.tenant_scope == PUBLIC:
            return chain(ids, size, scope.root(), keys), 0
        shared = chain(ids, size, public.root(), keys)
        count = _leading(shared.tolist(), known)
        if not count:
            return chain(ids, size, scope.root(), keys), 0
        own_root = shared[count - 1] ^ scope.root()
        own = chain(ids[count * size :], size, own_root, keys[count:])
        return np.concatenate([shared[:count], own]), count


def _public(scope: Scope) -> Scope:
    return Scope(scope.model, scope.adapter, PUBLIC, scope.block_tokens)


def _leading(hashes: Iterable[int], known: set[int]) -> int:
    count = 0
    for block in hashes:
        if block not in known:
            break
        count += 1
    return count
