"""Check a ``Fleet`` value that was built in code: the same rules as for a fleet file."""

from __future__ import annotations

from data.catalog.load import Catalog
from data.errors import FleetFileError, InputError
from data.fleet.references import reference_faults
from data.fleet.rules import FLEET_BOOK
from data.fleet.structure import structure_faults
from data.fleet.types import Fleet
from data.strict.decode import Decoder
from data.strict.encode import to_plain
from data.strict.faults import to_errors


def check_fleet(fleet: Fleet, catalog: Catalog) -> list[InputError]:
    """Every fault of a fleet; an empty list means that it is sound.

    Ranges and references come first; the structural checks run only on a fleet that passes those, because they
    follow its references. Plausible ranges are not applied: code states its units by its field names.
    """
    document = to_plain(fleet, FLEET_BOOK)
    decoder = Decoder(FLEET_BOOK, allow_implausible=True)
    decoder.read(Fleet, document)
    faults = decoder.faults + reference_faults(document, catalog)
    if not faults:
        faults = structure_faults(fleet, catalog)
    return list(to_errors(faults, FleetFileError))
