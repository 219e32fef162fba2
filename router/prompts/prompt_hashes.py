"""Block hashes of prompts within the scope of their tenant; see ``router.prompts.prefix_scope``."""

from __future__ import annotations

from typing import Any

import numpy as np

from router.prefix.hash_chain import HashChain
from router.prompts.block_hashes import NO_MEDIA, PublicPrefixes, scope_hashes
from router.prompts.prefix_scope import PUBLIC, MediaSpan, Scope, ScopeKeys, media_keys
from router.prompts.prompt import HashedPrompt, Prompt
from router.prompts.xxh64 import chain

MOST_SCOPES = 4096
"""Scopes whose digests are remembered."""


class ScopedHashes:
    """Hashes that differ between models, adapters and tenants, whatever the caller sends.

    Requests without a tenant (a fleet without tenants) share one public scope unless they narrow it.

    Args:
        keys: Derives the scope of a tenant.
        public: Prompt beginnings that all tenants share; ``None`` = none. May be replaced at any time.
    """

    def __init__(self, keys: ScopeKeys, public: PublicPrefixes | None = None) -> None:
        self._keys = keys
        self.public = public
        self._known: dict[tuple[str, str, str, str, int], tuple[Scope, np.uint64]] = {}

    def hashed(self, prompt: Prompt) -> HashedPrompt:
        """One chained hash for each full block, and the tenant's scope as the salt.

        A prompt that begins with a public prefix has no salt: the engine would not share it otherwise.
        """
        scope, root = self._scope(prompt)
        salt = scope.tenant_scope
        if prompt.block_hashes:
            if prompt.engine_hashes:
                # The engine's own hashes hold adapter and salt already; events bring the very same numbers.
                scope = Scope(prompt.model, block_tokens=prompt.block_tokens)
            return HashedPrompt(HashChain.of(scope_hashes(prompt.block_hashes, scope)), salt)
        # Arrays of uint32 are taken as they are, without a Python object for each token.
        tokens: Any = np.frombuffer(prompt.token_ids, dtype=np.uint32)
        # Media whose places are not known lie everywhere: such a prompt meets its like, not an engine's events.
        media = [MediaSpan(prompt.media_digest, 0, len(tokens))] if prompt.media_digest else prompt.media
        if self.public is not None:
            blocks, shared = self.public.hash_prompt(tokens, scope, media)
            return HashedPrompt(HashChain.of(blocks), PUBLIC if shared else salt)
        keys = media_keys(media, len(tokens) // scope.block_tokens, scope.block_tokens) if media else NO_MEDIA
        return HashedPrompt(HashChain.of(chain(tokens, scope.block_tokens, root, keys)), salt)

    def _scope(self, prompt: Prompt) -> tuple[Scope, np.uint64]:
        """Scope and the seed of its first block; both take several digests, so they are remembered."""
        # The caller's own hashes carry no media: their digests part the scope instead.
        narrow = prompt.cache_scope
        digests = prompt.media_digest or "\0".join(span.digest for span in prompt.media)
        if prompt.block_hashes and digests and not prompt.engine_hashes:
            narrow = f"{narrow}\0{digests}"
        key = (prompt.model, prompt.adapter, prompt.tenant, narrow, prompt.block_tokens)
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= MOST_SCOPES:
                self._known.clear()
            tenant_scope = self._keys.of(prompt.tenant, narrow) if prompt.tenant or narrow else PUBLIC
            scope = Scope(prompt.model, prompt.adapter, tenant_scope, prompt.block_tokens)
            known = self._known[key] = (scope, scope.root())
        return known
