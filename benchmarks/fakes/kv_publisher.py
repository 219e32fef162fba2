"""A fake engine's KV events: real ZMQ, numbered messages, and a buffer that can be asked for again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
import zmq
import zmq.asyncio

END = (2**64 - 1).to_bytes(8, "big")


class KvPublisher:
    """Publishes as vLLM does. ``async with`` it on the event loop.

    Args:
        folder: Where its sockets are.
        name: Of the engine.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.events = f"ipc://{folder}/{name}-events"
        self.replay = f"ipc://{folder}/{name}-replay"
        self.sequence = 0
        self._buffer: list[tuple[bytes, bytes]] = []

    async def __aenter__(self) -> KvPublisher:
        self._context = zmq.asyncio.Context()
        self._pub = self._context.socket(zmq.PUB)
        self._pub.bind(self.events)
        self._router = self._context.socket(zmq.ROUTER)
        self._router.bind(self.replay)
        self._task = asyncio.get_running_loop().create_task(self._answer())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        self._pub.close(0)
        self._router.close(0)
        self._context.term()

    def publish_at(self, address: str) -> None:
        """Publish at another address too."""
        self._pub.bind(address)

    async def stored(
        self, hashes: Sequence[int], tokens: Sequence[int], block_tokens: int, salt: str = ""
    ) -> None:
        """Tell of blocks that became resident from the start of a prompt on."""
        event = {
            "type": "BlockStored",
            "block_hashes": list(hashes),
            "parent_block_hash": None,
            "token_ids": list(tokens),
            "block_size": block_tokens,
            "medium": "GPU",
            "extra_keys": [[salt] if salt else None, *[None] * (len(hashes) - 1)],
        }
        await self._publish(event)

    async def cleared(self) -> None:
        """Tell that the cache is empty."""
        await self._publish({"type": "AllBlocksCleared"})

    async def _publish(self, event: dict[str, object]) -> None:
        number = self.sequence.to_bytes(8, "big")
        payload = msgspec.msgpack.encode([time.time(), [event], 0])
        self._buffer.append((number, payload))
        self.sequence += 1
        await self._pub.send_multipart([b"", number, payload])

    async def _answer(self) -> None:
        while True:
            who, _, start = await self._router.recv_multipart()
            for number, payload in self._buffer[int.from_bytes(start, "big") :]:
                await self._router.send_multipart([who, b"", number, payload])
            await self._router.send_multipart([who, b"", END, b""])
