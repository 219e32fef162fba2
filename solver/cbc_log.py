"""Reads the dual bound from what CBC prints at its end: PuLP hands back the solution, but never the bound."""

from __future__ import annotations

import re
from pathlib import Path

TAIL_BYTES = 16_384
"""Only the end of a log is read, however long the search was."""
NOTHING_PROVED = 1e30
PRINTED = 5e-4
"""CBC prints bounds to three places: half of the last one is taken off, so that rounding proves nothing."""
_BOUND = re.compile(r"^Lower bound:\s+(-?[0-9.]+(?:[eE][-+]?[0-9]+)?)\s*$", re.MULTILINE)


def tail_of(log: Path) -> str:
    """The end of a log file; empty if there is none."""
    try:
        with log.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(file.tell() - TAIL_BYTES, 0))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def lower_bound_in(log: str) -> float | None:
    """The last lower bound of a minimisation; ``None`` if the log states none."""
    found = _BOUND.findall(log)
    if not found or abs(float(found[-1])) >= NOTHING_PROVED:
        return None
    return float(found[-1]) - PRINTED
