"""Rows of the fidelity table."""

from __future__ import annotations

from typing import Any

import numpy as np

from data.types import FloatArray

Row = dict[str, Any]
AREA = "fidelity"


def table_row(name: str, value: float, unit: str, target: float | None, met: bool | None, **more: float) -> Row:
    """One row; ``more`` are further figures of it."""
    return {
        "id": f"fidelity/{name}",
        "area": AREA,
        "value": round(value, 5),
        "unit": unit,
        "reference": None,
        "ratio": None,
        "target": target,
        "met": met,
        **{key: round(number, 5) for key, number in more.items()},
    }


def error_row(name: str, ratio: FloatArray, target: float | None = None) -> Row:
    """Median absolute relative error over the finite entries; the signed median and the worst beside it."""
    known = ratio[np.isfinite(ratio)]
    error = float(np.median(np.abs(known)))
    met = None if target is None else error <= target
    signed, worst = float(np.median(known)), float(np.abs(known).max())
    return table_row(name, error, "share", target, met, signed=signed, worst=worst, points=len(known))
