"""A stand-in for Dynamo's selection service behind the same pipe: its rule in plain Python, strict about its feed.

``python -m benchmarks.fakes.dynamo_selection SCALE``. An event or a lifecycle call that would make no sense to the
real service is an error here: a block stored after one that is not held, a block removed before one that stands on
it, a request that ends without having been booked.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from dataclasses import dataclass, field

from benchmarks.proof.dynamo_arm.messages import (
    Asked,
    Cleared,
    Ended,
    Notice,
    Opening,
    Prefilled,
    Removed,
    Stored,
)
from benchmarks.proof.dynamo_arm.serving import serve

Part = tuple[int, int]


@dataclass
class Engine:
    """What is known of one worker: blocks with the one before each, and what is booked there."""

    held: dict[int, int | None] = field(default_factory=dict)
    prefill_tokens: dict[str, int] = field(default_factory=dict)
    booked: dict[str, list[Part]] = field(default_factory=dict)

    def stored(self, blocks: list[int], parent: int | None) -> None:
        """A run of blocks."""
        for block in blocks:
            if parent is not None and parent not in self.held:
                raise ValueError(f"block {block} stored after {parent}, which is not held")
            self.held[block] = parent
            parent = block

    def removed(self, blocks: list[int]) -> None:
        """Evicted blocks, leaves first."""
        for block in blocks:
            if block not in self.held or block in self.held.values():
                raise ValueError(f"block {block} removed, not held or not a leaf")
            del self.held[block]

    def overlap(self, asked: Asked) -> int:
        """Leading blocks of the trace that are held."""
        held = 0
        while held < len(asked.blocks) and asked.blocks[held] in self.held:
            held += 1
        return held

    def decode_blocks(self, parts: list[Part]) -> int:
        """Blocks in use if a request were booked here; what it shares counts from its start alone."""
        used = Counter(part for each in self.booked.values() for part in each)
        shared = 0
        while shared < len(parts) and parts[shared] in used:
            shared += 1
        return len(used) + len(parts) - shared


class StandIn:
    """``scale · max(0, prefill − overlap) + decode`` in blocks; the first of equal workers."""

    def __init__(self, scale: float) -> None:
        self._scale = scale
        self._engines: dict[int, Engine] = {}
        self._unshared = 0

    async def open(self, opening: Opening) -> None:
        """Take the fleet in."""
        self._opening = opening
        self._engines = {worker.worker: Engine() for worker in opening.workers}

    async def take(self, notice: Notice) -> None:
        """Something happened."""
        match notice:
            case Stored():
                self._engines[notice.worker].stored(notice.blocks, notice.parent)
            case Removed():
                self._engines[notice.worker].removed(notice.blocks)
            case Cleared():
                self._engines[notice.worker].held.clear()
            case Prefilled():
                del self._home(notice.request).prefill_tokens[notice.request]
            case Ended():
                engine = self._home(notice.request)
                del engine.booked[notice.request]
                engine.prefill_tokens.pop(notice.request, None)

    async def see(self) -> None:
        """Everything is seen at once."""

    async def place(self, asked: Asked) -> int:
        """Book the request where it costs least."""
        parts = self._parts(asked)
        worker = min(asked.allowed, key=lambda row: self._cost(self._engines[row], asked, parts))
        engine = self._engines[worker]
        cached = engine.overlap(asked) * self._opening.parts * self._opening.block_tokens
        engine.prefill_tokens[asked.request] = max(asked.input_tokens - cached, 0)
        engine.booked[asked.request] = parts
        return worker

    def _cost(self, engine: Engine, asked: Asked, parts: list[Part]) -> float:
        tokens = sum(engine.prefill_tokens.values()) + asked.input_tokens
        blocks = tokens / self._opening.block_tokens - engine.overlap(asked) * self._opening.parts
        return self._scale * max(blocks, 0.0) + engine.decode_blocks(parts)

    def _parts(self, asked: Asked) -> list[Part]:
        count = asked.input_tokens // self._opening.block_tokens
        if asked.blocks:
            return [(block, part) for block in asked.blocks for part in range(self._opening.parts)][:count]
        self._unshared += 1
        return [(-self._unshared, part) for part in range(count)]

    def _home(self, request: str) -> Engine:
        for engine in self._engines.values():
            if request in engine.booked:
                return engine
        raise ValueError(f"{request} is not booked")


if __name__ == "__main__":
    asyncio.run(serve(StandIn(float(sys.argv[1])), sys.stdin.buffer, sys.stdout.buffer))
