"""Complete prompt blocks and who holds them: a block that several requests need is computed once at least.

In an interval that begins at s, a block that no request held before s is computed on a kind of replica if any of
the requests inside is served well there. Their shares ``x`` are at most 1, so that

(8)  ``computed >= max_i x_i >= Σ_i x_i / m``

over its m holders inside: each is charged its part. To charge the first holder alone is valid as well, but then a
bound that leaves the first holder out gives the block away.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from data.types import FloatArray, IntArray, Request
from router.types import BoolArray


@dataclass(frozen=True, slots=True)
class SharedBlocks:
    """Pairs of a request and a block of its prompt, and the tokens of the prompt behind its complete blocks.

    Attributes:
        request, block: Indices; shape (pairs,).
        begin_tokens: Tokens before the block; shape (pairs,).
        block_tokens: Tokens of it; shape (pairs,).
        first_s: When a request first came with it; shape (blocks,).
        tail_begin_tokens: Tokens in complete blocks; shape (requests,).
        tail_tokens: Tokens behind them; shape (requests,).
    """

    request: IntArray
    block: IntArray
    begin_tokens: FloatArray
    block_tokens: FloatArray
    first_s: FloatArray
    tail_begin_tokens: FloatArray
    tail_tokens: FloatArray

    @property
    def any_shared(self) -> bool:
        """Whether a block has two holders."""
        return len(self.request) > len(self.first_s)

    def prefill_s(self, inside: BoolArray, start_s: float, token_s: float, context_s: float) -> FloatArray:
        """Seconds that each request inside is charged, by (8); shape (requests,).

        Args:
            inside: Whose first span lies in the interval; shape (requests,).
            start_s: Its begin.
            token_s: Time of a prompt token.
            context_s: Time that a prompt token takes for each token before it.
        """
        charged = inside[self.request] & (self.first_s[self.block] >= start_s)
        block, tokens = self.block[charged], self.block_tokens[charged]
        cost_s = tokens * (token_s + context_s * (self.begin_tokens[charged] + tokens / 2))
        holders = np.bincount(block, minlength=len(self.first_s)).astype(np.float64)
        shared_s = np.bincount(self.request[charged], weights=cost_s / holders[block], minlength=len(inside))
        tail_s = self.tail_tokens * (token_s + context_s * (self.tail_begin_tokens + self.tail_tokens / 2))
        found: FloatArray = shared_s.astype(np.float64) + np.where(inside, tail_s, 0.0)
        return found


@dataclass(slots=True)
class BlockReader:
    """Takes requests in order of arrival and tells what of each prompt was seen before; one model."""

    _places: dict[tuple[int, int], int] = field(default_factory=dict)
    _first_s: list[float] = field(default_factory=list)
    _rows: list[tuple[int, int, int, int]] = field(default_factory=list)
    _tails: list[tuple[int, int]] = field(default_factory=list)

    def read(self, request: Request, model: int) -> int:
        """Leading tokens of blocks that stand in an earlier request of the model; at most the prompt less one.

        Blocks of different models are different.
        """
        tokens, places = request.block_tokens, self._places
        count = request.input_tokens // tokens if request.block_hashes else 0
        blocks = request.block_hashes[:count]
        known = 0
        for at, name in enumerate(blocks):
            place = places.setdefault((model, name), len(places))
            if place == len(self._first_s):
                self._first_s.append(request.arrival_s)
            elif known == at:
                known += 1
            self._rows.append((len(self._tails), place, at * tokens, tokens))
        whole = len(blocks) * tokens
        self._tails.append((whole, request.input_tokens - whole))
        return min(known * tokens, request.input_tokens - 1)

    def blocks(self) -> SharedBlocks:
        """All that was read."""
        rows = np.array(self._rows, dtype=np.int64).reshape(-1, 4)
        tails = np.array(self._tails, dtype=np.float64).reshape(-1, 2)
        begin, tokens = rows[:, 2].astype(np.float64), rows[:, 3].astype(np.float64)
        first_s = np.array(self._first_s, dtype=np.float64)
        return SharedBlocks(rows[:, 0], rows[:, 1], begin, tokens, first_s, tails[:, 0], tails[:, 1])
