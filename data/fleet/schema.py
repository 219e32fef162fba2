"""The JSON Schema of the fleet file."""

from __future__ import annotations

from typing import Any

from data.fleet.load import ALLOW_IMPLAUSIBLE
from data.fleet.rules import FLEET_BOOK
from data.fleet.types import Fleet
from data.strict.schema import json_schema


def fleet_schema() -> dict[str, Any]:
    """Types, ranges and keys of a fleet file; references and structure are checked by ``tokenfleet check``."""
    schema = json_schema(Fleet, FLEET_BOOK, "TokenFleet fleet file")
    schema["properties"][ALLOW_IMPLAUSIBLE] = {"type": "boolean", "default": False}
    return schema
