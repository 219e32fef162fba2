"""A router process: what it is made of, the files it follows, and how it starts and ends."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from data.catalog.load import load_catalog
from data.errors import InputError, ModelError
from data.log.writer import LogWriter
from data.plan import PlanDocument
from data.plan_io import read_plan
from models.base import LatencyPredictor
from models.guarded import guarded_model
from models.hardware import fleet_kinds
from models.physics import PriorPredictor
from models.store import ModelStore
from router.auth import Authenticator, load_clients
from router.engine_feeds import EngineFeeds
from router.fleet_file import ReadFleet, read_fleet
from router.live_build import LiveSettings, build_live, next_fleet_state
from router.live_listener import LiveListener
from router.live_metrics import call_samples, feed_samples, live_samples, log_samples
from router.metrics import RouterMetrics
from router.metrics_feed import log_change
from router.metrics_listener import MetricsListener
from router.metrics_page import MetricsPage, serve_metrics
from router.prefix_scope import ScopeKeys
from router.prompt_hashes import ScopedHashes
from router.reload import WatchedFile, follow, reload_now
from router.server import RouterServer
from router.server_settings import read_file, split_address
from router.service_settings import ServiceSettings
from router.spans import span_listener

LOG = logging.getLogger("tokenfleet.router")


class RouterService:
    """Assembles a router and runs it until it is told to stop. Make it inside the event loop that will run it.

    Args:
        settings: What it is started with.
        on_started: Told of the address where it listens, and of the metrics page's (or ``None``).

    Raises:
        TokenFleetError: A file or setting is wrong; nothing has been started.
    """

    def __init__(
        self, settings: ServiceSettings, on_started: Callable[[str, str | None], None] = lambda *_: None
    ) -> None:
        self.settings = settings
        self._on_started = on_started
        self._catalog = load_catalog()
        read = read_fleet(settings.fleet, self._catalog)
        clients = None if settings.clients is None else load_clients(settings.clients)
        self.metrics = RouterMetrics()
        self.log = None if settings.log is None else LogWriter(settings.log, settings.knobs.log.writer())
        self.store = None if settings.models is None else ModelStore(settings.models)
        kinds = fleet_kinds([read.fleet], self._catalog)
        self.model = guarded_model(promoted_model(self.store), kinds, onward=self.log)
        self.slot = self.model.slot
        self.live = build_live(
            read.fleet,
            read.endpoints,
            LiveSettings(
                policy=settings.policy,
                policy_settings=settings.policy_settings,
                fleet=settings.knobs.fleet(),
                guard=settings.knobs.predictor,
                health=settings.knobs.health,
                states=settings.knobs.reports,
                seed=settings.knobs.seed,
                lease_base=secrets.randbits(22) << 40,
            ),
            digest=read.digest,
            predictor=self.model.guard,
            hasher=ScopedHashes(ScopeKeys(_secret(settings.scope_secret))),
            # Without a store there is nothing that could drift.
            sink=self.log if self.store is None else self.model.watch,
            listeners=self._listeners(),
            on_state=log_change(lambda row: self.live.core.table.specs[row].endpoint_id),
        )
        if settings.plan is not None:
            self._apply_plan(read_plan(settings.plan))
        self.server = RouterServer(self.live, Authenticator(clients), settings.listen, settings.knobs.server)
        lag = self.metrics.histogram("event_loop_lag_seconds")
        self.server.on_lag = lag.observe
        self._give_metrics()
        self.followed = self._followed(read)
        self._engines: EngineFeeds | None = None
        self._stop = asyncio.Event()
        self._reload = asyncio.Event()

    def stop(self) -> None:
        """Begin to go down."""
        self._stop.set()

    def reload(self) -> None:
        """Read all followed files now, changed or not."""
        self._reload.set()

    async def run(self) -> int:
        """Serve until :meth:`stop`, then drain; gives how many leases were still open at the end.

        Raises:
            SettingError: An address cannot be bound.
        """
        page = self._metrics_page()
        tasks: list[asyncio.Task[None]] = []
        try:
            await self.server.start()
            self._engines = EngineFeeds(self.live, self.settings.knobs.scrape, self.settings.knobs.seed)
            self._engines.apply(self.live.state.fleet.endpoints)
            tasks = [
                asyncio.create_task(follow(self.followed, self.settings.follow_s, self._told)),
                asyncio.create_task(self._reload_when_asked()),
            ]
            self._on_started(self.server.address, None if page is None else self._page_address(page))
            await self._stop.wait()
            LOG.info("draining", extra={"open_leases": len(self.live.leases)})
            left = await self.server.drain()
            LOG.info("stopped", extra={"open_leases": left})
            return left
        finally:
            for task in tasks:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
            if self._engines is not None:
                await self._engines.close()
            if page is not None:
                page.close()
            if self.log is not None:
                self.log.close()

    def follow_signals(self) -> None:
        """SIGTERM and SIGINT drain, SIGHUP reads the files again. Call it inside the running loop."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self.stop)
        loop.add_signal_handler(signal.SIGINT, self.stop)
        loop.add_signal_handler(signal.SIGHUP, self.reload)

    def _listeners(self) -> list[LiveListener]:
        knobs = self.settings.knobs
        found: list[LiveListener] = [MetricsListener(self.metrics, self.settings.policy)]
        if knobs.span_share:
            found.append(span_listener(knobs.span_share, knobs.seed))
        return found

    def _give_metrics(self) -> None:
        metrics, log = self.metrics, self.log
        metrics.add_source(lambda: live_samples(self.live))
        metrics.add_source(lambda: call_samples(self.server.servicer))
        metrics.add_source(lambda: [] if self._engines is None else feed_samples(self._engines))
        if log is not None:
            metrics.add_source(lambda: log_samples(log.report))

    def _metrics_page(self) -> MetricsPage | None:
        if not self.settings.metrics_listen:
            return None
        host, port = split_address(self.settings.metrics_listen, "metrics_listen")
        try:
            return serve_metrics(self.metrics, host, port)
        except OSError as error:
            raise InputError(
                f"cannot listen there: {error.strerror}",
                field="metrics_listen",
                value=self.settings.metrics_listen,
            ) from error

    def _page_address(self, page: MetricsPage) -> str:
        host, _ = split_address(self.settings.metrics_listen, "metrics_listen")
        return f"http://{host}:{page.port}/metrics"

    def _followed(self, read: ReadFleet) -> list[WatchedFile[Any]]:
        settings = self.settings
        files: list[WatchedFile[Any]] = [
            WatchedFile(
                "fleet",
                settings.fleet,
                lambda path: read_fleet(path, self._catalog),
                self._apply_fleet,
                lambda found: found.digest,
                read.digest,
            )
        ]
        if settings.plan is not None:
            files.append(
                WatchedFile(
                    "plan",
                    settings.plan,
                    read_plan,
                    self._apply_plan,
                    lambda p: p.plan_id,
                    self.live.serving.plan_id,
                )
            )
        if self.store is not None:
            store = self.store
            files.append(
                WatchedFile(
                    "model",
                    store.root / "CURRENT",
                    lambda _: store.load(),
                    self._apply_model,
                    lambda found: found.version,
                    self.slot.version,
                )
            )
        if settings.clients is not None:
            files.append(
                WatchedFile(
                    "clients",
                    settings.clients,
                    load_clients,
                    self._apply_clients,
                    lambda c: f"{len(c)} clients",
                    "",
                )
            )
        return files

    def _apply_fleet(self, read: ReadFleet) -> None:
        state = next_fleet_state(self.live, read.fleet, read.digest, self.settings.knobs.fleet())
        self.live.apply_fleet(state, read.endpoints)
        if self._engines is not None:
            self._engines.apply(read.fleet.endpoints)

    def _apply_plan(self, plan: PlanDocument) -> None:
        name = self.live.state.fleet.name
        if plan.fleet != name:
            raise InputError("a plan of another fleet", field="fleet", value=plan.fleet, expected=name)
        self.live.apply_plan(plan)

    def _apply_model(self, predictor: LatencyPredictor) -> None:
        self.slot.reload(lambda: predictor)
        self.live.model_changed()

    def _apply_clients(self, clients: tuple[Any, ...]) -> None:
        self.server.servicer.authenticator = Authenticator(clients)

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


def promoted_model(store: ModelStore | None) -> LatencyPredictor:
    """The promoted model; without a good one the prior serves, and the log says so."""
    if store is not None:
        try:
            if store.current() is not None:
                return store.load()
        except ModelError as error:
            LOG.warning("no latency model, the prior predicts: %s", error)
    return PriorPredictor()


def _secret(path: Path | None) -> bytes:
    return secrets.token_bytes(32) if path is None else read_file(path, "scope_secret").strip()
