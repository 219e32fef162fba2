"""Which engines there are: from the fleet file, or from a file of its own that something else keeps up to date.

A list of engines is read strictly, all or nothing. That a file disappears is not "no engines", and neither is a
file that cannot be read: whoever watches it (``router.serving.reload``) keeps the old list and says why.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from data.catalog.load import Catalog
from data.fleet.load import fleet_error, load_document
from data.fleet.references import reference_faults
from data.fleet.rules import FLEET_BOOK
from data.fleet.structure import check_endpoints
from data.fleet.types import Endpoint, Fleet
from data.strict.decode import Decoder
from data.strict.encode import to_plain
from data.strict.faults import Fault
from data.strict.yaml_tree import read_yaml
from router.build import replica_spec
from router.feeds.scrape import ScrapeTarget
from router.serving.fleet_rows import LiveEndpoint

KEY = "endpoints"


@dataclass(frozen=True, slots=True)
class EndpointList:
    """The document of an endpoints file: ``endpoints:`` and nothing else, or the bare list."""

    endpoints: tuple[Endpoint, ...]


@dataclass(frozen=True, slots=True)
class EndpointDiff:
    """From one list to the next, by id.

    Attributes:
        added: Not in the old list.
        removed: Not in the new one.
        changed: In both, but with another field; another process, unless only metrics or KV events moved.
    """

    added: tuple[Endpoint, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[Endpoint, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed)


def load_endpoints(path: Path, fleet: Fleet, catalog: Catalog) -> tuple[Endpoint, ...]:
    """Read an endpoints file, YAML or JSON.

    Args:
        path: The file, UTF-8; replaced as a whole by whoever writes it.
        fleet: Its sites and configurations may be named.
        catalog: The catalog that the fleet was checked against.

    Raises:
        FleetFileError: The file cannot be read or is wrong; ``problems`` holds every fault with its line.
    """
    return parse_endpoints(load_document(path), str(path), fleet, catalog)


def parse_endpoints(text: str, source: str, fleet: Fleet, catalog: Catalog) -> tuple[Endpoint, ...]:
    """The same from text; ``source`` names it in errors."""
    tree = read_yaml(text)
    bare = isinstance(tree.value, list)
    document = {KEY: tree.value} if bare else tree.value
    decoder = Decoder(FLEET_BOOK, faults=list(tree.faults))
    found = decoder.read(EndpointList, document) if not tree.faults else None
    faults = decoder.faults
    if isinstance(document, dict):
        whole = {**to_plain(fleet, FLEET_BOOK), KEY: document.get(KEY)}
        faults += [fault for fault in reference_faults(whole, catalog) if fault.path[:1] == (KEY,)]
    if isinstance(found, EndpointList) and not faults:
        faults += check_endpoints(replace(fleet, endpoints=found.endpoints), catalog)
    if faults or not isinstance(found, EndpointList):
        lines = {(KEY, *path): line for path, line in tree.lines.items()} if bare else tree.lines
        raise fleet_error(faults or [Fault((), "not a list of endpoints")], source, lines)
    return found.endpoints


def diff(old: Sequence[Endpoint], new: Sequence[Endpoint]) -> EndpointDiff:
    """What must be done to get from one list to the other; order means nothing."""
    before = {endpoint.id: endpoint for endpoint in old}
    after = {endpoint.id: endpoint for endpoint in new}
    return EndpointDiff(
        tuple(endpoint for name, endpoint in after.items() if name not in before),
        tuple(name for name in before if name not in after),
        tuple(e for name, e in after.items() if name in before and before[name] != e),
    )


UNPROBED = frozenset({"triton"})
"""Kinds of engine whose own API knows no completions of the OpenAI form."""


def live_endpoints(
    endpoints: Sequence[Endpoint], fleet: Fleet, catalog: Catalog, probe: bool = False
) -> list[LiveEndpoint]:
    """The endpoints as the router's rows take them.

    The incarnation is made of what ties an endpoint to one process: where it listens and what runs there. A
    restart behind the same address shows on its metrics page instead. With ``probe`` an endpoint is not ready
    until a completion has been seen, unless its kind is in ``UNPROBED``.

    Raises:
        InputError: The catalog lacks a configuration.
    """
    return [
        LiveEndpoint(
            spec=replica_spec(fleet, catalog, endpoint.id, endpoint.site, endpoint.config),
            address=endpoint.address,
            incarnation=_incarnation(endpoint),
            ready=not probe or endpoint.engine in UNPROBED,
            kv_events=endpoint.kv_events is not None,
        )
        for endpoint in endpoints
    ]


def _incarnation(endpoint: Endpoint) -> str:
    where = f"{endpoint.engine} at {endpoint.address}"
    return where if endpoint.served_model is None else f"{where} as {endpoint.served_model}"


def scrape_target(endpoint: Endpoint) -> ScrapeTarget:
    """Where the metrics of an endpoint are."""
    return ScrapeTarget(
        endpoint.id, endpoint.metrics_address or endpoint.address, endpoint.engine, endpoint.metrics_path or ""
    )
