"""Rows of the SLOMax benchmark, as ``benchmarks.run`` wants them."""

from __future__ import annotations

from typing import Any

from planner.intervals import Estimate

Row = dict[str, Any]


def estimated(
    id_: str, value: Estimate, reference: str, target: str | None = None, met: bool | None = None
) -> Row:
    """A relative figure over seeds with its interval."""
    return {
        **plain(id_, value.mean, "relative", reference, target, met),
        "ratio": 1.0 + value.mean if "attainment" not in id_ else None,
        "seeds": value.count,
        "interval": [value.low, value.high],
    }


def plain(id_: str, value: float, unit: str, reference: str, target: str | None, met: bool | None) -> Row:
    """One figure."""
    return {
        "id": id_,
        "area": "slomax",
        "value": value,
        "unit": unit,
        "reference": reference,
        "ratio": None,
        "target": target,
        "met": met,
    }
