"""Whose predicted prefix hits count: none where the router's token ids have been seen to differ from the engine's.

Credit is taken for one endpoint and one kind of request at a time; the events of the endpoint are still followed,
so that other kinds keep their hits and a repaired one gets its credit back.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable

import numpy as np

from data.types import IntArray
from router.kv_events.messages import Stored
from router.prefix.index import Hashes, PrefixIndex
from router.prompts.hash_parity import ParityBook, ParityResult
from router.prompts.parity_watch import HEAD_TOKENS, ParityWatch
from router.types import PrefixLookup

LOG = logging.getLogger("tokenfleet.prefix_credit")


class CreditedIndex:
    """The index as one kind of request may see it.

    Args:
        index: The index.
        rows: Rows whose hits do not count.
    """

    def __init__(self, index: PrefixIndex, rows: IntArray) -> None:
        self._index = index
        self._rows = rows

    def matched_blocks(self, block_hashes: Hashes) -> IntArray:
        """Leading blocks held by each row that has credit, else 0."""
        found = self._index.matched_blocks(block_hashes).copy()
        found[self._rows] = 0
        return found


class PrefixCredit:
    """Watches prompts and events of all rows, and gives each kind of request its view of the index.

    Args:
        index: The index.
        name_of: Endpoint id of a row, for the log.
    """

    def __init__(self, index: PrefixIndex, name_of: Callable[[int], str]) -> None:
        self._index = index
        self._name_of = name_of
        self.book = ParityBook(self._changed)
        self._watch = ParityWatch(self.book)
        self._rows: set[int] = set()
        self.without_blocks: Counter[str] = Counter()
        """Placements by kind whose prompt gave no block to look up."""
        self._views: dict[str, CreditedIndex] = {}

    def view(self, kind: str) -> PrefixLookup:
        """The index for a kind of request; costs one look into an empty dictionary while all is well."""
        return self._views.get(kind, self._index) if self._views else self._index

    def blind(self, kind: str) -> None:
        """A prompt without any block was placed: no hit can be predicted for it."""
        self.without_blocks[kind] += 1

    def watch(self, row: int) -> None:
        """The events of this row are followed from now on."""
        self._rows.add(row)

    def unwatch(self, row: int) -> None:
        """They are not any more."""
        self._rows.discard(row)
        self.forget(row)

    def sent(self, row: int, kind: str, token_ids: bytes) -> None:
        """A prompt of at least a block, of which the endpoint was believed to hold nothing, was sent there.

        Args:
            row: Its row; nothing is done if no events are followed there.
            kind: Kind of request, one of ``router.serving.wire_request.API_KINDS``.
            token_ids: Little-endian uint32; the first few are kept in memory until their event has come.
        """
        if row not in self._rows:
            return
        head = np.frombuffer(token_ids, dtype="<u4", count=min(len(token_ids) // 4, HEAD_TOKENS))
        self._watch.sent(row, kind, head.tolist())

    def stored(self, row: int, event: Stored) -> None:
        """A stored event of an endpoint, before it is applied."""
        self._watch.stored(row, event)

    def forget(self, row: int) -> None:
        """The endpoint left or came back: nothing is known of its token ids."""
        self._watch.forget(row)
        self._rebuild()

    def _changed(self, row: int, kind: str, result: ParityResult) -> None:
        name = self._name_of(row)
        if self.book.credited(row, kind):
            LOG.info("prompts of kind %r turn up at %s as they were sent: hits count again", kind, name)
        else:
            text = (
                "prompts of kind %r do not turn up at %s as they were sent (%s, from position %d): no hits count"
            )
            LOG.warning(text, kind, name, result.parity.value, result.position)
        self._rebuild()

    def _rebuild(self) -> None:
        rows: dict[str, list[int]] = {}
        for row, kind in self.book.uncredited():
            rows.setdefault(kind, []).append(row)
        self._views = {kind: CreditedIndex(self._index, np.array(held)) for kind, held in rows.items()}
