"""The gRPC server of an entry router, and the tasks that keep it in touch with its sites."""

from __future__ import annotations

import asyncio
import contextlib

from router.entry.entry_router import EntryRouter
from router.entry.entry_servicer import EntryServicer
from router.serving.auth import Authenticator
from router.serving.grpc_host import GrpcHost
from router.serving.server_settings import ListenSettings, ServerLimits


class EntryServer(GrpcHost):
    """Serves one ``EntryRouter``.

    Args:
        entry: The entry router.
        authenticator: Knows the callers.
        listen: Where.
        limits: Bounds.

    Raises:
        SettingError: The address is malformed, or open to others without protection.
    """

    def __init__(
        self,
        entry: EntryRouter,
        authenticator: Authenticator,
        listen: ListenSettings,
        limits: ServerLimits | None = None,
    ) -> None:
        self.entry = entry
        self.limits = limits or ServerLimits()
        self.servicer = EntryServicer(entry, authenticator, self.limits)
        self._following: list[asyncio.Task[None]] = []
        tick_s = min(self.limits.tick_s, entry.settings.stale_s / 2)
        super().__init__(self.servicer, listen, not authenticator.open, entry.safe, entry.tick, tick_s)

    def before_start(self) -> None:
        """Begin to hear the sites."""
        self._following = [asyncio.create_task(link.follow()) for link in self.entry.links.values()]

    async def drain(self) -> int:
        """Go down: refuse new requests, hand outcomes on until no placement is open or ``drain_s`` is over.

        Gives how many placements were open. They are no loss: their sites hold them, and the next entry hands
        their outcomes on.
        """
        self.entry.begin_drain()
        await self.tell_health()
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self.limits.drain_s
        while len(self.entry.leases) and loop.time() < deadline_s:
            await asyncio.sleep(min(self.limits.tick_s, 0.05))
        left = len(self.entry.leases)
        await self.stop()
        return left

    async def stop(self, grace_s: float = 1.0) -> None:
        """Close the server; running calls get ``grace_s``, outcomes under way their time limit."""
        await super().stop(grace_s)
        for task in self._following:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        self._following = []
        for link in self.entry.links.values():
            await link.close()
