"""The gRPC server of one router, which goes down without dropping anybody."""

from __future__ import annotations

import asyncio

from router.flow.flow_desk import FlowDesk
from router.flow.turn import PumpTimer
from router.serving.auth import Authenticator
from router.serving.grpc_host import GrpcHost
from router.serving.live import LiveRouter
from router.serving.server_settings import ListenSettings, ServerLimits
from router.serving.servicer import RouterServicer


class RouterServer(GrpcHost):
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
        self.live = live
        self.limits = limits or ServerLimits()
        self._desk = live.desk if isinstance(live.desk, FlowDesk) else None
        self._servicer = RouterServicer(live, authenticator, self.limits, self._desk)
        self._pump: PumpTimer | None = None
        super().__init__(self._servicer, listen, not authenticator.open, live.safe, live.tick, self.limits.tick_s)

    @property
    def servicer(self) -> RouterServicer:
        """The handlers."""
        return self._servicer

    def before_start(self) -> None:
        """Have the flow control called when somebody's turn is due."""
        if self._desk is not None:
            self._pump = PumpTimer(self._desk, self.live.clock)

    async def drain(self) -> int:
        """Go down: health first, then no new requests, then time for what is under way; gives leases left open.

        What is still open after ``drain_s`` is ended as ``router_stopped`` and written to the log.
        """
        self.live.begin_drain()
        await self.tell_health()
        deadline_s = asyncio.get_running_loop().time() + self.limits.drain_s
        while len(self.live.leases) and asyncio.get_running_loop().time() < deadline_s:
            await asyncio.sleep(min(self.limits.tick_s, 0.05))
        left = self.live.reports.give_up_all(self.live.clock())
        await self.stop()
        return left

    async def stop(self, grace_s: float = 1.0) -> None:
        """Close the server; running calls get ``grace_s``."""
        if self._pump is not None:
            self._pump.close()
        await super().stop(grace_s)
