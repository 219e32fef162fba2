"""Whose prefix hits count: none for a kind of request whose prompts the engine sees as other tokens (F038)."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from router.kv_events.messages import MapStored
from router.prefix.index import PrefixIndex
from router.prompts.prefix_credit import PrefixCredit

BLOCKS = (11, 22, 33)


def prompts(count: int, seed: int) -> list[list[int]]:
    return np.random.default_rng(seed).integers(1, 1000, (count, 48)).tolist()  # type: ignore[no-any-return]


def ids(tokens: list[int]) -> bytes:
    return np.array(tokens, dtype=np.uint32).tobytes()


def watched() -> tuple[PrefixIndex, PrefixCredit]:
    index = PrefixIndex(2)
    for row in (0, 1):
        index.stored(row, BLOCKS)
    credit = PrefixCredit(index, lambda row: f"w{row}")
    credit.watch(0)
    return index, credit


def mismatch(credit: PrefixCredit) -> None:
    """The engine puts a token before every chat prompt; completions arrive as they are."""
    for chat, plain in zip(prompts(40, 0), prompts(40, 1), strict=True):
        credit.sent(0, "chat", ids(chat))
        credit.sent(0, "completions", ids(plain))
        credit.stored(0, MapStored([1], None, [0, *chat][:48], 16))
        credit.stored(0, MapStored([1], None, plain[:32], 16))


def test_a_mismatch_ends_the_hits_of_that_pair_only_and_is_told_f038(caplog: pytest.LogCaptureFixture) -> None:
    """F038: one extra leading token: no hits of chat at w0, the alert names position 0; else as before."""
    index, credit = watched()
    with caplog.at_level(logging.WARNING):
        mismatch(credit)
    assert credit.view("chat").matched_blocks(BLOCKS).tolist() == [0, 3]
    assert credit.view("completions").matched_blocks(BLOCKS).tolist() == [3, 3]
    assert credit.view("").matched_blocks(BLOCKS).tolist() == [3, 3]
    assert index.matched_blocks(BLOCKS).tolist() == [3, 3]
    assert "'chat' do not turn up at w0" in caplog.text
    assert "position 0" in caplog.text


def test_a_repaired_renderer_gets_its_hits_back_f038() -> None:
    _, credit = watched()
    mismatch(credit)
    (prompt,) = prompts(1, 7)
    credit.sent(0, "chat", ids(prompt))
    credit.stored(0, MapStored([1], None, prompt, 16))
    assert credit.view("chat").matched_blocks(BLOCKS).tolist() == [3, 3]


def test_another_engine_at_the_row_starts_with_credit() -> None:
    _, credit = watched()
    mismatch(credit)
    credit.unwatch(0)
    assert credit.view("chat").matched_blocks(BLOCKS).tolist() == [3, 3]
    mismatch(credit)
    assert credit.view("chat").matched_blocks(BLOCKS).tolist() == [3, 3]


def test_many_prompts_with_one_beginning_are_no_mismatch() -> None:
    """Prompts that share their first block lead to one event of it, while other routers cause events too."""
    _, credit = watched()
    (prompt,), strange = prompts(1, 3), prompts(4, 4)
    for other in strange:
        credit.stored(0, MapStored([1], None, other, 16))
    for number in range(200):
        credit.sent(0, "chat", ids([*prompt[:20], number]))
    assert credit.view("chat").matched_blocks(BLOCKS).tolist() == [3, 3]
