"""Leaves out what is longer than a model's context, and the turns that hang on it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from data.errors import SettingError
from data.traces import batches
from data.types import NO_PARENT, TraceBatch

TOO_LONG = "over_context"
"""Reason for a request whose prompt and output do not fit."""
HANGS_ON_IT = "turn_after_over_context"
"""Reason for a turn whose parent was left out."""


def within_context(
    rows: Iterable[TraceBatch], context_tokens: int, skipped: dict[str, int] | None = None
) -> Iterator[TraceBatch]:
    """Requests whose prompt and output fit into a context, without the turns that follow one that does not.

    A recorded session of a model with a longer context ends here where it would on a shorter one: at the first
    turn that is refused. Memory: ids of what was left out.

    Args:
        rows: Batches; a parent comes before its turns.
        context_tokens: Prompt and output tokens, at most (1 or more).
        skipped: Takes how many were left out, by reason.

    Raises:
        SettingError: The context is below 1.
    """
    if context_tokens < 1:
        raise SettingError("out of range", field="context_tokens", value=context_tokens, expected="1 or more")
    left_out: set[int] = set()
    for batch in rows:
        too_long = batch.input_tokens + batch.output_tokens > context_tokens
        gone = too_long if batch.parent_id is None else _with_turns(batch, too_long, left_out)
        if skipped is not None:
            _count(skipped, TOO_LONG, int(too_long.sum()))
            _count(skipped, HANGS_ON_IT, int((gone & ~too_long).sum()))
        part = batches.take(batch, np.flatnonzero(~gone))
        if len(part):
            yield part


def _with_turns(
    batch: TraceBatch, too_long: np.ndarray[tuple[int], np.dtype[np.bool_]], left_out: set[int]
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """What is too long or hangs on something left out; remembers both."""
    assert batch.parent_id is not None
    gone = too_long.copy()
    for row, (request, parent) in enumerate(zip(batch.request_id.tolist(), batch.parent_id.tolist(), strict=True)):
        if gone[row] or (parent != NO_PARENT and parent in left_out):
            gone[row] = True
            left_out.add(request)
    return gone


def _count(skipped: dict[str, int], reason: str, count: int) -> None:
    if count:
        skipped[reason] = skipped.get(reason, 0) + count
