"""A small fleet, a router over it with a clock by hand, and a server on a free port."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import grpc
import pytest

from data.catalog.types import ServiceTimes
from data.fleet.types import EngineSettings, Fleet, Link, Model, Site, Tenant, WorkloadClass
from data.types import Slo
from router.channel_options import MESSAGE_BYTES, client_options
from router.endpoints import EndpointSpec
from router.pb.v1 import router_pb2 as pb
from router.pb.v1 import router_pb2_grpc as rpc
from router.serving.auth import Authenticator
from router.serving.fleet_rows import LiveEndpoint
from router.serving.live import LiveRouter
from router.serving.live_build import LiveSettings, build_live
from router.serving.server import RouterServer
from router.serving.server_settings import ListenSettings, ServerLimits

BASE = 7 << 40
TIMES = ServiceTimes(p0=0.01, p1=5e-5, p2=1e-9, d0=0.008, d1=1e-5, d2=1e-8)


@dataclass
class Clock:
    """Time by hand."""

    now_s: float = 1_000_000.0

    def __call__(self) -> float:
        return self.now_s


@dataclass
class Sink:
    """Rows of the log."""

    decisions: list[dict[str, Any]] = field(default_factory=list)
    outcomes: list[dict[str, Any]] = field(default_factory=list)

    def decision(self, row: dict[str, Any]) -> None:
        self.decisions.append(row)

    def outcome(self, row: dict[str, Any]) -> None:
        self.outcomes.append(row)


@dataclass
class World:
    """A router and what surrounds it."""

    live: LiveRouter
    clock: Clock
    sink: Sink

    def ask(self, tenant: str = "shop", owner: str = "", **fields: Any) -> pb.RouteReply:
        return self.live.route(question(tenant=tenant, **fields), owner=owner)

    def tell(self, lease: int, owner: str = "", **event: Any) -> str:
        return self.live.reports.take(pb.ReportEvent(lease_id=lease, **event), owner, self.clock()).value

    def counts(self) -> float:
        table = self.live.core.table
        return float(
            table.inflight.sum()
            + table.inflight_tokens.sum()
            + table.inflight_uncached_tokens.sum()
            + table.decoding.sum()
        )


def question(**fields: Any) -> pb.RouteRequest:
    asked = {"model": "m@1", "tenant": "shop", "input_tokens": 1000, "output_budget": 200}
    return pb.RouteRequest(**{**asked, **fields})


def hashes(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}Q", *values)


def fleet() -> Fleet:
    return Fleet(
        "test",
        (Site("A", "entry", "east"), Site("B", "compute", "east"), Site("C", "compute", "west")),
        (Link("A", "B", 0.002, 100.0), Link("A", "C", 0.030, 100.0)),
        (),
        (Model("m", "1", "x", 8192, EngineSettings(block_tokens=16)), Model("m", "2", "x", 8192)),
        (),
        (WorkloadClass("interactive", Slo(ttft_s=2.0, tpot_s=0.05), client_timeout_s=40.0),),
        (Tenant("shop"), Tenant("bank", residency_zones=("east",)), Tenant("nowhere", sites=("A",))),
    )


def endpoint(number: int, site: str = "B", **fields: Any) -> LiveEndpoint:
    spec = EndpointSpec(f"{site}/c/{number}", site, "m@1", "c", "H100", 1, TIMES, 40_000, 8192, 64, 8192)
    return LiveEndpoint(spec, f"http://10.0.0.{number + 1}:8000", **fields)


def spec_of(live: LiveEndpoint, **fields: Any) -> LiveEndpoint:
    return replace(live, spec=replace(live.spec, **fields))


@pytest.fixture(name="make_world")
def _make_world() -> Callable[..., World]:
    def make(endpoints: list[LiveEndpoint] | None = None, **settings: Any) -> World:
        clock, sink = Clock(), Sink()
        predictor, hasher = settings.pop("predictor", None), settings.pop("hasher", None)
        served = settings.pop("fleet", None) or fleet()
        live = build_live(
            served,
            [endpoint(i) for i in range(4)] if endpoints is None else endpoints,
            LiveSettings(lease_base=BASE, **settings),
            digest="f1",
            predictor=predictor,
            hasher=hasher,
            clock=clock,
            sink=sink,
        )
        return World(live, clock, sink)

    return make


@pytest.fixture(name="world")
def _world(make_world: Callable[..., World]) -> World:
    return make_world()


@dataclass
class Served:
    """A running server and a stub for it."""

    server: RouterServer
    stub: Any
    channel: Any


@pytest.fixture(name="serve")
def _serve() -> Callable[..., AbstractAsyncContextManager[Served]]:
    @asynccontextmanager
    async def serve(live: LiveRouter, **given: Any) -> AsyncIterator[Served]:
        credentials = given.pop("credentials", None)
        authenticator = given.pop("authenticator", Authenticator())
        listen = ListenSettings("127.0.0.1:0", given.pop("tls", None))
        limits = ServerLimits(**{"tick_s": 0.02, **given.pop("limits", {})})
        options = given.pop("options", client_options(4 * MESSAGE_BYTES))
        async with RouterServer(live, authenticator, listen, limits, **given) as server:
            address = server.address.replace("127.0.0.1", "localhost") if credentials else server.address
            channel = (
                grpc.aio.insecure_channel(address, options=options)
                if credentials is None
                else grpc.aio.secure_channel(address, credentials, options=options)
            )
            async with channel:
                yield Served(server, rpc.RouterStub(channel), channel)

    return serve


@pytest.fixture(name="asked")
def _asked() -> Callable[..., pb.RouteRequest]:
    return question


@pytest.fixture(name="hashes")
def _hashes() -> Callable[..., bytes]:
    return hashes


@pytest.fixture(name="endpoint")
def _endpoint() -> Callable[..., LiveEndpoint]:
    return endpoint


@pytest.fixture(name="fleet")
def _fleet() -> Fleet:
    return fleet()
