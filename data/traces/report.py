"""What became of the rows of a trace: how many were read, taken, refused and repaired, and why."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from data.types import IntArray

EXAMPLES = 5


class Reject(enum.StrEnum):
    """Closed list of reasons to refuse a row."""

    BAD_JSON = "bad_json"
    """Not a JSON value, or bytes that are not UTF-8."""
    BAD_FIELD = "bad_field"
    """A field is missing, has the wrong type or does not parse."""
    BAD_COLUMNS = "bad_columns"
    """A CSV row with another number of columns than its header."""
    BAD_STAMP = "bad_stamp"
    """The time stamp does not parse, is not finite or does not fit 63 bits."""
    MIXED_CLOCKS = "mixed_clocks"
    """A date where the file counts in numbers, or the reverse."""
    FAILED = "failed"
    """The trace marks the request as failed (−1 tokens, an error text)."""
    ZERO_OUTPUT = "zero_output"
    """No output token: the request failed."""
    NO_INPUT = "no_input"
    """No prompt token."""
    NEGATIVE_TOKENS = "negative_tokens"
    TOKENS_OUT_OF_RANGE = "tokens_out_of_range"
    """More than 2^31 tokens."""
    BLOCK_COUNT = "block_count"
    """The number of block ids does not fit the prompt length."""
    BLOCK_SIZE_DIFFERS = "block_size_differs"
    """A session with another block size than those before it."""
    OUT_OF_ORDER = "out_of_order"
    """Later in the file than the reorder buffer can put right."""
    DUPLICATE = "duplicate"
    """The same request again: same id and content, or all fields equal where such rows are to be dropped."""
    ID_CONFLICT = "id_conflict"
    """The request id of an earlier row, with other content."""
    LINE_TOO_LONG = "line_too_long"


class Repair(enum.StrEnum):
    """Closed list of rules by which a row was kept after a change, or that a reader of the figures should know."""

    ZERO_OUTPUT_AS_ONE = "zero_output_as_one"
    PARTIAL_BLOCK_WITHOUT_ID = "partial_block_without_id"
    """Unchanged: the last, partial block has no id."""
    NO_BLOCK_IDS = "no_block_ids"
    """Unchanged: no prefix is known for this row."""
    BLOCK_IDS_HASHED = "block_ids_hashed"
    """Block ids that are no unsigned 64-bit numbers (text, negative, wider) were hashed to 64 bits."""
    REORDERED = "reordered"
    EQUAL_ROWS = "equal_rows"
    """Unchanged: equal in every field to a row near by; the format has no request id."""
    PARENT_UNKNOWN = "parent_unknown"
    """The parent is not in the trace (or too far back): the turn starts by its recorded arrival."""
    THINK_TIME_DERIVED = "think_time_derived"
    """No think time recorded: gap between the stamps less the service time."""
    TURN_BEFORE_PARENT = "turn_before_parent"
    """A turn stamped before its parent was moved to the parent's stamp."""
    LENGTHS_POOLED = "lengths_pooled"
    """Generated request of a client without lengths of its own, drawn from all clients."""


@dataclass(slots=True)
class Tally:
    """How many rows met one reason, the lines of the first few and what was wrong with the first."""

    count: int = 0
    lines: list[int] = field(default_factory=list)
    detail: str = ""

    def add(self, lines: list[int], count: int, detail: str) -> None:
        """Count more rows; only the first few lines are kept."""
        self.count += count
        self.lines.extend(lines[: EXAMPLES - len(self.lines)])
        self.detail = self.detail or detail


@dataclass(frozen=True, slots=True)
class ClockReading:
    """The file's span and mean rate if its stamps were in ``unit``."""

    unit: str
    span_s: float
    rate_per_s: float


@dataclass(slots=True)
class ReadReport:
    """Filled while batches are drawn; complete when they are exhausted.

    ``rows == accepted + sum(rejected)`` then. A row is a line for formats of one request a line, a request for
    formats that nest requests (and one row for each line that cannot be read at all).
    """

    source: str
    format: str
    rows: int = 0
    accepted: int = 0
    blank_lines: int = 0
    rejected: dict[Reject, Tally] = field(default_factory=dict)
    repaired: dict[Repair, Tally] = field(default_factory=dict)
    time_unit: str = ""
    time_unit_reason: str = ""
    clock_readings: tuple[ClockReading, ...] = ()
    block_tokens: int = 0
    block_reason: str = ""
    tick_s: float = 0.0
    first_s: float = 0.0
    last_s: float = 0.0
    notes: list[str] = field(default_factory=list)

    def reject(self, reason: Reject, line: int, detail: str = "") -> None:
        """Count one refused row."""
        self.rejected.setdefault(reason, Tally()).add([line], 1, detail)

    def reject_lines(self, reason: Reject, lines: IntArray, detail: str = "") -> None:
        """Count many refused rows by their line numbers."""
        if len(lines):
            self.rejected.setdefault(reason, Tally()).add(lines[:EXAMPLES].tolist(), len(lines), detail)

    def repair(self, rule: Repair, lines: IntArray | list[int], detail: str = "") -> None:
        """Count rows that were kept under a rule."""
        if len(lines):
            first = np.asarray(lines[:EXAMPLES]).tolist()
            self.repaired.setdefault(rule, Tally()).add(first, len(lines), detail)

    def repair_count(self, rule: Repair, count: int, detail: str = "") -> None:
        """Count rows that were kept under a rule and stand on no line of their own."""
        self.repaired.setdefault(rule, Tally()).add([], count, detail)

    @property
    def rejected_rows(self) -> int:
        """All refused rows."""
        return sum(tally.count for tally in self.rejected.values())

    @property
    def span_s(self) -> float:
        """Time between the first and the last accepted arrival."""
        return self.last_s - self.first_s

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "source": self.source,
            "format": self.format,
            "rows": self.rows,
            "accepted": self.accepted,
            "rejected_rows": self.rejected_rows,
            "blank_lines": self.blank_lines,
            "rejected": {str(reason): _tally(tally) for reason, tally in sorted(self.rejected.items())},
            "repaired": {str(rule): _tally(tally) for rule, tally in sorted(self.repaired.items())},
            "time_unit": self.time_unit,
            "time_unit_reason": self.time_unit_reason,
            "clock_readings": [
                {"unit": one.unit, "span_s": one.span_s, "rate_per_s": one.rate_per_s}
                for one in self.clock_readings
            ],
            "block_tokens": self.block_tokens,
            "block_reason": self.block_reason,
            "tick_s": self.tick_s,
            "span_s": self.span_s,
            "notes": list(self.notes),
        }


def _tally(tally: Tally) -> dict[str, Any]:
    return {"count": tally.count, "first_lines": list(tally.lines), "detail": tally.detail}
