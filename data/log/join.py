"""Joins decisions with the outcomes of their attempts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from data.log.schema import DECISIONS, OUTCOMES
from data.types import IntArray

KEYS = ("request_id", "attempt")
JOINED = pa.schema([*DECISIONS, *(field.with_nullable(True) for field in OUTCOMES if field.name not in KEYS)])
"""Columns of a joined row: those of a decision, then those of its outcome, null while there is none."""


@dataclass(frozen=True, slots=True)
class Match:
    """Which outcome belongs to which decision.

    Attributes:
        outcome_row: For each decision the row of its outcome, or −1.
        repeated_outcomes: Outcomes beside another of the same attempt; the earliest counts.
    """

    outcome_row: IntArray
    repeated_outcomes: int


def match(decisions: pa.Table, outcomes: pa.Table) -> Match:
    """Pair rows on ``(request_id, attempt)``: a decision takes the first outcome at or after its own time.

    All rows are sorted by key and time; a decision's outcome then stands right behind it. So an outcome is used
    at most once, and where an id comes back after a restart each decision finds its own. O(n log n).
    """
    n, m = len(decisions), len(outcomes)
    kind = np.repeat(np.array([0, 1], dtype=np.int8), [n, m])
    columns = [
        np.concatenate([decisions.column(left).to_numpy(), outcomes.column(right).to_numpy()])
        for left, right in (("decided_s", "finished_s"), ("attempt", "attempt"), ("request_id", "request_id"))
    ]
    order = np.lexsort((kind, *columns))
    sorted_kind = kind[order]
    same_key = np.ones(max(n + m - 1, 0), dtype=bool)
    for column in columns[1:]:
        same_key &= column[order][1:] == column[order][:-1]
    followed = same_key & (sorted_kind[:-1] == 0) & (sorted_kind[1:] == 1)
    outcome_row = np.full(n, -1, dtype=np.int64)
    outcome_row[order[:-1][followed]] = order[1:][followed] - n
    repeated = same_key & (sorted_kind[:-1] == 1) & (sorted_kind[1:] == 1)
    return Match(outcome_row, int(repeated.sum()))


def join(decisions: pa.Table, outcomes: pa.Table, matched: Match) -> pa.Table:
    """Decisions in their order with the outcome columns of their match beside them (schema ``JOINED``)."""
    rows = pa.array(matched.outcome_row, mask=matched.outcome_row < 0)
    if len(outcomes):
        outcomes = outcomes.unify_dictionaries().combine_chunks()
    taken = outcomes.drop_columns(list(KEYS)).take(rows)
    return pa.Table.from_arrays([*decisions.columns, *taken.columns], schema=JOINED)
