"""Block hashes: bit-exact with xxhash, scoped so that models, adapters and tenants never meet."""

from __future__ import annotations

import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from data.errors import InputError, SettingError
from router.prefix.index import PrefixIndex
from router.prompts.block_hashes import PublicPrefixes, hash_tokens, scope_hashes, token_array
from router.prompts.prefix_scope import BlockExtras, MediaSpan, Scope, ScopeKeys, media_key, parse_extra_keys
from router.prompts.xxh64 import chain, xxh64

KEYS = ScopeKeys(b"0123456789abcdef")
PROMPT = list(range(1, 257))


def oracle(tokens: list[int], block: int, root: int) -> list[int]:
    out = []
    for start in range(0, len(tokens) - block + 1, block):
        raw = np.array(tokens[start : start + block], dtype="<u4").tobytes()
        root = xxhash.xxh64_intdigest(raw, seed=root)
        out.append(root)
    return out


@settings(deadline=None)
@given(st.lists(st.integers(0, 2**32 - 1), max_size=100), st.integers(0, 2**64 - 1))
def test_one_hash_is_bit_exact(tokens: list[int], seed: int) -> None:
    raw = np.array(tokens, dtype="<u4")
    expected = xxhash.xxh64_intdigest(raw.tobytes(), seed=seed)
    assert int(xxh64(raw.astype(np.uint32), 0, len(raw), np.uint64(seed))) == expected


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 2**32 - 1), max_size=200), st.integers(1, 40), st.sampled_from(["a@1", "b@1", "a@2"])
)
def test_a_chain_is_bit_exact(tokens: list[int], block: int, model: str) -> None:
    scope = Scope(model, block_tokens=block)
    assert hash_tokens(tokens, scope).tolist() == oracle(tokens, block, int(scope.root()))


def test_every_part_of_the_scope_keeps_prefixes_apart_f030() -> None:
    """F030: the same tokens under another model, revision, adapter, tenant or block size share no key."""
    scopes = [
        Scope("m1@1"),
        Scope("m1@2"),
        Scope("m2@1"),
        Scope("m1@1", adapter="legal"),
        Scope("m1@1", tenant_scope=KEYS.of("t")),
        Scope("m1@1", tenant_scope=KEYS.of("u")),
        Scope("m1@1", tenant_scope=KEYS.of("t", "narrow")),
    ]
    seen: set[int] = set()
    for scope in scopes:
        hashes = set(hash_tokens(PROMPT, scope).tolist())
        assert not hashes & seen
        seen |= hashes
    index = PrefixIndex(2)
    index.stored(0, hash_tokens(PROMPT, Scope("m1@1", adapter="legal")))
    assert index.matched_blocks(hash_tokens(PROMPT, Scope("m1@1"))).tolist() == [0, 0]
    assert index.matched_blocks(hash_tokens(PROMPT, Scope("m1@1", adapter="legal"))).tolist() == [16, 0]


def test_a_client_value_only_narrows_the_scope_f146() -> None:
    """F146: an attacker who sends the victim's scope or tenant name hits nothing; the victim hits all."""
    index = PrefixIndex(1)
    victim = Scope("m@1", tenant_scope=KEYS.of("victim"))
    index.stored(0, hash_tokens(PROMPT, victim))
    for sent in ("victim", victim.tenant_scope, ""):
        evil = Scope("m@1", tenant_scope=KEYS.of("evil", sent))
        assert index.matched_blocks(hash_tokens(PROMPT, evil)).tolist() == [0]
    assert index.matched_blocks(hash_tokens(PROMPT, victim)).tolist() == [16]
    assert KEYS.of("victim") != ScopeKeys(b"another secret 16").of("victim")


def test_lengths_of_parts_cannot_be_shifted_f146() -> None:
    """F146: tenant and client value are framed, so no pair of them reads as another."""
    assert KEYS.of("ab", "c") != KEYS.of("a", "bc")
    assert Scope("ab", "c").root() != Scope("a", "bc").root()


def test_private_prefixes_are_private_and_declared_ones_shared_f145() -> None:
    """F145: tenant B finds nothing of A's private prefix, and all of a public one that anybody caused."""
    public = PublicPrefixes()
    system = list(range(1000, 1000 + 40))
    assert public.declare(system, Scope("m@1")) == 2
    a, b = (Scope("m@1", tenant_scope=KEYS.of(tenant)) for tenant in "ab")
    index = PrefixIndex(2)
    private, shared = public.hash_prompt(PROMPT, a)
    assert shared == 0
    index.stored(0, private)
    assert index.matched_blocks(public.hash_prompt(PROMPT, b)[0]).tolist() == [0, 0]
    assert index.matched_blocks(public.hash_prompt(PROMPT, a)[0]).tolist() == [16, 0]
    of_a, shared = public.hash_prompt(system + PROMPT, a)
    assert shared == 2
    index.stored(1, of_a)
    assert index.matched_blocks(public.hash_prompt(system + PROMPT, b)[0]).tolist() == [0, 2]
    assert index.matched_blocks(public.hash_prompt(system + PROMPT, a)[0]).tolist() == [0, len(of_a)]


def test_a_public_prefix_shorter_than_a_block_is_refused() -> None:
    with pytest.raises(InputError, match="shorter than a block"):
        PublicPrefixes().declare([1, 2, 3], Scope("m@1"))


def test_callers_own_hashes_stay_distinct_and_scoped_f142() -> None:
    """F142: 64-bit hashes are opaque: those that differ only in the upper half, or above 2^53, stay distinct."""
    ids = [4294967297, 8589934593, 9007199254740993, 9007199254740992, 0, 2**64 - 1]
    raw = np.array(ids, dtype="<u8").tobytes()
    mixed = scope_hashes(raw, Scope("m@1"))
    assert len(set(mixed.tolist())) == len(ids)
    assert not set(mixed.tolist()) & set(scope_hashes(raw, Scope("m@2")).tolist())
    assert mixed.tolist() == scope_hashes(raw, Scope("m@1")).tolist()
    with pytest.raises(InputError, match="multiple of 8"):
        scope_hashes(raw[:-1], Scope("m@1"))


@pytest.mark.parametrize("bad", [[1, -1], [2**32], [1, 2, "3"], [1.5], [None]])
def test_bad_token_ids_are_named_by_place_not_by_value_f150(bad: list[object]) -> None:
    """F150: an error about a prompt holds no token of it."""
    with pytest.raises(InputError, match="bad token id") as caught:
        token_array(bad)  # type: ignore[arg-type]
    assert "got" not in str(caught.value)
    assert f"tokens[{len(bad) - 1}]" in str(caught.value)


def test_media_changes_its_own_block_and_all_after() -> None:
    scope = Scope("m@1")
    plain = hash_tokens(PROMPT, scope).tolist()
    image = hash_tokens(PROMPT, scope, [MediaSpan("img", 40, 20)]).tolist()
    other = hash_tokens(PROMPT, scope, [MediaSpan("other", 40, 20)]).tolist()
    assert image[:2] == plain[:2] == other[:2]
    assert not set(image[2:]) & set(plain)
    assert not set(image[2:]) & set(other)


def test_media_that_runs_past_the_last_block_is_cut() -> None:
    assert len(hash_tokens(PROMPT[:40], Scope("m@1"), [MediaSpan("img", 30, 500)])) == 2


def test_each_extra_key_is_read_as_its_own_kind_f029() -> None:
    """F029: adapter, salt and media are told apart; an unknown kind makes the block not comparable."""
    salt = KEYS.of("t")
    assert parse_extra_keys(None, "") == BlockExtras()
    assert parse_extra_keys(["legal"], "legal") == BlockExtras()
    assert parse_extra_keys([["img", 3]], "") == BlockExtras(media=("img",))
    assert parse_extra_keys(["legal", ["img", 3]], "legal") == BlockExtras(media=("img",))
    assert parse_extra_keys([salt], "") == BlockExtras(salt)
    assert parse_extra_keys([["cache_salt", salt]], "") == BlockExtras(salt)
    for unknown in (["legal"], ["tenant-a"], [7], [["a", "b"]], [["cache_salt", "x"]], "legal", [b"x"], 5):
        assert parse_extra_keys(unknown, "") is None
    assert media_key(["a", "b"]) != media_key(["b", "a"])


@pytest.mark.parametrize("length", [0, 15, 65])
def test_a_weak_secret_is_refused(length: int) -> None:
    with pytest.raises(SettingError, match="16 to 64 bytes") as caught:
        ScopeKeys(b"s" * length)
    assert "sss" not in str(caught.value)


def test_a_partial_block_has_no_hash() -> None:
    nothing = np.zeros(0, dtype=np.uint64)
    assert len(chain(np.arange(31, dtype=np.uint32), 16, np.uint64(0), nothing)) == 1
    assert len(hash_tokens([], Scope("m@1"))) == 0
