"""The watch that finds out from events alone whether router and engine see the same tokens."""

from __future__ import annotations

import numpy as np
import pytest

from router.kv_events.messages import MapStored
from router.prompts.hash_parity import Parity, ParityBook
from router.prompts.parity_watch import ParityWatch


def event(tokens: list[int], parent: int | None = None) -> MapStored:
    return MapStored([1], parent, tokens, 16)


def prompts(count: int, seed: int = 0) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [rng.integers(1, 1000, 48).tolist() for _ in range(count)]


def test_an_extra_leading_token_ends_the_credit_of_its_kind_only_f038() -> None:
    """F038: chat prompts arrive with one token more: credit off at position 0; completions unaffected."""
    book = ParityBook()
    watch = ParityWatch(book)
    for chat, plain in zip(prompts(40), prompts(40, 1), strict=True):
        watch.sent(3, "chat", chat)
        watch.sent(3, "completions", plain)
        watch.stored(3, event([0, *chat][:48]))
        watch.stored(3, event(plain[:32]))
    assert book.result(3, "chat").parity is Parity.TOKENS
    assert book.result(3, "chat").position == 0
    assert not book.credited(3, "chat")
    assert book.mismatches["chat"] >= 1
    assert book.result(3, "completions").parity is Parity.AGREES
    assert book.credited(4, "chat")
    watch.forget(3)
    assert book.credited(3, "chat")


def test_a_later_difference_is_named_by_its_place() -> None:
    book = ParityBook()
    watch = ParityWatch(book)
    for tokens in prompts(40):
        watch.sent(0, "chat", tokens)
        watch.stored(0, event([*tokens[:20], 0, *tokens[20:47]]))
    assert book.result(0, "chat").position == 20


def test_a_repaired_renderer_gets_its_credit_back() -> None:
    book = ParityBook()
    watch = ParityWatch(book)
    for tokens in prompts(40):
        watch.sent(0, "chat", tokens)
        watch.stored(0, event([0, *tokens]))
    assert not book.credited(0, "chat")
    (tokens,) = prompts(1, 9)
    watch.sent(0, "chat", tokens)
    watch.stored(0, event(tokens))
    assert book.credited(0, "chat")


@pytest.mark.parametrize("ours_come", [True, False])
def test_other_clients_prove_nothing(ours_come: bool) -> None:
    """Strange events beside matching ones, or no events at all, are no mismatch."""
    book = ParityBook()
    watch = ParityWatch(book)
    for mine, other in zip(prompts(60), prompts(60, 2), strict=True):
        watch.sent(0, "chat", mine)
        if ours_come:
            watch.stored(0, event(other))
            watch.stored(0, event(mine))
            watch.stored(0, event(other, parent=5))
    assert book.credited(0, "chat")
    assert (book.result(0, "chat").parity is Parity.AGREES) is ours_come


def test_no_token_is_shown_f150() -> None:
    """F150: what the watch keeps of a prompt does not show in its text form."""
    watch = ParityWatch(ParityBook())
    watch.sent(0, "chat", [987_654, 987_655])
    assert "987" not in repr(watch._waiting)
