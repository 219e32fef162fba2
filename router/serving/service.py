"""A router process: what it is made of, the files it follows, and how it starts and ends."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import signal
from collections.abc import Callable, Iterable
from typing import Any

from data.catalog.load import load_catalog
from data.errors import InputError, ModelError
from data.log.writer import LogWriter
from data.plan_io import read_plan
from models.base import LatencyPredictor
from models.guarded import guarded_model
from models.hardware import fleet_kinds
from models.physics import PriorPredictor
from models.store import ModelStore
from router.feeds.engine_feeds import EngineFeeds
from router.feeds.metrics_feed import log_change
from router.flow.feedback_file import feedback_file
from router.flow.flow_desk import FlowDesk
from router.flow.flow_metrics import flow_samples, goodput_samples
from router.flow.goodput_listener import NO_TIER, GoodputListener
from router.kv_events.counters import LAG_BOUNDS_S
from router.observe.live_metrics import call_samples, feed_samples, live_samples, log_samples, reload_samples
from router.observe.metrics import RouterMetrics
from router.observe.metrics_listener import MetricsListener
from router.observe.metrics_page import MetricsPage, serve_metrics
from router.observe.site_metrics import site_samples
from router.observe.spans import span_listener
from router.observe.status import service_status
from router.prefix.index import PrefixIndex
from router.prefix.warm_up import warm_up
from router.prompts.prefix_scope import ScopeKeys
from router.prompts.prompt_hashes import ScopedHashes
from router.prompts.public_prefixes_file import load_public_prefixes
from router.serving.auth import Authenticator, load_clients
from router.serving.fleet_file import read_fleet
from router.serving.followed_files import Followed
from router.serving.live_build import LiveSettings, build_live
from router.serving.live_listener import LiveListener
from router.serving.reload import WatchedFile, follow, reload_now
from router.serving.server import RouterServer
from router.serving.server_settings import split_address
from router.serving.service_settings import ServiceSettings
from router.serving.service_start import check_memory, probe_of, secret, snapshots

LOG = logging.getLogger("tokenfleet.router")
FIRST_LOOK_S = 1.0
"""A router that probes its engines begins to listen this late at most."""
NO_LAG = ((0.0,) * (len(LAG_BOUNDS_S) + 1), 0.0)


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
        read = read_fleet(settings.fleet, self._catalog, settings.endpoints, settings.only_site, settings.probe)
        check_memory(read, settings.knobs)
        keys = ScopeKeys(secret(settings.scope_secret))
        self._snapshots = snapshots(settings, keys)
        self._probe = probe_of(settings)
        hasher = ScopedHashes(keys)
        clients = None if settings.clients is None else load_clients(settings.clients)
        self.metrics = RouterMetrics()
        self.log = None if settings.log is None else LogWriter(settings.log, settings.knobs.log.writer())
        self.store = None if settings.models is None else ModelStore(settings.models)
        kinds = fleet_kinds([read.fleet], self._catalog)
        self.model = guarded_model(promoted_model(self.store), kinds, onward=self.log)
        self.slot = self.model.slot
        self.goodput = GoodputListener(lambda tenant: self.live.state.tiers.get(tenant, NO_TIER))
        self.live = build_live(
            read.fleet,
            read.endpoints.rows,
            LiveSettings(
                policy=settings.policy,
                policy_settings=settings.policy_settings,
                fleet=settings.knobs.fleet(),
                guard=settings.knobs.predictor,
                health=settings.knobs.health,
                states=settings.knobs.reports,
                seed=settings.knobs.seed,
                lease_base=secrets.randbits(22) << 40,
                flow=settings.make_flow(),
                sites=settings.make_sites(),
            ),
            digest=read.digest,
            predictor=self.model.guard,
            hasher=hasher,
            index=PrefixIndex(max(len(read.endpoints.rows), 1), settings.knobs.prefix_index),
            # Without a store there is nothing that could drift.
            sink=self.log if self.store is None else self.model.watch,
            listeners=self._listeners(),
            on_state=log_change(lambda row: self.live.core.table.specs[row].endpoint_id),
        )
        self.server = RouterServer(self.live, Authenticator(clients), settings.listen, settings.knobs.server)
        lag = self.metrics.histogram("event_loop_lag_seconds")
        self.server.on_lag = lag.observe
        self._give_metrics()
        self.parts = Followed(
            settings,
            self._catalog,
            self.live,
            self.server.servicer,
            hasher,
            self.store,
            self.slot,
            read.endpoints,
        )
        if settings.public_prefixes is not None:
            self.parts.apply_public(load_public_prefixes(settings.public_prefixes))
        if settings.plan is not None:
            self.parts.apply_plan(read_plan(settings.plan))
        self.followed = self.parts.files()
        self._feedback = feedback_file(settings.feedback_state, self.live.desk, self.live.clock)
        self.engines: EngineFeeds | None = None
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
        warm_up()
        page = self._metrics_page()
        tasks: list[asyncio.Task[None]] = []
        try:
            engines = self._follow_engines()
            if engines.prober is not None:
                # Else the first callers would be told to come back when a cold engine could be ready.
                await engines.prober.all_asked(FIRST_LOOK_S)
            await self.server.start()
            tasks = [
                asyncio.create_task(follow(self.followed, self.settings.follow_s, self._told)),
                asyncio.create_task(self._reload_when_asked()),
            ]
            if self._snapshots is not None:
                period_s = self.settings.knobs.index_snapshot.period_s
                tasks.append(asyncio.create_task(self._snapshots.keep(engines.events, period_s)))
            if self._feedback is not None:
                tasks.append(asyncio.create_task(self._feedback.keep()))
            self._on_started(self.server.address, None if page is None else self._page_address(page))
            await self._stop.wait()
            LOG.info("draining", extra={"open_leases": len(self.live.leases)})
            left = await self.server.drain()
            if self._snapshots is not None:
                await self._snapshots.write(engines.events)
            if self._feedback is not None:
                await self._feedback.write()
            LOG.info("stopped", extra={"open_leases": left})
            return left
        finally:
            for task in tasks:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
            if self.engines is not None:
                await self.engines.close()
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

    def _follow_engines(self) -> EngineFeeds:
        saved = () if self._snapshots is None else self._snapshots.read()
        knobs = self.settings.knobs
        engines = self.engines = EngineFeeds(self.live, knobs.scrape, knobs.seed, saved, self._probe)
        engines.apply(self.parts.engines.engines)
        self.parts.on_engines = lambda read: engines.apply(read.engines)
        return engines

    def _listeners(self) -> list[LiveListener]:
        knobs = self.settings.knobs
        found: list[LiveListener] = [MetricsListener(self.metrics, self.settings.policy), self.goodput]
        if knobs.span_share:
            found.append(span_listener(knobs.span_share, knobs.seed))
        return found

    def _give_metrics(self) -> None:
        metrics, log = self.metrics, self.log
        metrics.add_source(lambda: live_samples(self.live))
        metrics.add_source(lambda: site_samples(self.live))
        metrics.add_source(lambda: call_samples(self.server.servicer))
        metrics.add_source(lambda: [] if self.engines is None else feed_samples(self.engines))
        metrics.add_source(lambda: reload_samples(self.followed))
        metrics.add_source(lambda: goodput_samples(self.goodput.book))
        desk = self.live.desk
        if isinstance(desk, FlowDesk):
            metrics.add_source(lambda: flow_samples(desk, self.live.state.fleet, metrics.tenant))
        metrics.add_histogram_source("kv_event_lag_seconds", self._kv_event_lag)
        if log is not None:
            metrics.add_source(lambda: log_samples(log.report))

    def _kv_event_lag(self) -> tuple[Iterable[float], float]:
        return NO_LAG if self.engines is None else self.engines.events.lag()

    def _status(self) -> dict[str, Any]:
        return service_status(self.settings, self.followed, self.live)

    def _metrics_page(self) -> MetricsPage | None:
        if not self.settings.metrics_listen:
            return None
        host, port = split_address(self.settings.metrics_listen, "metrics_listen")
        try:
            return serve_metrics(self.metrics, host, port, self._status)
        except OSError as error:
            raise InputError(
                f"cannot listen there: {error.strerror}",
                field="metrics_listen",
                value=self.settings.metrics_listen,
            ) from error

    def _page_address(self, page: MetricsPage) -> str:
        host, _ = split_address(self.settings.metrics_listen, "metrics_listen")
        return f"http://{host}:{page.port}/metrics"

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
