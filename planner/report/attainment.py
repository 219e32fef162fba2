"""Attainment of every arm by class or tenant, as a grid whose cells are shaded by their value."""

from __future__ import annotations

import math
from dataclasses import dataclass

from planner.compare import Comparison, group_estimate
from planner.measures import GroupKind
from planner.report import numbers

SHADES = 5


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell: text, a finer text below it, and a shade from 0 (lowest) to ``SHADES`` − 1."""

    text: str
    detail: str
    shade: int


@dataclass(frozen=True, slots=True)
class Grid:
    """A row an arm (best Goodput first), a column a group."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]


def attainment_grid(comparison: Comparison, kind: GroupKind) -> Grid:
    """Share of offered requests that completed within their targets, and of finished ones below it."""
    names = comparison.group_names(kind)
    rows = []
    for entry in comparison.ranked():
        cells = []
        for name in names:
            offered = group_estimate(entry, kind, name, lambda group: group.attainment_offered)
            finished = group_estimate(entry, kind, name, lambda group: group.attainment_finished)
            cells.append(
                Cell(
                    numbers.with_interval(offered, "share"),
                    f"{numbers.share(finished.mean)} of finished",
                    _shade(offered.mean),
                )
            )
        rows.append((entry.arm.name, tuple(cells)))
    return Grid(f"By {kind}", tuple(name or "(none)" for name in names), tuple(rows))


def _shade(value: float) -> int:
    """Five steps: below 50, 70, 85 and 95 %, and from 95 % on."""
    if not math.isfinite(value):
        return 0
    return sum(value >= step for step in (0.50, 0.70, 0.85, 0.95))
