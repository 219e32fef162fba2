"""All that follows from one fleet file: built whole beside the running one, then swapped in one step."""

from __future__ import annotations

from dataclasses import dataclass, field

from data.fleet.types import Fleet
from router.endpoints import EndpointTable
from router.filters import FilterRules, FilterSettings
from router.prompts.prompt import PromptHasher
from router.serving.class_lengths import ClassLengths
from router.serving.lease_terms import LeaseSettings, lease_s
from router.serving.paths import PathTable
from router.serving.wire_request import WireLimits, WireReader


@dataclass(frozen=True, slots=True)
class FleetState:
    """What the router derives from a fleet.

    Attributes:
        digest: Of the fleet file.
        lease_s: Length of a lease by class.
        tiers: Tier of each tenant.
    """

    fleet: Fleet
    digest: str
    rules: FilterRules
    paths: PathTable
    reader: WireReader
    lease_s: dict[str, float]
    tiers: dict[str, str]


@dataclass(frozen=True, slots=True)
class FleetSettings:
    """Settings that turn a fleet into its state.

    Attributes:
        origin: Site of requests that name none; empty = the fleet's first entry site.
    """

    filters: FilterSettings = field(default_factory=FilterSettings)
    leases: LeaseSettings = field(default_factory=LeaseSettings)
    limits: WireLimits = field(default_factory=WireLimits)
    origin: str = ""


def build_fleet_state(
    fleet: Fleet,
    digest: str,
    table: EndpointTable,
    lengths: ClassLengths,
    hasher: PromptHasher | None,
    settings: FleetSettings,
    first_number: int,
) -> FleetState:
    """The state of a fleet over ``table``; nothing that serves is touched.

    Raises:
        SettingError: The fleet has no class.
    """
    rules = FilterRules(fleet, table, settings.filters)
    paths = PathTable(fleet, table)
    reader = WireReader(
        fleet, settings.origin or paths.default_origin, lengths, hasher, settings.limits, first_number
    )
    return FleetState(
        fleet,
        digest,
        rules,
        paths,
        reader,
        {kind.name: lease_s(kind, settings.leases) for kind in fleet.classes},
        {tenant.name: tenant.tier for tenant in fleet.tenants},
    )
