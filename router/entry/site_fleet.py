"""All that an entry router derives from one fleet file; built whole, then swapped in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from data.catalog.load import Catalog
from data.catalog.types import ServiceTimes
from data.errors import InputError
from data.fleet.types import Fleet
from router.entry.site_pools import SitePools
from router.filters import FilterSettings
from router.serving.class_lengths import ClassLengths
from router.serving.wire_request import WireLimits, WireReader


@dataclass(frozen=True, slots=True)
class SiteFleet:
    """What follows from a fleet.

    Attributes:
        digest: Of the fleet file.
        times: Service times by site and model, for sites whose router can't tell them.
    """

    fleet: Fleet
    digest: str
    pools: SitePools
    reader: WireReader
    times: dict[str, dict[str, ServiceTimes]]


def site_fleet(
    fleet: Fleet,
    digest: str,
    catalog: Catalog,
    sites: Sequence[str],
    filters: FilterSettings,
    limits: WireLimits,
    origin: str = "",
) -> SiteFleet:
    """What an entry router needs of a fleet.

    Args:
        fleet: The fleet.
        digest: Of its file.
        catalog: Service times.
        sites: Sites that have a router.
        filters: Settings of the hard filters.
        limits: What a request may bring.
        origin: Site of requests that name none; empty = the fleet's first entry site.

    Raises:
        InputError: A site with a router is not in the fleet, or none of its kind.
    """
    known = {site.name for site in fleet.sites if site.role == "compute"}
    for site in sites:
        if site not in known:
            expected = "one of the compute sites " + ", ".join(sorted(known))
            raise InputError("the fleet file names no such site", field="site", value=site, expected=expected)
    pools = SitePools(fleet, sites, filters)
    lengths = ClassLengths(fleet.classes)
    reader = WireReader(fleet, origin or pools.paths.default_origin, lengths, limits=limits)
    return SiteFleet(fleet, digest, pools, reader, {site: _times(fleet, catalog, site) for site in sites})


def _times(fleet: Fleet, catalog: Catalog, site: str) -> dict[str, ServiceTimes]:
    """Of each model that could stand at a site: what is placed there first, else what fits its GPUs."""
    placed = [entry.config for entry in fleet.placement if entry.site == site]
    gpus = {pool.gpu_type for pool in fleet.pools if pool.site == site}
    fitting = [config.name for config in fleet.configs if config.gpu_type in gpus]
    found: dict[str, ServiceTimes] = {}
    for name in (*placed, *fitting):
        config = fleet.config(name)
        if config.model not in found:
            facts = catalog.facts(fleet.model(config.model).catalog, config.gpu_type, config.tensor_parallel)
            found[config.model] = facts.times
    return found
