"""Read a fleet file: YAML text to a checked ``Fleet``, or every fault with its line.

All or nothing: a fleet comes out only when the text parses, every field has its type and range, every reference
points at something, and the structural checks pass. The caller's running fleet stays as it is otherwise.
"""

from __future__ import annotations

from pathlib import Path

from data.catalog.load import Catalog, load_catalog
from data.errors import FleetFileError
from data.fleet.references import reference_faults
from data.fleet.rules import FLEET_BOOK
from data.fleet.structure import structure_faults
from data.fleet.types import Fleet
from data.strict.decode import Decoder
from data.strict.faults import Fault, Lines, to_errors
from data.strict.yaml_tree import MAX_BYTES, read_yaml

ALLOW_IMPLAUSIBLE = "allow_implausible"
"""Top-level key that lets numbers pass that lie outside their plausible range."""


def load_fleet(path: Path, catalog: Catalog | None = None) -> Fleet:
    """Read and check a fleet file.

    Args:
        path: The YAML file, UTF-8, at most 5 MB.
        catalog: Where GPU types and models are looked up; the shipped catalog by default.

    Raises:
        FleetFileError: The file cannot be read or is wrong; ``problems`` holds every fault.
    """
    return parse_fleet(load_document(path), str(path), catalog)


def load_document(path: Path) -> str:
    """Text of a document of the fleet file's kind.

    Raises:
        FleetFileError: The file cannot be read, or is not UTF-8.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise FleetFileError("not UTF-8 text", source=str(path), line=line, expected="UTF-8") from error
    except OSError as error:
        raise FleetFileError(f"cannot be read: {error.strerror}", source=str(path)) from error


def parse_fleet(text: str, source: str, catalog: Catalog | None = None) -> Fleet:
    """The same from text; ``source`` names it in errors."""
    catalog = catalog or load_catalog()
    tree = read_yaml(text)
    faults = list(tree.faults)
    fleet: object = None
    if isinstance(tree.value, dict):
        document = dict(tree.value)
        allow = document.pop(ALLOW_IMPLAUSIBLE, False)
        if not isinstance(allow, bool):
            faults.append(Fault((ALLOW_IMPLAUSIBLE,), "wrong value", value=allow, expected="true or false"))
        decoder = Decoder(FLEET_BOOK, allow_implausible=allow is True, faults=faults)
        fleet = decoder.read(Fleet, document)
        faults += reference_faults(document, catalog)
    elif not faults:
        faults.append(Fault((), "wrong value", value=tree.value, expected="a mapping with keys"))
    if isinstance(fleet, Fleet) and not faults:
        faults += structure_faults(fleet, catalog)
    if faults or not isinstance(fleet, Fleet):
        raise fleet_error(faults, source, tree.lines)
    return fleet


def fleet_error(faults: list[Fault], source: str, lines: Lines) -> FleetFileError:
    """One error that shows the first fault and holds them all."""
    problems = to_errors(faults, FleetFileError, source, lines)
    first = problems[0]
    first.problems = tuple(problems)
    return first
