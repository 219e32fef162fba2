"""Capacities that were measured, kept in a file: each under the digest of everything that it depends on.

A changed step time, limit, length, target or search setting has another digest and is measured anew; nothing has
to be invalidated by hand. The search costs seconds a case, so a planning step measures only as long as its limit
allows; what is left is planned by the closed form, counted, and measured in a later step.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from data.atomic_file import write_text_atomic
from data.errors import InputError, SettingError
from models.capacity import GroupRate
from models.capacity_check import CapacityCase, CheckedRate
from planner.capacity_search import measure_case
from planner.digests import digest
from planner.load_tests import SearchSettings

FORMAT = "tokenfleet-capacity-1"
"""Raise the number when the search or the simulated engine changes its answers."""
FIELDS = ("one", "group", "one_error", "group_error", "met_alone")

Measure = Callable[[CapacityCase, GroupRate, SearchSettings], CheckedRate]


class CapacityCache:
    """A capacity check that remembers.

    Args:
        path: The file; ``None`` = nothing is kept. It is made when missing and replaced whole after each case.
        settings: How thoroughly a case is measured.
        limit_s: No case is begun after so many seconds from now (0 or more; infinite = no limit).
        clock: A monotonic count of seconds.
        measure: Measures one case.

    Attributes:
        known, measured, unknown: Answers from the file, by a search, and none for lack of time.
        lacking: Cases that had no answer, with their closed form.

    Raises:
        InputError: The file is not such a cache.
        SettingError: A limit below 0.
    """

    def __init__(
        self,
        path: Path | None,
        settings: SearchSettings | None = None,
        *,
        limit_s: float = math.inf,
        clock: Callable[[], float] = time.monotonic,
        measure: Measure = measure_case,
    ) -> None:
        if not limit_s >= 0:
            raise SettingError("setting out of range", field="limit_s", value=limit_s, expected="0 or more")
        self._path = path
        self._settings = settings or SearchSettings()
        self._clock, self._until_s = clock, clock() + limit_s
        self._measure = measure
        self._cells = _read(path) if path is not None and path.exists() else {}
        self.known = self.measured = self.unknown = 0
        self.lacking: list[tuple[CapacityCase, GroupRate]] = []

    def __call__(self, case: CapacityCase, closed: GroupRate) -> CheckedRate | None:
        """The rates of a case: remembered, else measured, else ``None`` when the time is over."""
        key = digest([FORMAT, asdict(self._settings), asdict(case)])
        found = self._cells.get(key)
        if found is not None:
            self.known += 1
            return found
        if self._clock() >= self._until_s:
            self.unknown += 1
            self.lacking.append((case, closed))
            return None
        found = self._cells[key] = self._measure(case, closed, self._settings)
        self.measured += 1
        if self._path is not None:
            _write(self._path, self._cells)
        return found


def _write(path: Path, cells: dict[str, CheckedRate]) -> None:
    rows = {key: asdict(cells[key]) for key in sorted(cells)}
    write_text_atomic(path, json.dumps({"format": FORMAT, "cells": rows}, indent=1) + "\n")


def _read(path: Path) -> dict[str, CheckedRate]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InputError("not JSON", source=str(path), expected="a capacity cache") from error
    if not isinstance(content, dict) or not isinstance(content.get("cells"), dict):
        raise InputError("not a capacity cache", source=str(path), expected=f"format {FORMAT}")
    if content.get("format") != FORMAT:
        # Answers of another version of the search are not ours; they are measured again and replaced.
        return {}
    return {str(key): _checked(row, f"{path}, cell {key}") for key, row in content["cells"].items()}


def _checked(row: Any, where: str) -> CheckedRate:
    found = row if isinstance(row, dict) else {}
    values = [
        float(v) for v in map(found.get, FIELDS) if isinstance(v, int | float) and math.isfinite(v) and v >= 0
    ]
    if len(values) != len(FIELDS) or len(found) != len(FIELDS):
        raise InputError("not a measured rate", source=where, expected=f"{', '.join(FIELDS)}: each 0 or more")
    return CheckedRate(*values)
