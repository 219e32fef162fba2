"""A fleet file as the router takes it in: checked, with its endpoints, ready to be swapped in."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from data.catalog.load import Catalog
from data.fleet.load import load_fleet
from data.fleet.types import Endpoint, Fleet
from router.build import endpoint_specs
from router.feeds.discovery import live_endpoints, load_endpoints
from router.serving.fleet_rows import LiveEndpoint


@dataclass(frozen=True, slots=True)
class ReadEndpoints:
    """What one reading of a list of engines gave.

    Attributes:
        digest: Of the bytes of the file that they stand in.
        engines: As they are listed.
        rows: As rows of the endpoint table.
    """

    digest: str
    engines: tuple[Endpoint, ...]
    rows: list[LiveEndpoint]


@dataclass(frozen=True, slots=True)
class ReadFleet:
    """What one reading of a fleet file gave.

    Attributes:
        digest: Of the file's bytes.
        endpoints: The engines that count with it.
    """

    fleet: Fleet
    digest: str
    endpoints: ReadEndpoints


def read_fleet(path: Path, catalog: Catalog, endpoints: Path | None = None) -> ReadFleet:
    """Read a fleet file and the engines that count with it.

    Args:
        path: The fleet file.
        catalog: What it is checked against.
        endpoints: List of engines in place of the file's own. Without any list the replicas of the file's
            placement serve, without addresses.

    Raises:
        FleetFileError: One of the files is wrong.
        InputError: A configuration can't run.
    """
    fleet = load_fleet(path, catalog)
    digest = _digest(path)
    if endpoints is not None:
        return ReadFleet(fleet, digest, read_endpoints(endpoints, fleet, catalog))
    if fleet.endpoints:
        rows = live_endpoints(fleet.endpoints, fleet, catalog)
        return ReadFleet(fleet, digest, ReadEndpoints(digest, fleet.endpoints, rows))
    replicas = [LiveEndpoint(spec) for spec in endpoint_specs(fleet, catalog, fleet.placement)]
    return ReadFleet(fleet, digest, ReadEndpoints(digest, (), replicas))


def read_endpoints(path: Path, fleet: Fleet, catalog: Catalog) -> ReadEndpoints:
    """Read a list of engines for a fleet.

    Raises:
        FleetFileError: The file cannot be read or is wrong.
        InputError: A configuration can't run.
    """
    engines = load_endpoints(path, fleet, catalog)
    return ReadEndpoints(_digest(path), engines, live_endpoints(engines, fleet, catalog))


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
