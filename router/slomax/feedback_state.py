"""What the feedback keeps over a restart, as a strict JSON document that is replaced at once."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from data.atomic_file import write_text_atomic
from data.errors import DocumentError, SettingError
from data.strict.decode import Decoder
from data.strict.encode import to_plain
from data.strict.faults import to_errors
from data.strict.rules import NOT_NEGATIVE, SHARE, Rule, RuleBook
from router.slomax.feedback_settings import FeedbackSettings

_COUNT = Rule(minimum=0, maximum=1_000_000)


@dataclass(frozen=True, slots=True)
class PoolState:
    """State of the laws of one pool and class; see ``router.slomax.feedback_laws``.

    ``load`` is what arrives, in expected output tokens/s.
    """

    pool: str
    workload_class: str
    share: float
    raise_by: float
    wait: int
    backoff: int
    raised: bool
    before: float
    ceiling: float
    load_at_cut: float
    average: float
    factor: float
    repeat_share: float
    flood: bool
    load: float = 0.0


@dataclass(frozen=True, slots=True)
class TenantState:
    """Debt of one tenant in a class, in seconds of its guarantee."""

    workload_class: str
    tenant: str
    debt_s: float


@dataclass(frozen=True, slots=True)
class FeedbackState:
    """All of it."""

    pools: tuple[PoolState, ...] = ()
    tenants: tuple[TenantState, ...] = ()


@dataclass(frozen=True, slots=True)
class SavedFeedback:
    """A state, when it was saved, seconds since 1970 UTC, and the settings that it was made with."""

    saved_at_s: float
    state: FeedbackState
    settings: FeedbackSettings = field(default_factory=FeedbackSettings)


BOOK = RuleBook(
    rules={
        SavedFeedback: {"saved_at_s": NOT_NEGATIVE},
        PoolState: {
            "share": SHARE,
            "raise_by": SHARE,
            "before": SHARE,
            "ceiling": Rule(minimum=0, maximum=2),
            "wait": _COUNT,
            "backoff": _COUNT,
            "load_at_cut": NOT_NEGATIVE,
            "average": NOT_NEGATIVE,
            "factor": NOT_NEGATIVE,
            "repeat_share": SHARE,
            "load": NOT_NEGATIVE,
        },
        TenantState: {"debt_s": NOT_NEGATIVE},
    }
)


def save_feedback(path: Path, saved: SavedFeedback) -> None:
    """Write it beside the old file, then replace that."""
    plain = to_plain(saved, BOOK)
    write_text_atomic(path, json.dumps(plain, indent=1, allow_nan=False) + "\n")


def load_feedback(path: Path) -> SavedFeedback | None:
    """The saved state; ``None`` if there is no file.

    Raises:
        DocumentError: The file is not such a document; every fault is listed.
    """
    source = str(path)
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise DocumentError(f"cannot be read: {error}", source=source, expected="saved feedback") from error
    decoder = Decoder(BOOK)
    try:
        found = decoder.read(SavedFeedback, value)
    except SettingError as error:
        raise DocumentError(
            error.problem, source=source, field=error.field, value=error.value, expected=error.expected
        ) from error
    errors = to_errors(decoder.faults, DocumentError, source)
    if errors:
        errors[0].problems = tuple(errors)
        raise errors[0]
    assert isinstance(found, SavedFeedback)
    return found
