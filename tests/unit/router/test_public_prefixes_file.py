"""Prompt beginnings that an operator declares public: from a file, shared by all tenants, without a salt."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from data.errors import DocumentError, InputError
from data.fleet.reference import reference_fleet
from router.prompts.prefix_scope import ScopeKeys
from router.prompts.prompt import Prompt
from router.prompts.prompt_hashes import ScopedHashes
from router.prompts.public_prefixes_file import PublicPrefix, declare_public, load_public_prefixes

MODEL = "assistant@v1"
SYSTEM = tuple(range(1000, 1040))
"""Two and a half blocks."""


def prompt(tenant: str, tokens: tuple[int, ...]) -> Prompt:
    ids = np.array(tokens, dtype=np.uint32).tobytes()
    return Prompt(MODEL, tenant, "", "", "", ids, b"", 16)


def hasher(*declared: PublicPrefix) -> ScopedHashes:
    public, _ = declare_public(declared, reference_fleet("one-pool"))
    return ScopedHashes(ScopeKeys(b"0123456789abcdef"), public)


def test_tenants_share_whole_public_blocks_and_nothing_behind_them_f145() -> None:
    """F145: what an operator declared is shared; a tenant's own text behind it is not."""
    hashes = hasher(PublicPrefix(MODEL, SYSTEM))
    text = (*SYSTEM, *range(64))
    shop, bank = (hashes.hashed(prompt(tenant, text)) for tenant in ("shop", "bank"))
    assert shop.blocks[:2] == bank.blocks[:2]
    assert not set(shop.blocks[2:]) & set(bank.blocks[2:])


def test_a_prompt_that_begins_publicly_reaches_the_engine_without_a_salt() -> None:
    hashes = hasher(PublicPrefix(MODEL, SYSTEM))
    assert hashes.hashed(prompt("shop", (*SYSTEM, 1, 2, 3))).cache_salt == ""
    private = hashes.hashed(prompt("shop", tuple(range(64))))
    assert private.cache_salt.startswith("tf1-")
    # A whole block must be shared, or nothing is.
    assert hashes.hashed(prompt("shop", (*SYSTEM[:15], *range(64)))).cache_salt == private.cache_salt


def test_without_a_declaration_nothing_is_shared_f145() -> None:
    hashes = ScopedHashes(ScopeKeys(b"0123456789abcdef"))
    shop, bank = (hashes.hashed(prompt(tenant, SYSTEM)) for tenant in ("shop", "bank"))
    assert not set(shop.blocks) & set(bank.blocks)
    assert shop.cache_salt != bank.cache_salt


def test_the_file_is_strict(tmp_path: Path) -> None:
    path = tmp_path / "public.yaml"
    path.write_text(f"public_prefixes:\n  - {{model: {MODEL}, token_ids: [1, 2], x-note: greeting}}\n")
    assert load_public_prefixes(path) == (PublicPrefix(MODEL, (1, 2)),)
    path.write_text(f"public_prefixes:\n  - {{model: {MODEL}, token_ids: [1, -2]}}\n  - {{modell: x}}\n")
    with pytest.raises(DocumentError) as raised:
        load_public_prefixes(path)
    assert len(raised.value.problems) == 4
    assert "public.yaml:2" in str(raised.value)
    path.write_text("- 1\n")
    with pytest.raises(DocumentError):
        load_public_prefixes(path)
    with pytest.raises(InputError, match="cannot be read"):
        load_public_prefixes(tmp_path / "absent.yaml")


def test_a_beginning_shorter_than_a_block_is_refused_and_an_unknown_model_is_told() -> None:
    fleet = reference_fleet("one-pool")
    with pytest.raises(InputError, match="shorter than a block"):
        declare_public([PublicPrefix(MODEL, (1, 2, 3))], fleet)
    other = PublicPrefix("other@v1", SYSTEM)
    _, left_out = declare_public([PublicPrefix(MODEL, SYSTEM), other], fleet)
    assert left_out == (other,)
    assert str(SYSTEM[0]) not in repr(other)
