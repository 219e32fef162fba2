"""The built-in reference fleets, and finding a fleet by built-in name or by path."""

from __future__ import annotations

from pathlib import Path

from data.errors import FleetFileError
from data.fleet.load import load_fleet
from data.fleet.types import Fleet
from data.strict.faults import one_of

REFERENCE_FLEETS: tuple[str, ...] = ("one-pool", "mixed-pool", "four-sites")
"""Names of the built-in fleets, from the simplest to the fullest."""

_FOLDER = Path(__file__).with_name("reference")


def reference_path(name: str) -> Path:
    """The file of a built-in fleet; ``FleetFileError`` if there is none of that name."""
    if name not in REFERENCE_FLEETS:
        expected = one_of(name, REFERENCE_FLEETS)
        raise FleetFileError("no built-in fleet of that name", value=name, expected=expected)
    return _FOLDER / f"{name}.yaml"


def reference_fleet(name: str) -> Fleet:
    """A built-in fleet by name; ``FleetFileError`` if there is none of that name."""
    return load_fleet(reference_path(name))


def resolve_fleet(name_or_path: str) -> Fleet:
    """A fleet by built-in name or by the path of a fleet file; a file of that very name wins.

    Raises:
        FleetFileError: Neither exists, or the file is wrong.
    """
    path = Path(name_or_path)
    if path.is_file() or name_or_path not in REFERENCE_FLEETS:
        if not path.exists() and path.suffix not in (".yaml", ".yml") and path.name == name_or_path:
            expected = f"a fleet file, or {one_of(name_or_path, REFERENCE_FLEETS)}"
            raise FleetFileError("no such file or built-in fleet", value=name_or_path, expected=expected)
        return load_fleet(path)
    return reference_fleet(name_or_path)
