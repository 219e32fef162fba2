"""A fleet file as the router takes it in: checked, with its endpoints, ready to be swapped in."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from data.catalog.load import Catalog
from data.fleet.load import load_fleet
from data.fleet.types import Fleet
from router.build import endpoint_specs
from router.discovery import live_endpoints
from router.fleet_rows import LiveEndpoint


@dataclass(frozen=True, slots=True)
class ReadFleet:
    """What one reading of a fleet file gave.

    Attributes:
        digest: Of the file's bytes.
        endpoints: As rows of the endpoint table.
    """

    fleet: Fleet
    digest: str
    endpoints: list[LiveEndpoint]


def read_fleet(path: Path, catalog: Catalog) -> ReadFleet:
    """Read a fleet file. One that lists no engines gives the replicas of its placement, without addresses.

    Raises:
        FleetFileError: The file is wrong.
        InputError: A configuration can't run.
    """
    fleet = load_fleet(path, catalog)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    if fleet.endpoints:
        return ReadFleet(fleet, digest, live_endpoints(fleet.endpoints, fleet, catalog))
    replicas = endpoint_specs(fleet, catalog, fleet.placement)
    return ReadFleet(fleet, digest, [LiveEndpoint(spec) for spec in replicas])
