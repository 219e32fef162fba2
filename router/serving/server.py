"""The gRPC server: listens, says whether it is well, and goes down without dropping anybody."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from types import TracebackType

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health
from grpc_reflection.v1alpha import reflection

from data.errors import SettingError
from router.channel_options import MESSAGE_BYTES, server_options
from router.flow.flow_desk import FlowDesk
from router.flow.turn import PumpTimer
from router.pb.v1 import router_pb2 as pb
from router.pb.v1 import router_pb2_grpc as rpc
from router.serving.auth import Authenticator
from router.serving.live import LiveRouter
from router.serving.server_settings import ListenSettings, ServerLimits, Tls, check_listen, read_file
from router.serving.servicer import RouterServicer

LOG = logging.getLogger("tokenfleet.router")
SERVICE: str = pb.DESCRIPTOR.services_by_name["Router"].full_name
HEALTH: str = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
LIVENESS = "liveness"
"""Health service that says only whether the process answers, for a supervisor that restarts it."""
_SERVING, _NOT_SERVING = (
    health_pb2.HealthCheckResponse.ServingStatus.Value(n) for n in ("SERVING", "NOT_SERVING")
)


class RouterServer:
    """Serves one ``LiveRouter``.

    Args:
        live: The router.
        authenticator: Knows the callers.
        listen: Where.
        limits: Bounds.

    Raises:
        SettingError: The address is malformed, or open to others without protection.
    """

    def __init__(
        self,
        live: LiveRouter,
        authenticator: Authenticator,
        listen: ListenSettings,
        limits: ServerLimits | None = None,
    ) -> None:
        check_listen(listen, not authenticator.open)
        self.live = live
        self.limits = limits or ServerLimits()
        self.address = listen.address
        """Where the server listens; after :meth:`start` with the port that the system gave."""
        self._listen = listen
        desk = live.desk if isinstance(live.desk, FlowDesk) else None
        self._servicer = RouterServicer(live, authenticator, self.limits, desk)
        self._desk = desk
        self._pump: PumpTimer | None = None
        self._health = health.HealthServicer()
        self._safe: bool | None = None
        self.on_lag: Callable[[float], None] = lambda _: None
        """Told how late the event loop ran the upkeep, seconds."""
        self._upkeep: asyncio.Task[None] | None = None
        # Twice what clients send: a message over the limit is refused by name, not by the transport.
        self.channel_options = server_options(2 * MESSAGE_BYTES)
        """Options of the transport: pings, message sizes."""
        # Made by `start`: one that is never started cannot be taken down properly either.
        self._server: grpc.aio.Server | None = None

    @property
    def servicer(self) -> RouterServicer:
        """The handlers."""
        return self._servicer

    async def start(self) -> None:
        """Begin to serve.

        Raises:
            SettingError: The address cannot be bound.
            InputError: A certificate cannot be read.
        """
        server = self._server = grpc.aio.server(options=self.channel_options)
        rpc.add_RouterServicer_to_server(self._servicer, server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        reflection.enable_server_reflection((SERVICE, HEALTH, reflection.SERVICE_NAME), server)
        await self._health.set(LIVENESS, _SERVING)
        await self._tell_health()
        port = self._bind(server)
        if not self.address.startswith("unix:"):
            self.address = f"{self._listen.address.rpartition(':')[0]}:{port}"
        if self._desk is not None:
            self._pump = PumpTimer(self._desk, self.live.clock)
        await server.start()
        self._upkeep = asyncio.create_task(self._keep_up())

    async def drain(self) -> int:
        """Go down: health first, then no new requests, then time for what is under way; gives leases left open.

        What is still open after ``drain_s`` is ended as ``router_stopped`` and written to the log.
        """
        self.live.begin_drain()
        await self._tell_health()
        deadline_s = asyncio.get_running_loop().time() + self.limits.drain_s
        while len(self.live.leases) and asyncio.get_running_loop().time() < deadline_s:
            await asyncio.sleep(min(self.limits.tick_s, 0.05))
        left = self.live.reports.give_up_all(self.live.clock())
        await self.stop()
        return left

    async def stop(self, grace_s: float = 1.0) -> None:
        """Close the server; running calls get ``grace_s``."""
        if self._upkeep is not None:
            self._upkeep.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._upkeep
            self._upkeep = None
        if self._pump is not None:
            self._pump.close()
        if self._server is not None:
            await self._server.stop(grace_s)

    async def __aenter__(self) -> RouterServer:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop(0.0)

    async def _keep_up(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due_s = loop.time() + self.limits.tick_s
            await asyncio.sleep(self.limits.tick_s)
            self.on_lag(max(loop.time() - due_s, 0.0))
            try:
                self.live.tick()
                await self._tell_health()
            except Exception:
                # Upkeep must go on: a fault here would leave leases open for ever.
                LOG.exception("upkeep failed")

    async def _tell_health(self) -> None:
        safe = self.live.safe()
        if safe != self._safe:
            self._safe = safe
            for name in ("", SERVICE):
                await self._health.set(name, _SERVING if safe else _NOT_SERVING)

    def _bind(self, server: grpc.aio.Server) -> int:
        try:
            if self._listen.tls is None:
                return int(server.add_insecure_port(self._listen.address))
            return int(server.add_secure_port(self._listen.address, _credentials(self._listen.tls)))
        except RuntimeError as error:
            raise SettingError(
                "cannot listen there", field="listen", value=self._listen.address, expected="a free address"
            ) from error


def _credentials(tls: Tls) -> grpc.ServerCredentials:
    client_ca = None if tls.client_ca is None else read_file(tls.client_ca, "client_ca")
    pair = (read_file(tls.key, "key"), read_file(tls.certificate, "certificate"))
    return grpc.ssl_server_credentials([pair], client_ca, require_client_auth=client_ca is not None)
