"""Digests of a planning step's inputs: equal inputs have equal digests, whatever their order in a file."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from data.fleet.rules import FLEET_BOOK
from data.fleet.types import Fleet
from data.strict.encode import to_plain
from planner.demand import DemandTable

HEX_DIGITS = 16
UNORDERED = ("sites", "links", "gpu_pools", "models", "configs", "classes", "tenants", "placement")


def digest(value: Any) -> str:
    """Hex digest of plain data, keys sorted."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:HEX_DIGITS]


def fleet_digest(fleet: Fleet) -> str:
    """Digest of a fleet; the order of its lists does not matter."""
    document = dict(to_plain(fleet, FLEET_BOOK))
    for name in UNORDERED:
        rows = document.get(name, [])
        document[name] = sorted(rows, key=lambda row: json.dumps(row, sort_keys=True))
    return digest(document)


def demand_digest(demand: DemandTable) -> str:
    """Digest of a demand table."""
    rows = [[*row.key, *row.quantiles, row.input_tokens, row.output_tokens] for row in demand.rows]
    return digest({"rows": rows, "missing": list(demand.missing)})
