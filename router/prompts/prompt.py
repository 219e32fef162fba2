"""What a request tells of its prompt, and what is made of it for the prefix index and the engine."""

from __future__ import annotations

import struct
from typing import NamedTuple, Protocol

from router.prompts.prefix_scope import MediaSpan


class Prompt(NamedTuple):
    """What block hashes are made from.

    Attributes:
        tenant: Verified tenant: prefixes of tenants stay apart.
        token_ids: Little-endian uint32; empty where the caller sent hashes.
        block_hashes: Little-endian uint64; empty where the caller sent token ids.
        block_tokens: Tokens in a block.
        media_digest: Digest of all media, where it is not known where they lie; empty = none.
        engine_hashes: The caller's hashes are the engine's own.
        media: Images and the like, with their places.
    """

    model: str
    tenant: str
    adapter: str
    cache_scope: str
    media_digest: str
    token_ids: bytes
    block_hashes: bytes
    block_tokens: int
    engine_hashes: bool = False
    media: tuple[MediaSpan, ...] = ()


class HashedPrompt(NamedTuple):
    """What the prefix index and the engine need to know of a prompt.

    Attributes:
        blocks: One chained 64-bit hash for each full block.
        cache_salt: What the engine must be given so that it keeps the same scopes apart; empty = nothing.
    """

    blocks: tuple[int, ...] = ()
    cache_salt: str = ""


class PromptHasher(Protocol):
    """Turns prompts into the hashes that the prefix index is asked for."""

    def hashed(self, prompt: Prompt) -> HashedPrompt:
        """Its hashes and its salt."""
        ...


class GivenHashes:
    """Takes the caller's hashes as they are and knows nothing of token ids."""

    def hashed(self, prompt: Prompt) -> HashedPrompt:
        """The caller's block hashes, no salt."""
        return HashedPrompt(struct.unpack(f"<{len(prompt.block_hashes) // 8}Q", prompt.block_hashes))
