"""Puts an ``EntryRouter`` together from a fleet and the addresses of its sites' routers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from router.client.settings import Identity
from router.entry.entry_router import EntryRouter
from router.entry.entry_state import EntryParts
from router.entry.settings import EntrySettings
from router.entry.site_fleet import SiteFleet
from router.entry.site_link import SiteLink
from router.serving.clock import ServiceClock
from router.serving.live_listener import Listeners, LiveListener
from router.sites.base import SiteContext
from router.sites.registry import MakeSiteRule, site_rule_factory


def build_entry(
    fleet: SiteFleet,
    routers: Mapping[str, str],
    settings: EntrySettings | None = None,
    *,
    make_rule: MakeSiteRule | None = None,
    identity: Identity | None = None,
    listeners: Sequence[LiveListener] = (),
    clock: Callable[[], float] | None = None,
    seed: int = 0,
) -> EntryRouter:
    """An entry router; make it inside the event loop that will run it.

    Args:
        fleet: What follows from the fleet file, for exactly the sites of ``routers``.
        routers: Address of the router of each site.
        settings: What is waited for.
        make_rule: Makes the rule of site choice; ``None`` = FleetMind with its defaults.
        identity: Whom the entry shows itself as.
        listeners: Told of everything.
        clock: Seconds that only go forward.
        seed: Of the rule and of the jitter of retry hints.
    """
    settings, clock = settings or EntrySettings(), clock or ServiceClock()
    rule = (make_rule or site_rule_factory("fleetmind", {}))(SiteContext(fleet.fleet, seed))
    heard: list[Callable[[SiteLink], None]] = []

    def told(link: SiteLink) -> None:
        for tell in heard:
            tell(link)

    links = {
        site: SiteLink(site, address, settings, identity or Identity(), clock, fleet.times.get(site, {}), told)
        for site, address in routers.items()
    }
    entry = EntryRouter(EntryParts(fleet, links, rule, Listeners(*listeners), clock, settings, seed))
    heard.append(entry.heard)
    return entry
