"""Row checks that all formats share: failed and empty requests, implausible counts, block counts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from data.traces.chunk import BoolArray, Chunk
from data.traces.options import TraceOptions
from data.traces.report import ReadReport, Reject, Repair
from data.types import IntArray

MAX_TOKENS = 2**31
_SIZES = tuple(2**power for power in range(13))
_FEW_FIT, _MOST_FIT, _ENOUGH_ROWS = 0.5, 0.95, 20


@dataclass(slots=True)
class RowChecks:
    """Refuses bad rows and counts them; decides the block size on the first rows that have block ids."""

    own_block_tokens: int
    options: TraceOptions
    report: ReadReport
    block_tokens: int = 0

    def apply(self, chunk: Chunk) -> Chunk:
        """The rows that can be requests."""
        good = np.isfinite(chunk.stamps)
        good = self._drop(chunk, good, np.isfinite(chunk.stamps), Reject.BAD_STAMP, "not a finite number")
        n_in, n_out = chunk.rows.input_tokens, chunk.rows.output_tokens
        good = self._drop(chunk, good, (n_in != -1) & (n_out != -1), Reject.FAILED, "−1 tokens mark a failure")
        good = self._drop(chunk, good, (n_in >= 0) & (n_out >= 0), Reject.NEGATIVE_TOKENS)
        good = self._drop(chunk, good, n_in > 0, Reject.NO_INPUT, "no prompt token")
        small = (n_in <= MAX_TOKENS) & (n_out <= MAX_TOKENS)
        good = self._drop(chunk, good, small, Reject.TOKENS_OUT_OF_RANGE, f"more than {MAX_TOKENS} tokens")
        if self.options.zero_output == "reject":
            good = self._drop(chunk, good, n_out > 0, Reject.ZERO_OUTPUT, "no output token")
        good = self._check_blocks(chunk, good)
        kept = chunk.take(np.flatnonzero(good))
        if not len(kept):
            return kept
        zero = kept.rows.output_tokens == 0
        self.report.repair(Repair.ZERO_OUTPUT_AS_ONE, kept.lines[zero])
        output = np.maximum(kept.rows.output_tokens, 1)
        return kept.with_rows(
            output_tokens=output,
            output_budget=budgets(output, self.options.output_budget_tokens),
            block_tokens=self.block_tokens or self.own_block_tokens,
        )

    def _drop(self, chunk: Chunk, good: BoolArray, rule: BoolArray, reason: Reject, detail: str = "") -> BoolArray:
        self.report.reject_lines(reason, chunk.lines[good & ~rule], detail)
        return good & rule

    def _check_blocks(self, chunk: Chunk, good: BoolArray) -> BoolArray:
        has = chunk.has_ids & good
        if not has.any():
            return good
        counts = np.diff(chunk.rows.hash_offsets)
        if not self.block_tokens:
            self._decide(chunk.rows.input_tokens[has], counts[has])
        size = self.block_tokens
        whole = chunk.rows.input_tokens // size
        partial = chunk.rows.input_tokens % size > 0
        fits = ~has | (counts == whole) | (counts == whole + partial)
        bad = good & ~fits
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            detail = f"{counts[row]} block ids, {whole[row] + partial[row]} expected with {size} tokens a block"
            self.report.reject_lines(Reject.BLOCK_COUNT, chunk.lines[bad], detail)
        good = good & fits
        without = good & has & partial & (counts == whole)
        self.report.repair(Repair.PARTIAL_BLOCK_WITHOUT_ID, chunk.lines[without])
        self.report.repair(Repair.NO_BLOCK_IDS, chunk.lines[good & ~chunk.has_ids])
        return good

    def _decide(self, n_in: IntArray, counts: IntArray) -> None:
        if self.options.block_tokens is not None:
            self.block_tokens, reason = self.options.block_tokens, "declared"
        else:
            self.block_tokens, reason = infer_block_tokens(n_in, counts, self.own_block_tokens)
        self.report.block_tokens, self.report.block_reason = self.block_tokens, reason


def infer_block_tokens(n_in: IntArray, counts: IntArray, own: int) -> tuple[int, str]:
    """The block size of these first rows, and why.

    The format's own size stays unless it fits fewer than half of the rows (20 at least) and a power of two up to
    4096 fits 95 % of them.
    """
    own_fit = _fit(n_in, counts, own)
    if own_fit < _FEW_FIT and len(n_in) >= _ENOUGH_ROWS:
        best = max(_SIZES, key=lambda size: _fit(n_in, counts, size))
        fit = _fit(n_in, counts, best)
        if fit >= _MOST_FIT:
            return best, f"inferred: fits {fit:.0%} of the first rows, {own} fits {own_fit:.0%}"
    return own, f"the format's own; fits {own_fit:.0%} of the first rows"


def _fit(n_in: IntArray, counts: IntArray, size: int) -> float:
    whole = n_in // size
    return float(np.mean((counts == whole) | (counts == -(-n_in // size))))


def budgets(output_tokens: IntArray, least: int) -> IntArray:
    """``least`` doubled until it holds each output: a bound that does not give the length away."""
    over = np.maximum(output_tokens, least) / least
    return least * (2 ** np.ceil(np.log2(over))).astype(np.int64)
