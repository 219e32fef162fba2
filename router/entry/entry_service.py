"""An entry router's process: what it is made of, the files it follows, and how it starts and ends."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import signal
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from data.catalog.load import load_catalog
from data.errors import InputError
from data.plan import PlanDocument
from data.plan_io import read_plan
from router.entry.entry_build import build_entry
from router.entry.entry_server import EntryServer
from router.entry.entry_service_settings import EntryServiceSettings
from router.entry.site_fleet import SiteFleet, site_fleet
from router.observe.live_metrics import call_samples, reload_samples
from router.observe.metrics import RouterMetrics
from router.observe.metrics_listener import MetricsListener
from router.observe.metrics_page import MetricsPage, serve_metrics
from router.observe.site_metrics import entry_samples
from router.serving.auth import Authenticator, Client, load_clients
from router.serving.fleet_file import read_fleet
from router.serving.reload import WatchedFile, follow, reload_now
from router.serving.server_settings import split_address
from router.sites.registry import site_rule_factory

LOG = logging.getLogger("tokenfleet.entry")


class EntryService:
    """Assembles an entry router and runs it until it is told to stop. Make it inside the event loop.

    Args:
        settings: What it is started with.
        on_started: Told of the address where it listens, and of the metrics page's (or ``None``).

    Raises:
        TokenFleetError: A file or setting is wrong; nothing has been started.
    """

    def __init__(
        self, settings: EntryServiceSettings, on_started: Callable[[str, str | None], None] = lambda *_: None
    ) -> None:
        self.settings = settings
        self._on_started = on_started
        self._catalog = load_catalog()
        for address in settings.routers.values():
            split_address(address, "site")
        knobs = settings.knobs
        self.metrics = RouterMetrics()
        fleet = self._fleet(settings.fleet, first_number=secrets.randbits(22) << 40)
        self.entry = build_entry(
            fleet,
            settings.routers,
            knobs.entry,
            make_rule=site_rule_factory(settings.sites, settings.sites_settings),
            identity=settings.identity,
            listeners=[MetricsListener(self.metrics, settings.sites)],
            seed=knobs.seed,
        )
        clients = None if settings.clients is None else load_clients(settings.clients)
        self.server = EntryServer(self.entry, Authenticator(clients), settings.listen, knobs.server)
        self.server.on_lag = self.metrics.histogram("event_loop_lag_seconds").observe
        self.followed = self._files()
        if settings.plan is not None:
            self._apply_plan(read_plan(settings.plan))
            self.followed.append(self._plan_file(settings.plan))
        self.metrics.add_source(lambda: entry_samples(self.entry))
        self.metrics.add_source(lambda: call_samples(self.server.servicer))
        self.metrics.add_source(lambda: reload_samples(self.followed))
        self._stop = asyncio.Event()
        self._reload = asyncio.Event()

    def stop(self) -> None:
        """Begin to go down."""
        self._stop.set()

    def reload(self) -> None:
        """Read all followed files now, changed or not."""
        self._reload.set()

    def follow_signals(self) -> None:
        """SIGTERM and SIGINT drain, SIGHUP reads the files again. Call it inside the running loop."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self.stop)
        loop.add_signal_handler(signal.SIGINT, self.stop)
        loop.add_signal_handler(signal.SIGHUP, self.reload)

    async def run(self) -> int:
        """Serve until :meth:`stop`, then drain; gives how many placements were still open.

        Raises:
            SettingError: An address cannot be bound.
        """
        page = self._metrics_page()
        tasks: list[asyncio.Task[None]] = []
        try:
            await self.server.start()
            tasks = [
                asyncio.create_task(follow(self.followed, self.settings.follow_s, self._told)),
                asyncio.create_task(self._reload_when_asked()),
            ]
            host, _ = split_address(self.settings.metrics_listen or "localhost:0", "metrics_listen")
            self._on_started(self.server.address, f"http://{host}:{page.port}/metrics" if page else None)
            await self._stop.wait()
            LOG.info("draining", extra={"open_leases": len(self.entry.leases)})
            return await self.server.drain()
        finally:
            for task in tasks:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
            if page is not None:
                page.close()

    def status(self) -> dict[str, Any]:
        """What the entry says of itself beside its metrics, ready for JSON."""
        entry, now_s = self.entry, self.entry.clock()
        return {
            "serving": {
                "safe": entry.safe(),
                "draining": entry.draining,
                "fleet": entry.fleet.digest,
                "plan_id": entry.serving.plan_id,
                "sites": self.settings.sites,
            },
            "sites": [
                {
                    "site": site,
                    "router": link.address,
                    "reports": link.state.freshness(now_s, entry.settings).value,
                    "older_router": link.state.older,
                    "trouble": link.state.trouble,
                    "draining": link.state.draining,
                    "plan_id": link.state.plan_id,
                    "ready": {model: pool.ready for model, pool in link.state.pools.items()},
                }
                for site, link in entry.links.items()
            ],
            "files": [asdict(file.status) for file in self.followed],
            "settings": asdict(self.settings.knobs),
        }

    def _fleet(self, path: Path, first_number: int = 0) -> SiteFleet:
        knobs = self.settings.knobs
        read = read_fleet(path, self._catalog)
        made = site_fleet(
            read.fleet,
            read.digest,
            self._catalog,
            list(self.settings.routers),
            knobs.filters,
            knobs.limits,
            knobs.origin,
        )
        made.reader.next_number = first_number
        return made

    def _files(self) -> list[WatchedFile[Any]]:
        given = self.settings
        files: list[WatchedFile[Any]] = [
            WatchedFile(
                "fleet",
                given.fleet,
                self._fleet,
                self._apply_fleet,
                lambda fleet: fleet.digest,
                self.entry.fleet.digest,
            )
        ]
        if given.clients is not None:
            files.append(
                WatchedFile("clients", given.clients, load_clients, self._apply_clients, _count, "at start")
            )
        return files

    def _plan_file(self, path: Path) -> WatchedFile[Any]:
        active = self.entry.serving.plan_id
        return WatchedFile("plan", path, read_plan, self._apply_plan, lambda plan: plan.plan_id, active)

    def _apply_fleet(self, fleet: SiteFleet) -> None:
        """Swap a fleet file in; what was learned of output lengths stays, and numbers of requests count on."""
        before = self.entry.fleet.reader
        fleet.reader.lengths = before.lengths.with_classes(fleet.fleet.classes)
        fleet.reader.next_number = before.next_number
        self.entry.apply_fleet(fleet)

    def _apply_plan(self, plan: PlanDocument) -> None:
        name = self.entry.fleet.fleet.name
        if plan.fleet != name:
            raise InputError("a plan of another fleet", field="fleet", value=plan.fleet, expected=name)
        self.entry.apply_plan(plan)

    def _apply_clients(self, clients: tuple[Client, ...]) -> None:
        self.server.servicer.authenticator = Authenticator(clients)

    def _metrics_page(self) -> MetricsPage | None:
        listen = self.settings.metrics_listen
        if not listen:
            return None
        host, port = split_address(listen, "metrics_listen")
        try:
            return serve_metrics(self.metrics, host, port, self.status)
        except OSError as error:
            raise InputError(
                f"cannot listen there: {error.strerror}", field="metrics_listen", value=listen
            ) from error

    async def _reload_when_asked(self) -> None:
        while True:
            await self._reload.wait()
            self._reload.clear()
            for file in self.followed:
                await reload_now(file, self._told)

    def _told(self, file: WatchedFile[Any], swapped: bool) -> None:
        self.metrics.counter("reloads").add((file.what, "ok" if swapped else "refused"))
        status = file.status
        if swapped:
            LOG.info("%s %s serves", file.what, status.active)
        else:
            LOG.error("%s refused, %s stays: %s", file.what, status.active, "; ".join(status.errors))


def _count(entries: tuple[Client, ...]) -> str:
    return f"{len(entries)} entries"


def _digest(fleet: SiteFleet) -> str:
    return fleet.digest
