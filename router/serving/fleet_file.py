"""A fleet file as the router takes it in: checked, with its endpoints, ready to be swapped in."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from data.catalog.load import Catalog
from data.errors import InputError
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


def read_fleet(
    path: Path, catalog: Catalog, endpoints: Path | None = None, only_site: str = "", probe: bool = False
) -> ReadFleet:
    """Read a fleet file and the engines that count with it.

    Args:
        path: The fleet file.
        catalog: What it is checked against.
        endpoints: List of engines in place of the file's own. Without any list the replicas of the file's
            placement serve, without addresses.
        only_site: Count the engines of this site alone; empty = all.
        probe: Listed engines take requests only once a completion of theirs has been seen.

    Raises:
        FleetFileError: One of the files is wrong.
        InputError: A configuration can't run.
    """
    fleet = load_fleet(path, catalog)
    digest = _digest(path)
    if endpoints is not None:
        return ReadFleet(fleet, digest, read_endpoints(endpoints, fleet, catalog, only_site, probe))
    if fleet.endpoints:
        rows = live_endpoints(fleet.endpoints, fleet, catalog, probe)
        return ReadFleet(fleet, digest, _at_site(ReadEndpoints(digest, fleet.endpoints, rows), fleet, only_site))
    replicas = [LiveEndpoint(spec) for spec in endpoint_specs(fleet, catalog, fleet.placement)]
    return ReadFleet(fleet, digest, _at_site(ReadEndpoints(digest, (), replicas), fleet, only_site))


def read_endpoints(
    path: Path, fleet: Fleet, catalog: Catalog, only_site: str = "", probe: bool = False
) -> ReadEndpoints:
    """Read a list of engines for a fleet; of one site alone, if ``only_site`` names it.

    For ``probe`` see ``read_fleet``.

    Raises:
        FleetFileError: The file cannot be read or is wrong.
        InputError: A configuration can't run.
    """
    engines = load_endpoints(path, fleet, catalog)
    read = ReadEndpoints(_digest(path), engines, live_endpoints(engines, fleet, catalog, probe))
    return _at_site(read, fleet, only_site)


def _at_site(read: ReadEndpoints, fleet: Fleet, only_site: str) -> ReadEndpoints:
    if not only_site:
        return read
    names = [site.name for site in fleet.sites if site.role == "compute"]
    if only_site not in names:
        expected = "one of the compute sites " + ", ".join(names)
        raise InputError(
            "the fleet file names no such site", field="only_site", value=only_site, expected=expected
        )
    return ReadEndpoints(
        read.digest,
        tuple(engine for engine in read.engines if engine.site == only_site),
        [row for row in read.rows if row.spec.site == only_site],
    )


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
