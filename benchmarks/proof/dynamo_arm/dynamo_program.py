"""Dynamo's SelectionService behind the pipe; run by an interpreter with ``ai-dynamo-runtime`` 1.6.1 and ``pyzmq``.

Every worker has an event socket of its own on the loopback, on which its events go out in vLLM's MessagePack form,
as an engine would publish them. The service hashes the tokens of a stored block itself, so each trace block gets
tokens made of its 64-bit id: equal ids, equal tokens.

Events travel behind our back. After those of a turn each worker that had some stores a *marker*, a block of a
number never used before. A worker's events are applied in order, so once the service counts the marker as held
there, it has applied all before it.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from importlib import import_module
from typing import Any

from benchmarks.proof.dynamo_arm.messages import (
    Asked,
    Cleared,
    Ended,
    Notice,
    Opening,
    Prefilled,
    Removed,
    Stored,
    Worker,
)
from benchmarks.proof.dynamo_arm.serving import serve

VISIBLE_S = 30.0
POLL_S = 0.0002
TRACE, MARKER = 0, 1
"""Kinds of made-up tokens; ids of trace blocks and numbers of markers never meet."""
Event = list[object]


class Hashes:
    """The service's hashes of trace blocks and markers, computed once each.

    Args:
        block_tokens: Tokens of a block as the service counts (at least 4).
        parts: Such blocks in a trace block.
    """

    def __init__(self, block_tokens: int, parts: int) -> None:
        self.block_tokens, self.parts = block_tokens, parts
        self._compute = import_module("dynamo.llm").compute_block_hash_for_seq
        self._known: dict[int, list[int]] = {}
        self._unshared = 0

    def tokens(self, number: int, kind: int = TRACE, parts: int | None = None) -> list[int]:
        """Made-up tokens of a trace block or marker."""
        rest = [0] * (self.block_tokens - 4)
        made: list[int] = []
        for part in range(self.parts if parts is None else parts):
            made += [number & 0xFFFFFFFF, number >> 32, kind, part, *rest]
        return made

    def of(self, block: int) -> list[int]:
        """Hashes of a trace block's parts, unsigned."""
        found = self._known.get(block)
        if found is None:
            found = self._known[block] = self._compute(self.tokens(block), self.block_tokens)
        return found

    def of_marker(self, number: int) -> int:
        """Hash of a marker, which has one part."""
        return int(self._compute(self.tokens(number, MARKER, 1), self.block_tokens)[0])

    def of_prompt(self, asked: Asked) -> list[int]:
        """Hashes of a prompt's complete blocks, signed as the service wants them."""
        count = asked.input_tokens // self.block_tokens
        if not asked.blocks:
            self._unshared += count
            return [-1 - number for number in range(self._unshared - count, self._unshared)]
        found: list[int] = []
        for block in asked.blocks:
            found += self.of(block)
        return [signed(value) for value in found[:count]]


class DynamoSelection:
    """The service and the sockets of its workers."""

    def __init__(self) -> None:
        self._service: Any = import_module("dynamo.llm").SelectionService()
        self._zmq: Any = import_module("zmq")
        self._pack: Any = import_module("msgspec").msgpack.encode
        self._workers: dict[int, Worker] = {}
        self._sockets: dict[int, Any] = {}
        self._addresses: dict[int, str] = {}
        self._sequence: dict[int, int] = {}
        self._pending: dict[int, list[Event]] = {}
        self._markers: dict[int, int] = {}
        self._marker = 0

    async def open(self, opening: Opening) -> None:
        """Register every worker, and wait until the service hears each of them."""
        self._hashes = Hashes(opening.block_tokens, opening.parts)
        context = self._zmq.Context.instance()
        for worker in opening.workers:
            socket = context.socket(self._zmq.PUB)
            socket.set(self._zmq.SNDHWM, 0)
            port = socket.bind_to_random_port("tcp://127.0.0.1")
            number = worker.worker
            self._workers[number], self._sockets[number] = worker, socket
            self._addresses[number], self._sequence[number] = f"tcp://127.0.0.1:{port}", 0
            await self._register(worker)

    async def take(self, notice: Notice) -> None:
        """Lifecycle calls go out at once, events with the next :meth:`see`."""
        match notice:
            case Stored():
                self._publish_later(notice.worker, self._stored(notice))
            case Removed():
                gone = [value for block in notice.blocks for value in self._hashes.of(block)]
                self._publish_later(notice.worker, ["BlockRemoved", gone])
            case Cleared():
                self._markers.pop(notice.worker, None)
                self._publish_later(notice.worker, ["AllBlocksCleared"])
            case Prefilled():
                await self._service.prefill_complete(notice.request)
            case Ended():
                await self._service.free_reservation(notice.request)

    async def see(self) -> None:
        """Publish what is pending and wait for the markers behind it."""
        if self._pending:
            await self._await_marker(self._mark(list(self._pending)), time.monotonic() + VISIBLE_S)

    async def place(self, asked: Asked) -> int:
        """``select_and_reserve`` among the allowed workers."""
        hashes = self._hashes.of_prompt(asked)
        booked = await self._service.select_and_reserve(
            {
                "selection_id": asked.request,
                "model_name": asked.model,
                "block_hashes": hashes,
                "sequence_hashes": hashes,
                "isl_tokens": asked.input_tokens,
                "allowed_worker_ids": asked.allowed,
            }
        )
        return int(booked["worker_id"])

    async def _register(self, worker: Worker) -> None:
        await self._service.upsert_worker(
            {
                "worker_id": worker.worker,
                "model_name": worker.model,
                # Nobody listens there: only the events of a worker are real.
                "endpoint": f"http://127.0.0.1:{10_000 + worker.worker}",
                "block_size": self._hashes.block_tokens,
                "data_parallel_start_rank": 0,
                "data_parallel_size": 1,
                "kv_events_endpoints": {0: self._addresses[worker.worker]},
                "total_kv_blocks": worker.kv_tokens // self._hashes.block_tokens,
                "max_num_batched_tokens": worker.batch_tokens,
            }
        )
        until_s = time.monotonic() + VISIBLE_S
        # A subscription takes a moment; what is sent before it is lost, so the marker is sent until it shows.
        while not await self._holds([worker.worker], self._mark([worker.worker])):
            _check(until_s)
            await asyncio.sleep(0.01)

    def _stored(self, notice: Stored) -> Event:
        hashes = [value for block in notice.blocks for value in self._hashes.of(block)]
        tokens = [token for block in notice.blocks for token in self._hashes.tokens(block)]
        parent = None if notice.parent is None else self._hashes.of(notice.parent)[-1]
        return ["BlockStored", hashes, parent, tokens, self._hashes.block_tokens, None]

    def _publish_later(self, worker: int, event: Event) -> None:
        self._pending.setdefault(worker, []).append(event)

    def _mark(self, workers: list[int]) -> int:
        """Publish what is pending of some workers, and a new marker behind it; gives the marker's hash."""
        self._marker += 1
        hashed = self._hashes.of_marker(self._marker)
        tokens = self._hashes.tokens(self._marker, MARKER, 1)
        stored: Event = ["BlockStored", [hashed], None, tokens, self._hashes.block_tokens, None]
        for worker in workers:
            events = self._pending.pop(worker, [])
            if worker in self._markers:
                events.append(["BlockRemoved", [self._markers[worker]]])
            body = self._pack([time.time(), [*events, stored], 0])
            self._sockets[worker].send_multipart([b"", self._sequence[worker].to_bytes(8, "big"), body])
            self._sequence[worker] += 1
            self._markers[worker] = hashed
        return hashed

    async def _await_marker(self, marker: int, until_s: float) -> None:
        waiting = [worker for worker, held in self._markers.items() if held == marker]
        while not await self._holds(waiting, marker):
            _check(until_s)
            # The threads that apply the events want the processor more than we do.
            await asyncio.sleep(POLL_S)

    async def _holds(self, workers: list[int], marker: int) -> bool:
        """Whether the service counts the marker as held by all of them."""
        held: set[int] = set()
        for model in {self._workers[worker].model for worker in workers}:
            hashes = [signed(marker)]
            asked = {"model_name": model, "block_hashes": hashes, "sequence_hashes": hashes}
            found = await self._service.overlap_scores({**asked, "isl_tokens": self._hashes.block_tokens})
            held |= {each["worker_id"] for each in found["workers"] if each["device_blocks"]}
        return held.issuperset(workers)


def signed(value: int) -> int:
    """An unsigned 64-bit number as a signed one."""
    return value - (1 << 64) if value >> 63 else value


def _check(until_s: float) -> None:
    if time.monotonic() > until_s:
        raise TimeoutError(f"events were not applied within {VISIBLE_S:g} s")


def main() -> None:
    """Serve on standard input and output; whatever else prints there goes to standard error."""
    outward = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    asyncio.run(serve(DynamoSelection(), sys.stdin.buffer, outward))


if __name__ == "__main__":
    main()
