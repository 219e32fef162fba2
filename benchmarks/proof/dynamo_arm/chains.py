"""Which trace block stands before which: engines' events of a simulated run name blocks alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence


class Chains:
    """Parents and depths of the blocks of all prompts seen."""

    def __init__(self) -> None:
        self._before: dict[int, int | None] = {}
        self._depth: dict[int, int] = {}

    def learn(self, blocks: Sequence[int]) -> None:
        """A prompt. Ids are chained: a block that is known has the same blocks before it as last time."""
        known, depths = self._before, self._depth
        for place in range(len(blocks) - 1, -1, -1):
            block = blocks[place]
            if block in known:
                return
            known[block] = blocks[place - 1] if place else None
            depths[block] = place

    def runs(self, blocks: Iterable[int]) -> Iterator[tuple[int | None, list[int]]]:
        """The blocks as runs of neighbours with the block before each, parents first.

        Raises:
            KeyError: A block is of no prompt seen.
        """
        before, run = self._before, list[int]()
        for block in sorted(blocks, key=self._depth.__getitem__):
            if run and before[block] != run[-1]:
                yield before[run[0]], run
                run = []
            run.append(block)
        if run:
            yield before[run[0]], run
