"""A gRPC server around the calls of a router: listens, says whether it is well, and keeps up what needs upkeep."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health
from grpc_reflection.v1alpha import reflection

from data.errors import SettingError
from router.channel_options import MESSAGE_BYTES, server_options
from router.pb.v1 import router_pb2 as pb
from router.pb.v1 import router_pb2_grpc as rpc
from router.serving.server_settings import ListenSettings, Tls, check_listen, read_file

LOG = logging.getLogger("tokenfleet.router")
SERVICE: str = pb.DESCRIPTOR.services_by_name["Router"].full_name
HEALTH: str = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
LIVENESS = "liveness"
"""Health service that says only whether the process answers, for a supervisor that restarts it."""
_SERVING, _NOT_SERVING = (
    health_pb2.HealthCheckResponse.ServingStatus.Value(n) for n in ("SERVING", "NOT_SERVING")
)


class GrpcHost:
    """Serves the calls of ``calls``.

    Args:
        calls: The handlers.
        listen: Where.
        verifies_callers: Whether the handlers check who calls.
        safe: Whether a decision may be asked for now.
        upkeep: Called every ``tick_s``.
        tick_s: Pause between two calls of ``upkeep``.

    Raises:
        SettingError: The address is malformed, or open to others without protection.
    """

    def __init__(
        self,
        calls: Any,
        listen: ListenSettings,
        verifies_callers: bool,
        safe: Callable[[], bool],
        upkeep: Callable[[], None],
        tick_s: float,
    ) -> None:
        check_listen(listen, verifies_callers)
        self.address = listen.address
        """Where the server listens; after :meth:`start` with the port that the system gave."""
        self.on_lag: Callable[[float], None] = lambda _: None
        """Told how late the event loop ran the upkeep, seconds."""
        # Twice what clients send: a message over the limit is refused by name, not by the transport.
        self.channel_options = server_options(2 * MESSAGE_BYTES)
        """Options of the transport: pings, message sizes."""
        self._calls = calls
        self._listen = listen
        self._is_safe = safe
        self._do_upkeep = upkeep
        self._tick_s = tick_s
        self._health = health.HealthServicer()
        self._safe: bool | None = None
        self._upkeep: asyncio.Task[None] | None = None
        # Made by `start`: one that is never started cannot be taken down properly either.
        self._server: grpc.aio.Server | None = None

    async def start(self) -> None:
        """Begin to serve.

        Raises:
            SettingError: The address cannot be bound.
            InputError: A certificate cannot be read.
        """
        server = self._server = grpc.aio.server(options=self.channel_options)
        rpc.add_RouterServicer_to_server(self._calls, server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        reflection.enable_server_reflection((SERVICE, HEALTH, reflection.SERVICE_NAME), server)
        await self._health.set(LIVENESS, _SERVING)
        await self.tell_health()
        port = self._bind(server)
        if not self.address.startswith("unix:"):
            self.address = f"{self._listen.address.rpartition(':')[0]}:{port}"
        self.before_start()
        await server.start()
        self._upkeep = asyncio.create_task(self._keep_up())

    def before_start(self) -> None:
        """What must be there before the first call; nothing by itself."""

    async def stop(self, grace_s: float = 1.0) -> None:
        """Close the server; running calls get ``grace_s``."""
        if self._upkeep is not None:
            self._upkeep.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._upkeep
            self._upkeep = None
        if self._server is not None:
            await self._server.stop(grace_s)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop(0.0)

    async def _keep_up(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due_s = loop.time() + self._tick_s
            await asyncio.sleep(self._tick_s)
            self.on_lag(max(loop.time() - due_s, 0.0))
            try:
                self._do_upkeep()
                await self.tell_health()
            except Exception:
                # Upkeep must go on: a fault here would leave leases open for ever.
                LOG.exception("upkeep failed")

    async def tell_health(self) -> None:
        """Say whether a decision may be asked for, if that has changed."""
        safe = self._is_safe()
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
