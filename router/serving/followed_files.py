"""The files that a router follows, and what is done with a new version of each."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data.catalog.load import Catalog
from data.errors import FleetFileError, InputError, SettingError
from data.plan import PlanDocument
from data.plan_io import read_plan
from models.base import LatencyPredictor
from models.slot import PredictorSlot
from models.store import ModelStore
from router.feeds.index_memory import check_index_memory
from router.prompts.prompt_hashes import ScopedHashes
from router.prompts.public_prefixes_file import PublicPrefix, declare_public, load_public_prefixes
from router.serving.auth import Authenticator, Client, load_clients
from router.serving.fleet_file import ReadEndpoints, ReadFleet, read_endpoints, read_fleet
from router.serving.live import LiveRouter
from router.serving.live_build import next_fleet_state
from router.serving.reload import WatchedFile
from router.serving.service_settings import ServiceSettings
from router.serving.servicer import RouterServicer

LOG = logging.getLogger("tokenfleet.router")


@dataclass(slots=True)
class Followed:
    """A router, and the parts of it that files decide on. All calls come from its event loop.

    Attributes:
        settings: Names the files.
        catalog: What they are checked against.
        engines: The list that counts now.
        public: The beginnings that are declared public.
        on_engines: Told of another list of engines, after their rows have been applied.
    """

    settings: ServiceSettings
    catalog: Catalog
    live: LiveRouter
    servicer: RouterServicer
    hasher: ScopedHashes
    store: ModelStore | None
    slot: PredictorSlot
    engines: ReadEndpoints
    public: tuple[PublicPrefix, ...] = ()
    on_engines: Callable[[ReadEndpoints], None] = lambda _: None

    def files(self) -> list[WatchedFile[Any]]:
        """All files that were given, with the versions that serve now."""
        given, live = self.settings, self.live
        fleet: WatchedFile[Any] = WatchedFile(
            "fleet", given.fleet, self._read_fleet, self.apply_fleet, _digest, live.state.digest
        )
        files = [fleet]
        if given.endpoints is not None:
            files.append(
                WatchedFile(
                    "endpoints",
                    given.endpoints,
                    self._read_endpoints,
                    lambda read: self._apply_list(read, fleet),
                    lambda read: read.endpoints.digest if isinstance(read, ReadFleet) else read.digest,
                    self.engines.digest,
                )
            )
        if given.plan is not None:
            files.append(
                WatchedFile("plan", given.plan, read_plan, self.apply_plan, _plan_id, live.serving.plan_id)
            )
        if self.store is not None:
            current, load = self.store.root / "CURRENT", self.store.load
            files.append(
                WatchedFile("model", current, lambda _: load(), self.apply_model, _version, self.slot.version)
            )
        if given.clients is not None:
            files.append(
                WatchedFile("clients", given.clients, load_clients, self.apply_clients, _count, "at start")
            )
        if given.public_prefixes is not None:
            files.append(
                WatchedFile(
                    "public_prefixes",
                    given.public_prefixes,
                    load_public_prefixes,
                    self.apply_public,
                    _count,
                    _count(self.public),
                )
            )
        return files

    def apply_fleet(self, read: ReadFleet) -> None:
        """Swap in a fleet file with its engines and its share of the public prefixes, all or nothing."""
        public, _ = declare_public(self.public, read.fleet)
        state = next_fleet_state(self.live, read.fleet, read.digest, self.settings.knobs.fleet())
        self._warn_of_memory(read.endpoints, read)
        self.live.apply_fleet(state, read.endpoints.rows)
        if self.settings.public_prefixes is not None:
            self.hasher.public = public
        self._follow(read.endpoints)

    def apply_endpoints(self, read: ReadEndpoints) -> None:
        """Swap in another list of engines; requests under way on those that stay are not touched."""
        self._warn_of_memory(read, None)
        self.live.apply_endpoints(read.rows)
        self._follow(read)

    def apply_plan(self, plan: PlanDocument) -> None:
        """Follow another plan.

        Raises:
            InputError: It is made for another fleet.
        """
        name = self.live.state.fleet.name
        if plan.fleet != name:
            raise InputError("a plan of another fleet", field="fleet", value=plan.fleet, expected=name)
        self.live.apply_plan(plan)

    def apply_model(self, predictor: LatencyPredictor) -> None:
        """Let another latency model predict."""
        self.slot.reload(lambda: predictor)
        self.live.model_changed()

    def apply_clients(self, clients: tuple[Client, ...]) -> None:
        """Let these call."""
        self.servicer.authenticator = Authenticator(clients)

    def apply_public(self, declared: tuple[PublicPrefix, ...]) -> None:
        """Share these beginnings from now on.

        Raises:
            InputError: One is shorter than a block of its model.
        """
        public, left_out = declare_public(declared, self.live.state.fleet)
        for prefix in left_out:
            LOG.warning("public prefix of %s: the fleet file names no such model version", prefix.model)
        self.public, self.hasher.public = declared, public

    def _read_fleet(self, path: Path) -> ReadFleet:
        return read_fleet(
            path, self.catalog, self.settings.endpoints, self.settings.only_site, self.settings.probe
        )

    def _read_endpoints(self, path: Path) -> ReadEndpoints | ReadFleet:
        """The list of engines; with the fleet file if both have changed and are right only with each other."""
        try:
            return read_endpoints(
                path, self.live.state.fleet, self.catalog, self.settings.only_site, self.settings.probe
            )
        except FleetFileError:
            whole = read_fleet(
                self.settings.fleet, self.catalog, path, self.settings.only_site, self.settings.probe
            )
            if whole.digest == self.live.state.digest:
                raise
            return whole

    def _apply_list(self, read: ReadEndpoints | ReadFleet, fleet: WatchedFile[Any]) -> None:
        if isinstance(read, ReadEndpoints):
            self.apply_endpoints(read)
        elif not fleet.take(read):
            raise InputError("; ".join(fleet.status.errors))

    def _follow(self, engines: ReadEndpoints) -> None:
        self.engines = engines
        self.on_engines(engines)

    def _warn_of_memory(self, read: ReadEndpoints, fleet: ReadFleet | None) -> None:
        """At start too much is refused; later on engines that are there are served, and the bound evicts."""
        known = self.live.state.fleet if fleet is None else fleet.fleet
        try:
            check_index_memory(read.rows, known, self.settings.knobs.prefix_index.max_bytes)
        except SettingError as error:
            LOG.warning("prefix index: %s", error)


def _digest(read: ReadFleet | ReadEndpoints) -> str:
    return read.digest


def _plan_id(plan: PlanDocument) -> str:
    return plan.plan_id


def _version(predictor: LatencyPredictor) -> str:
    return predictor.version


def _count(entries: tuple[Any, ...]) -> str:
    return f"{len(entries)} entries"
