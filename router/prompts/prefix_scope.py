"""What a cached prefix belongs to: model version, adapter, tenant scope, block size; keys never collide.

The tenant scope is derived on this side from the *authenticated* tenant with a secret key. A value from the client
is hashed into it and can therefore only narrow it: two tenants that send the same value stay apart. The scope's
text is handed to the engine as its cache salt, so that the engine's cache is split the same way; engines publish
it with each first block, and :func:`parse_extra_keys` recognises it there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from data.errors import SettingError
from router.prefix.slots import UInt64Array

SALT_MARK = "tf1-"
"""Every salt that this router gives out begins so."""
PUBLIC = ""
"""Scope of prefixes that an operator declared public: no salt, shared by all tenants."""


@dataclass(frozen=True, slots=True)
class Scope:
    """What a chain of blocks is rooted in.

    Attributes:
        model: Key ``name@version``.
        adapter: Name of the LoRA adapter; empty = none.
        tenant_scope: Text of :meth:`ScopeKeys.of`, or ``PUBLIC``. It is the engine's cache salt as well.
        block_tokens: Tokens of a block, at least 1.
    """

    model: str
    adapter: str = ""
    tenant_scope: str = PUBLIC
    block_tokens: int = 16

    def root(self) -> np.uint64:
        """Seed of the first block's hash."""
        digest = hashlib.blake2b(digest_size=8, person=b"tokenfleet-root")
        for part in (self.model, self.adapter, self.tenant_scope, str(self.block_tokens)):
            digest.update(_framed(part))
        return np.uint64(int.from_bytes(digest.digest(), "little"))


class ScopeKeys:
    """Derives tenant scopes with a secret.

    Args:
        secret: 16 to 64 bytes; all routers of a fleet that share engines use the same, else they cannot share
            cached prefixes.

    Raises:
        SettingError: If the secret has another length.
    """

    def __init__(self, secret: bytes) -> None:
        if not 16 <= len(secret) <= 64:
            problem = f"secret of {len(secret)} bytes"
            raise SettingError(problem, field="scope secret", expected="16 to 64 bytes")
        self._secret = secret

    def of(self, tenant: str, narrow: str = "") -> str:
        """Scope of an authenticated tenant; ``narrow`` is what the client sent, if anything."""
        digest = hashlib.blake2b(_framed(tenant), digest_size=16, key=self._secret, person=b"tokenfleet-scope")
        digest.update(_framed(narrow))
        return SALT_MARK + digest.hexdigest()


def scheme_of(keys: ScopeKeys) -> str:
    """Names the secret without telling it: snapshots made under another one are of no use."""
    return keys.of("scheme fingerprint")


def media_key(digests: Sequence[str]) -> int:
    """What media in a block add to its seed: 0 for none; their order counts."""
    if not digests:
        return 0
    digest = hashlib.blake2b(digest_size=8, person=b"tokenfleet-media")
    for item in digests:
        digest.update(_framed(item))
    return int.from_bytes(digest.digest(), "little") | 1


@dataclass(frozen=True, slots=True)
class MediaSpan:
    """An image, sound or video in a prompt: its identifier as the engine names it, and where its tokens lie."""

    digest: str
    first_token: int
    tokens: int


def media_keys(spans: Sequence[MediaSpan], blocks: int, block_tokens: int) -> UInt64Array:
    """One key a block for :func:`router.prompts.xxh64.chain`; empty if there is no media."""
    if not spans:
        return np.zeros(0, dtype=np.uint64)
    inside: list[list[str]] = [[] for _ in range(blocks)]
    for span in sorted(spans, key=lambda span: span.first_token):
        last = (span.first_token + span.tokens - 1) // block_tokens
        for block in range(span.first_token // block_tokens, min(last + 1, blocks)):
            inside[block].append(span.digest)
    return np.array([media_key(digests) for digests in inside], dtype=np.uint64)


@dataclass(frozen=True, slots=True)
class BlockExtras:
    """What an engine published with one block beside its tokens."""

    tenant_scope: str = PUBLIC
    media: tuple[str, ...] = ()


def parse_extra_keys(keys: object, adapter: str) -> BlockExtras | None:
    """The extra keys of one block, each read as its own kind; ``None`` if one of them is not understood.

    Understood are the adapter's own name, a salt of this router (bare or tagged ``cache_salt``), and media as
    pairs (identifier, offset). A bare text that is neither is *not* guessed to be one or the other.
    """
    if keys is None:
        return BlockExtras()
    if not isinstance(keys, list | tuple):
        return None
    scope, media = PUBLIC, list[str]()
    for key in keys:
        if isinstance(key, str) and key.startswith(SALT_MARK):
            scope = key
        elif isinstance(key, str) and adapter and key == adapter:
            continue
        elif _is_pair(key) and key[0] == "cache_salt" and str(key[1]).startswith(SALT_MARK):
            scope = str(key[1])
        elif _is_pair(key) and key[0] != "cache_salt" and isinstance(key[1], int):
            media.append(str(key[0]))
        else:
            return None
    return BlockExtras(scope, tuple(media))


def _is_pair(key: object) -> bool:
    return isinstance(key, list | tuple) and len(key) == 2 and isinstance(key[0], str)


def _framed(text: str) -> bytes:
    raw = text.encode("utf-8", "surrogatepass")
    return len(raw).to_bytes(4, "little") + raw
