"""Hands outcomes of one stream on to the sites that hold the leases, in order for each site."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

from router.entry.entry_state import EntryState
from router.entry.site_link import SiteCallError, SiteLink
from router.entry.site_reports import KEEP
from router.pb.v1 import router_pb2 as pb

LOG = logging.getLogger("tokenfleet.entry")
MOST_WAITING = 2_000
"""Events of one stream that may wait for one site; then no more are read."""


class ReportRelay:
    """One stream of outcomes.

    Args:
        entry: Knows which site holds a lease, and is told.
        owner: The caller: leases of others are unknown to it, which each site's router sees to.
    """

    def __init__(self, entry: EntryState, owner: str) -> None:
        self._entry = entry
        self._owner = owner
        self._sites: dict[str, _ToSite] = {}

    async def relay(self, events: AsyncIterator[pb.ReportEvent]) -> pb.ReportSummary:
        """Hand on all events; gives what the sites said, when all have been delivered or are held."""
        unknown = 0
        async for event in events:
            site = self._entry.site_of(event.lease_id)
            if not site:
                unknown += 1
                self._entry.listener.unknown_lease()
                continue
            self._entry.reported(event, self._owner)
            to_site = self._sites.get(site)
            if to_site is None:
                to_site = self._sites[site] = _ToSite(self._entry, self._entry.links[site], self._owner)
            await to_site.add(event)
        for to_site in self._sites.values():
            await to_site.done()
        told = [to_site.summary for to_site in self._sites.values()]
        return pb.ReportSummary(
            accepted=sum(one.accepted for one in told),
            unknown_lease=unknown + sum(one.unknown_lease for one in told),
            invalid=sum(one.invalid for one in told),
            held=sum(one.held for one in told),
        )


class _ToSite:
    """Events of one stream for one site: one alone when idle, many together under load."""

    def __init__(self, entry: EntryState, link: SiteLink, owner: str) -> None:
        self._entry = entry
        self._link = link
        self._owner = owner
        self._events: list[pb.ReportEvent] = []
        self._task: asyncio.Task[None] | None = None
        self.summary = pb.ReportSummary()

    async def add(self, event: pb.ReportEvent) -> None:
        self._events.append(event)
        if self._task is None or self._task.done():
            # The link keeps it: what has been read is delivered or held, even if the stream breaks off.
            self._task = self._link.keep(self._deliver())
        if len(self._events) > MOST_WAITING:
            await self._task

    async def done(self) -> None:
        if self._task is not None:
            await self._task

    async def _deliver(self) -> None:
        while self._events:
            events, self._events = self._events, []
            if not self._link.reachable() or self._link.held:  # what is held goes first
                self._hold(events)
                continue
            try:
                told = await self._link.report(events, self._owner)
            except SiteCallError as error:
                if error.code in KEEP:
                    self._hold(events)
                else:
                    LOG.error("site %s refuses outcomes: %s: %s", self._link.site, error.code.name, error)
                    self.summary.invalid += len(events)
                continue
            self.summary.accepted += told.accepted
            self.summary.unknown_lease += told.unknown_lease
            self.summary.invalid += told.invalid

    def _hold(self, events: list[pb.ReportEvent]) -> None:
        self._link.held.hold(events, self._owner)
        self.summary.held += len(events)
