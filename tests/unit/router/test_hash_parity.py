"""Parity of prompts and block hashes between router and engine."""

from __future__ import annotations

import hashlib

import pytest

from router.kv_events.messages import MapStored
from router.prompts.hash_parity import (
    Parity,
    ParityBook,
    ParityResult,
    cbor,
    check_stored,
    compare_tokens,
    vllm_chain,
)

PROMPT = list(range(1, 65))


def event(hashes: list[int], tokens: list[int], size: int = 16, keys: list[list[str]] | None = None) -> MapStored:
    return MapStored(hashes, None, tokens, size, extra_keys=keys)  # type: ignore[arg-type]


def test_an_extra_leading_token_is_found_at_position_0_f038() -> None:
    """F038: the probe names the first differing position; credit ends for that kind of request only."""
    ours, engines = [128803, 71271, 88], [0, 128803, 71271, 88]
    found = compare_tokens(ours, engines)
    assert found == ParityResult(Parity.TOKENS, 0)
    book = ParityBook()
    assert book.credited(3, "chat")
    assert book.record(3, "chat", found)
    assert not book.credited(3, "chat")
    assert book.mode(3, "chat") == "approximate"
    assert book.mismatches == {"chat": 1}
    assert book.credited(3, "completions")
    assert book.credited(4, "chat")
    assert not book.record(3, "chat", ParityResult(Parity.UNKNOWN))
    assert not book.credited(3, "chat")
    assert book.record(3, "chat", compare_tokens(ours, ours))
    assert book.mode(3, "chat") == "events"
    book.record(3, "chat", found)
    book.forget(3)
    assert book.result(3, "chat").parity is Parity.UNKNOWN


def test_a_difference_further_on_and_none_at_all() -> None:
    assert compare_tokens(PROMPT, [*PROMPT[:40], 0, *PROMPT[41:]]).position == 40
    assert compare_tokens(PROMPT, PROMPT[:32]).parity is Parity.AGREES
    assert compare_tokens(PROMPT, []).parity is Parity.UNKNOWN


def test_the_chain_is_the_documented_one() -> None:
    """H_1 written out by hand: SHA-256 over a canonical CBOR array of 3 (digest, tokens, null)."""
    root = hashlib.sha256(b"\x6evllm-none-hash").digest()
    tokens = [1, 24, 256, 70_000]
    raw = b"\x83" + b"\x58\x20" + root + b"\x84\x01\x18\x18\x19\x01\x00\x1a\x00\x01\x11\x70" + b"\xf6"
    assert vllm_chain(tokens, 4) == [int.from_bytes(hashlib.sha256(raw).digest()[-8:], "big")]
    salted = raw[:-1] + b"\x81\x82\x6acache_salt\x62tA"
    assert vllm_chain(tokens, 4, "tA") == [int.from_bytes(hashlib.sha256(salted).digest()[-8:], "big")]


def test_each_mismatch_has_its_name() -> None:
    plain, salted = vllm_chain(PROMPT, 16), vllm_chain(PROMPT, 16, "tf1-a")
    assert check_stored(event(plain, PROMPT), PROMPT, 16).parity is Parity.AGREES
    assert check_stored(event(salted, PROMPT), PROMPT, 16, "tf1-a").parity is Parity.AGREES
    assert check_stored(event(plain, PROMPT), PROMPT, 32).parity is Parity.BLOCK_SIZE
    assert check_stored(event(plain, PROMPT), PROMPT, 16, "tf1-a").parity is Parity.SALT
    other = event(vllm_chain(PROMPT, 16, "x"), PROMPT, keys=[["x"]])
    assert check_stored(other, PROMPT, 16, "tf1-a").parity is Parity.SALT
    assert check_stored(event([1, 2, 3, 4], PROMPT), PROMPT, 16).parity is Parity.ALGORITHM
    seeded = event(vllm_chain(PROMPT, 16, seed="0"), PROMPT)
    assert check_stored(seeded, PROMPT, 16).parity is Parity.ALGORITHM
    assert check_stored(seeded, PROMPT, 16, seed="0").parity is Parity.AGREES
    shifted = [0, *PROMPT[:-1]]
    assert check_stored(event(plain, shifted), PROMPT, 16) == ParityResult(Parity.TOKENS, 0)


def test_an_event_from_the_middle_or_without_tokens_proves_nothing() -> None:
    assert check_stored(MapStored([1], 5, PROMPT[:16], 16), PROMPT, 16).parity is Parity.UNKNOWN
    assert check_stored(MapStored([1], None, None, 16), PROMPT, 16).parity is Parity.UNKNOWN


@pytest.mark.parametrize("value", [-1, 1.5, True, {}, 2**64])
def test_cbor_refuses_what_it_does_not_know(value: object) -> None:
    with pytest.raises(TypeError):
        cbor(value)


def test_cbor_lengths_take_the_shortest_form() -> None:
    assert cbor(23) == b"\x17"
    assert cbor(255) == b"\x18\xff"
    assert cbor(2**64 - 1) == b"\x1b" + b"\xff" * 8
    assert cbor("x" * 24)[:2] == b"\x78\x18"
    assert cbor([0] * 300)[:3] == b"\x99\x01\x2c"
