"""Two sites with a router each behind proxies that can be cut, and an entry router: all real gRPC on loopback."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest
import pytest_asyncio

from data.catalog.load import load_catalog
from data.catalog.types import ServiceTimes
from data.fleet.types import EngineSettings, Fleet, Link, Model, Site, Tenant, WorkloadClass
from data.types import Slo
from router.channel_options import client_options
from router.client.settings import Identity
from router.endpoints import EndpointSpec
from router.engines.aliases import KV_USE, RUNNING, WAITING, Reading
from router.entry.entry_build import build_entry
from router.entry.entry_router import EntryRouter
from router.entry.entry_server import EntryServer
from router.entry.settings import EntrySettings
from router.entry.site_fleet import site_fleet
from router.filters import FilterSettings
from router.pb.v1 import router_pb2 as pb
from router.pb.v1 import router_pb2_grpc as rpc
from router.serving.auth import Authenticator
from router.serving.fleet_rows import LiveEndpoint
from router.serving.grpc_host import GrpcHost
from router.serving.live import LiveRouter
from router.serving.live_build import LiveSettings, build_live
from router.serving.server import RouterServer
from router.serving.server_settings import ListenSettings, ServerLimits
from router.serving.wire_request import WireLimits
from router.sites.registry import site_rule_factory

TIMES = ServiceTimes(p0=0.01, p1=5e-5, p2=1e-9, d0=0.008, d1=1e-5, d2=1e-8)
QUICK = EntrySettings(period_s=0.05, stale_s=0.25, gone_s=0.5, report_s=0.5)
LOCAL = ListenSettings("127.0.0.1:0")
LIMITS = ServerLimits(tick_s=0.02)


@dataclass
class Record:
    """Everything that a site's router was asked, explanations included, and what it decided."""

    asked: list[str] = field(default_factory=list)
    decisions: list[dict[str, Any]] = field(default_factory=list)
    outcomes: list[dict[str, Any]] = field(default_factory=list)

    def decision(self, row: dict[str, Any]) -> None:
        self.decisions.append(row)

    def outcome(self, row: dict[str, Any]) -> None:
        self.outcomes.append(row)

    def tenants(self) -> set[str]:
        return {row["tenant"] for row in self.decisions} | set(self.asked)


class Proxy:
    """Forwards TCP until it is cut: then connections stay open, new ones are taken, and nothing gets through."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.address = ""
        self._flows = asyncio.Event()
        self._flows.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def cut(self) -> None:
        self._flows.clear()

    def heal(self) -> None:
        self._flows.set()

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        with contextlib.suppress(OSError, asyncio.CancelledError):
            host, _, port = self.target.rpartition(":")
            far_reader, far_writer = await asyncio.open_connection(host, int(port))
            await asyncio.gather(self._copy(reader, far_writer), self._copy(far_reader, writer))
        writer.close()
        self._tasks.discard(task)

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65_536):
                await self._flows.wait()
                writer.write(data)
                await writer.drain()
        finally:
            writer.close()


@dataclass
class RunningSite:
    """One site."""

    live: LiveRouter
    record: Record
    server: GrpcHost
    proxy: Proxy


@dataclass
class World:
    """The entry, its sites by name, and a stub for callers of the entry."""

    entry: EntryRouter
    sites: dict[str, RunningSite]
    server: EntryServer
    stub: Any

    async def ask(self, tenant: str = "shop", timeout: float = 5.0, **fields: Any) -> pb.RouteReply:
        reply: pb.RouteReply = await self.stub.Route(question(tenant=tenant, **fields), timeout=timeout)
        return reply

    async def tell(self, *events: pb.ReportEvent) -> pb.ReportSummary:
        summary: pb.ReportSummary = await self.stub.Report(iter(events), timeout=5)
        return summary


def question(**fields: Any) -> pb.RouteRequest:
    return pb.RouteRequest(
        **{"model": "m@1", "tenant": "shop", "input_tokens": 1000, "output_budget": 200, **fields}
    )


def finished(reply: pb.RouteReply, tokens: int = 10) -> pb.ReportEvent:
    return pb.ReportEvent(lease_id=reply.placement.lease_id, finished=pb.Finished(output_tokens=tokens))


def fleet(**fields: Any) -> Fleet:
    """A takes requests in, B is near and in the EU, C is far and not; ``bank`` must stay in the EU."""
    tenants = (Tenant("shop"), Tenant("bank", residency_zones=("eu",)))
    return Fleet(
        name="test",
        sites=(Site("A", "entry", "eu"), Site("B", "compute", "eu"), Site("C", "compute", "us")),
        links=(Link("A", "B", 0.002, 100.0), Link("A", "C", 0.030, 100.0), Link("B", "C", 0.030, 100.0)),
        pools=(),
        models=(Model("m", "1", "x", 8192, EngineSettings(block_tokens=16)),),
        configs=(),
        classes=(WorkloadClass("interactive", Slo(ttft_s=2.0, tpot_s=0.05), client_timeout_s=40.0),),
        tenants=fields.get("tenants", tenants),
    )


def endpoint(number: int, site: str) -> LiveEndpoint:
    spec = EndpointSpec(f"{site}/c/{number}", site, "m@1", "c", "H100", 1, TIMES, 40_000, 8192, 64, 8192)
    return LiveEndpoint(spec, f"http://10.0.0.{number + 1}:8000")


async def until(ready: Callable[[], bool], limit_s: float = 10.0) -> None:
    async with asyncio.timeout(limit_s):
        while not ready():
            await asyncio.sleep(0.01)


def make_site(site: str, **given: Any) -> tuple[LiveRouter, Record]:
    record = Record()
    live = build_live(
        given.get("fleet", fleet()),
        given.get("endpoints", [endpoint(number, site) for number in range(2)]),
        LiveSettings(lease_base=given.get("base", ord(site)) << 40),
        digest="f1",
        clock=given.get("clock"),
        sink=record,
    )
    reader = live.state.reader
    read = reader.read

    def recorded(asked: pb.RouteRequest, bound: str = "") -> Any:
        record.asked.append(asked.tenant)
        return read(asked, bound)

    reader.read = recorded
    for row in range(len(live.rows)):
        live.states.page(row, Reading({RUNNING: 0.0, WAITING: 0.0, KV_USE: 0.0}, (), 0), live.clock())
    return live, record


@contextlib.asynccontextmanager
async def running_site(site: str, **given: Any) -> AsyncIterator[RunningSite]:
    live, record = make_site(site, **given)
    wrap = given.get("server", lambda one: RouterServer(one, given.get("auth", Authenticator()), LOCAL, LIMITS))
    async with wrap(live) as server:
        proxy = Proxy(server.address)
        await proxy.start()
        try:
            yield RunningSite(live, record, server, proxy)
        finally:
            proxy.heal()
            await proxy.close()


@contextlib.asynccontextmanager
async def running_entry(sites: dict[str, RunningSite], **given: Any) -> AsyncIterator[World]:
    made = site_fleet(fleet(), "f1", load_catalog(), list(sites), FilterSettings(), WireLimits())
    entry = build_entry(
        made,
        {name: site.proxy.address for name, site in sites.items()},
        given.get("settings", QUICK),
        make_rule=site_rule_factory("fleetmind", {"dwell_s": 0.3, **given.get("rule", {})}),
        identity=given.get("identity", Identity()),
    )
    async with (
        EntryServer(entry, given.get("auth", Authenticator()), LOCAL, LIMITS) as server,
        grpc.aio.insecure_channel(server.address, options=client_options()) as channel,
    ):
        if given.get("wait", True):
            await until(lambda: all(link.reachable() for link in entry.links.values()))
        yield World(entry, sites, server, rpc.RouterStub(channel))


@pytest_asyncio.fixture(name="world")
async def _world() -> AsyncIterator[World]:
    async with running_site("B") as b, running_site("C") as c, running_entry({"B": b, "C": c}) as world:
        yield world


@pytest.fixture(name="kit")
def _kit() -> Any:
    """The makers of this module, for tests that put their own world together."""
    return globals()
