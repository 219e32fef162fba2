"""Watch, without asking the engine anything, whether the prompts that were sent turn up in its events as they are.

A prompt of which nothing is cached must lead to a stored event that begins with its tokens. Where prompt after
prompt of one kind of request is missed while events come that nobody is known to have caused, router and engine
see other tokens: another chat template, tokenizer or version.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from router.kv_events.messages import Stored
from router.prompts.hash_parity import Parity, ParityBook, ParityResult, compare_tokens

HEAD_TOKENS = 64
"""Tokens of a prompt that are kept, in memory only, until its event has come."""

SHARED_TOKENS = 16
"""Prompts that share so many tokens may share their first block, of which the engine tells only once."""


@dataclass(frozen=True, slots=True)
class _Sent:
    api: str
    tokens: tuple[int, ...] = field(repr=False)


class ParityWatch:
    """Writes what it finds out into a book.

    Args:
        book: Results by endpoint and kind of request.
        waiting: Prompts of an endpoint that may wait for their event; the oldest is given up for a newer one.
        patience: Prompts of one kind given up in a row before it counts as a mismatch (at least 1). Prompts of
            other clients may cause strange events at any time; alone they prove nothing.
    """

    def __init__(self, book: ParityBook, waiting: int = 16, patience: int = 8) -> None:
        self._book, self._most, self._patience = book, waiting, patience
        self._waiting: dict[int, deque[_Sent]] = {}
        self._strange: dict[int, deque[tuple[int, ...]]] = {}
        self._missed: dict[tuple[int, str], int] = {}

    def sent(self, row: int, api: str, tokens: Sequence[int]) -> None:
        """A prompt of at least one block, of which the endpoint was believed to hold nothing, was sent there."""
        waiting = self._waiting.setdefault(row, deque())
        sent = _Sent(api, tuple(int(token) for token in tokens[:HEAD_TOKENS]))
        if any(
            other.api == api and other.tokens[:SHARED_TOKENS] == sent.tokens[:SHARED_TOKENS] for other in waiting
        ):
            # The engine will tell of this beginning once, however many prompts share it.
            return
        waiting.append(sent)
        if len(waiting) > self._most:
            self._give_up(row, waiting.popleft())

    def stored(self, row: int, event: Stored) -> None:
        """A stored event of the endpoint, before it is applied."""
        tokens = getattr(event, "token_ids", None)
        if event.parent_block_hash is not None or not isinstance(tokens, list) or not tokens:
            return
        head = tuple(tokens[:HEAD_TOKENS])
        waiting = self._waiting.get(row, deque())
        agreed = [sent for sent in waiting if compare_tokens(sent.tokens, head).parity is Parity.AGREES]
        begun = {sent.tokens[:SHARED_TOKENS] for sent in agreed}
        for sent in [sent for sent in waiting if sent.tokens[:SHARED_TOKENS] in begun]:
            waiting.remove(sent)
        for sent in agreed:
            self._missed.pop((row, sent.api), None)
            self._book.record(row, sent.api, ParityResult(Parity.AGREES))
        if agreed:
            return
        self._strange.setdefault(row, deque(maxlen=self._most)).append(head)

    def forget(self, row: int) -> None:
        """The endpoint left or came back."""
        self._waiting.pop(row, None)
        self._strange.pop(row, None)
        self._missed = {key: count for key, count in self._missed.items() if key[0] != row}
        self._book.forget(row)

    def _give_up(self, row: int, sent: _Sent) -> None:
        missed = self._missed[row, sent.api] = self._missed.get((row, sent.api), 0) + 1
        strange = self._strange.get(row)
        if missed < self._patience or not strange:
            return
        # The event that agrees longest is most likely this prompt's.
        position = max(compare_tokens(sent.tokens, head).position for head in strange)
        self._book.record(row, sent.api, ParityResult(Parity.TOKENS, position))
