"""Corrections from the files in which routers keep their feedback; see ``router.flow.feedback_file``.

A router replaces its file after each step of its feedback. A file that is missing or of no use says nothing. One
that has not been replaced for a while fades to neutral, as a restarted router's feedback would; after an hour it
is left out. So the planner goes on without any of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from data.errors import DocumentError
from router.slomax.corrections import NEUTRAL, ClassTenant, Corrections, PoolClass
from router.slomax.feedback import Feedback
from router.slomax.feedback_state import SavedFeedback, load_feedback

MOST_AGE_S = 3600.0
"""A file that is older is left out: its router is down, and must not water down what the others know."""


@dataclass(frozen=True, slots=True)
class ReadCorrections:
    """What all routers together say, and what is to be told about their files."""

    corrections: Corrections = NEUTRAL
    notes: tuple[str, ...] = ()


def read_corrections(paths: Sequence[Path], now_s: float) -> ReadCorrections:
    """Corrections of all routers together, as they are at ``now_s`` (seconds since the epoch)."""
    saved: list[SavedFeedback] = []
    notes: list[str] = []
    for path in paths:
        try:
            found = load_feedback(path)
        except DocumentError as error:
            notes.append(f"feedback is left out: {error}")
            continue
        if found is None:
            notes.append(f"no feedback at {path}: nothing is corrected for it")
            continue
        age_s = now_s - found.saved_at_s
        if age_s > MOST_AGE_S:
            notes.append(f"feedback at {path} is left out: {age_s:.0f} s old")
            continue
        saved.append(found)
    return ReadCorrections(combined_corrections(saved, now_s), tuple(notes))


def combined_corrections(saved: Sequence[SavedFeedback], now_s: float) -> Corrections:
    """One value for several routers.

    Factors on a pool's rates are averaged by what arrives at each router that knows the pool. Each router owes a
    tenant its part of the guarantee, so debts are averaged over all routers. How much each of them lets in is its
    own affair, and is left out.
    """
    parts = [_faded(one, now_s) for one in saved]
    return Corrections(capacity=_capacity(saved, parts), debt=_debt(parts))


def _faded(saved: SavedFeedback, now_s: float) -> Corrections:
    return Feedback(saved.settings).restore(saved.state, max(now_s - saved.saved_at_s, 0.0), now_s)


def _capacity(saved: Sequence[SavedFeedback], parts: Sequence[Corrections]) -> Mapping[PoolClass, float]:
    sums: dict[PoolClass, tuple[float, float]] = {}
    for one, part in zip(saved, parts, strict=True):
        for pool in one.state.pools:
            key = pool.pool, pool.workload_class
            # The least weight counts only where no router knows of any load.
            weight, total = max(pool.load, 1e-9), sums.get(key, (0.0, 0.0))
            sums[key] = total[0] + weight, total[1] + weight * part.capacity.get(key, 1.0)
    return {key: total / weight for key, (weight, total) in sorted(sums.items()) if total != weight}


def _debt(parts: Sequence[Corrections]) -> Mapping[ClassTenant, float]:
    keys = sorted({key for part in parts for key in part.debt})
    return {key: sum(part.debt.get(key, 1.0) for part in parts) / len(parts) for key in keys}
