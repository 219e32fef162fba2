"""One fault of a document, and how a list of them becomes errors with file and line."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from data.errors import InputError

Path = tuple[str | int, ...]
"""Keys and list positions from the top of the document to a value."""

Lines = Mapping[Path, int]
"""Line of each key or list item, counted from 1."""

ErrorT = TypeVar("ErrorT", bound=InputError)


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong at one place. ``line`` is set only where the path alone does not find it."""

    path: Path
    problem: str
    value: object = None
    expected: str | None = None
    line: int | None = None


def dotted(path: Path) -> str:
    """``sites[2].zone`` for ``("sites", 2, "zone")``; a long key is cut."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += ("." if text else "") + (part if len(part) <= 60 else part[:57] + "...")
    return text


def line_of(path: Path, lines: Lines) -> int | None:
    """Line of the value at ``path``, or of the nearest thing around it."""
    for length in range(len(path), -1, -1):
        if path[:length] in lines:
            return lines[path[:length]]
    return None


def nearest(name: object, known: Iterable[str]) -> str | None:
    """The known name that looks most like ``name``, or ``None`` if none is close."""
    if not isinstance(name, str):
        return None
    matches = difflib.get_close_matches(name[:100], list(known), n=1, cutoff=0.6)
    return matches[0] if matches else None


def one_of(name: object, known: Iterable[str]) -> str:
    """Text of what would be right: the choices (at most 12) and, first, the nearest of them."""
    choices = sorted(known)
    shown = ", ".join(choices[:12]) + (f" and {len(choices) - 12} more" if len(choices) > 12 else "")
    listed = f"one of {shown}" if choices else "nothing, because none is declared"
    close = nearest(name, choices)
    return f"{close!r}? ({listed})" if close is not None else listed


def to_errors(
    faults: Iterable[Fault], kind: type[ErrorT], source: str | None = None, lines: Lines | None = None
) -> list[ErrorT]:
    """Errors of class ``kind``, in the order of their lines, then of their paths."""
    placed = [(fault, fault.line or line_of(fault.path, lines or {})) for fault in faults]
    placed.sort(key=lambda pair: (pair[1] or 0, [str(part) for part in pair[0].path]))
    return [
        kind(
            fault.problem,
            source=source,
            line=line,
            field=dotted(fault.path) or None,
            value=fault.value,
            expected=fault.expected,
        )
        for fault, line in placed
    ]
