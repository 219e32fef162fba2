"""Everything that an entry router's process is started with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from router.client.settings import Identity
from router.entry.settings import EntrySettings
from router.filters import FilterSettings
from router.policies.settings import Setting
from router.serving.server_settings import ListenSettings, ServerLimits
from router.serving.wire_request import WireLimits


@dataclass(frozen=True, slots=True)
class EntryKnobs:
    """The settings file, all keys optional.

    Attributes:
        origin: Site of requests that name none; empty = the fleet's first entry site.
        seed: Of the rule's draws and of the jitter of retry hints.
    """

    entry: EntrySettings = field(default_factory=EntrySettings)
    server: ServerLimits = field(default_factory=ServerLimits)
    limits: WireLimits = field(default_factory=WireLimits)
    filters: FilterSettings = field(default_factory=FilterSettings)
    origin: str = ""
    seed: int = 0


@dataclass(frozen=True, slots=True)
class EntryServiceSettings:
    """One entry router.

    Attributes:
        fleet: Fleet file; the same for the entry and for the router of every site.
        routers: Address of the router of each site, by site.
        identity: Whom the entry shows itself as to them, and whose certificates it trusts.
        plan: Plan whose traffic shares are followed; ``None`` = no preference.
        clients: Who may call; ``None`` = anybody on this machine.
        metrics_listen: ``HOST:PORT`` of the metrics page; empty = none.
        sites: Rule that chooses the site.
        sites_settings: Settings of it that differ from its defaults.
        follow_s: How often files are looked at.
    """

    fleet: Path
    routers: Mapping[str, str]
    identity: Identity = field(default_factory=Identity)
    plan: Path | None = None
    clients: Path | None = None
    listen: ListenSettings = field(default_factory=ListenSettings)
    metrics_listen: str = ""
    sites: str = "fleetmind"
    sites_settings: Mapping[str, Setting] = field(default_factory=dict)
    knobs: EntryKnobs = field(default_factory=EntryKnobs)
    follow_s: float = 1.0
