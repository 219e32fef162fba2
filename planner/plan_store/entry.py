"""One line of a plan store's history: which plan was published, by whom, why, and how the fleet did before."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from data.errors import PlanFileError
from data.strict.decode import Decoder
from data.strict.encode import to_plain
from data.strict.faults import to_errors
from data.strict.rules import NAME, NOT_NEGATIVE, Rule, RuleBook

ENTRY_SCHEMA_VERSION = 1


class EntryKind(StrEnum):
    """Why a version exists."""

    PUBLISHED = "published"
    """A planning step decided something new."""
    RENEWED = "renewed"
    """A planning step decided the same again, or nothing better: same plan, valid for longer."""
    ROLLED_BACK = "rolled_back"
    """An earlier plan was put back."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """How the fleet served before a plan: what its watch compares with.

    Attributes:
        good_share: Goodput over offered output tokens (0 to 1).
        offered_tokens_per_s: Offered output tokens/s (>= 0).
    """

    good_share: float
    offered_tokens_per_s: float


@dataclass(frozen=True, slots=True)
class StoreEntry:
    """One version of the current plan.

    Attributes:
        version: Counts up from 1; what a later version replaces stays readable.
        epoch: Fencing token of the planner that published it; never falls from one version to the next.
        plan_id: Id of the plan.
        file: Name of the plan file in ``plans/``.
        sha256: Digest of that file.
        published_s: When, seconds since the epoch in UTC.
        kind: Why.
        reason: Why, in words.
        restores: Version that a roll-back put back; ``None`` otherwise.
        baseline: How the fleet served before; ``None`` = unknown, so nothing is watched.
    """

    version: int
    epoch: int
    plan_id: str
    file: str
    sha256: str
    published_s: float
    kind: EntryKind
    reason: str = ""
    restores: int | None = None
    baseline: Baseline | None = None
    schema_version: int = ENTRY_SCHEMA_VERSION


BOOK = RuleBook(
    rules={
        StoreEntry: {
            "version": Rule(minimum=1),
            "epoch": Rule(minimum=1),
            "plan_id": NAME,
            "file": Rule(pattern=r"[0-9]{9}-[^/\\]+\.json", text="the name of a plan file"),
            "sha256": Rule(pattern=r"[0-9a-f]{64}", text="64 hexadecimal digits"),
            "published_s": NOT_NEGATIVE,
            "restores": Rule(minimum=1),
            "schema_version": Rule(minimum=ENTRY_SCHEMA_VERSION, maximum=ENTRY_SCHEMA_VERSION),
        },
        Baseline: {"good_share": Rule(minimum=0), "offered_tokens_per_s": NOT_NEGATIVE},
    }
)


def entry_to_json(entry: StoreEntry) -> str:
    """The entry as JSON text."""
    return json.dumps(to_plain(entry, BOOK), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def entry_to_dict(entry: StoreEntry) -> dict[str, Any]:
    """The entry as plain data."""
    return dict(to_plain(entry, BOOK))


def entry_from_json(text: str, source: str) -> StoreEntry:
    """An entry from JSON text.

    Raises:
        PlanFileError: It is damaged, or of another version.
    """
    try:
        value = json.loads(text)
    except ValueError as error:
        raise PlanFileError(f"not valid JSON: {error}", source=source) from error
    decoder = Decoder(BOOK)
    entry = decoder.read(StoreEntry, value)
    if isinstance(entry, StoreEntry) and not decoder.faults:
        return entry
    raise to_errors(decoder.faults, PlanFileError, source)[0]
