"""The child's side of the pipe: take a turn, let the selection answer it, until the parent closes the pipe."""

from __future__ import annotations

import time
from typing import BinaryIO, Protocol

from benchmarks.proof.dynamo_arm.messages import Asked, Chosen, Fault, Notice, Opening, Ready, from_parent, send


class Selection(Protocol):
    """Something that knows a fleet and places requests on it."""

    async def open(self, opening: Opening) -> None:
        """Take the fleet in."""
        ...

    async def take(self, notice: Notice) -> None:
        """Something happened."""
        ...

    async def see(self) -> None:
        """Return when everything taken so far bears on the next choice."""
        ...

    async def place(self, asked: Asked) -> int:
        """Choose a worker for a request and book it there."""
        ...


async def serve(selection: Selection, inward: BinaryIO, outward: BinaryIO) -> None:
    """Answer until the pipe is closed; an error of the selection is told to the parent and ends the child."""
    while (message := from_parent(inward)) is not None:
        try:
            if isinstance(message, Opening):
                await selection.open(message)
                send(outward, Ready())
                continue
            began_s = time.perf_counter()
            for notice in message.notices:
                await selection.take(notice)
            await selection.see()
            seen_s = time.perf_counter()
            worker = await selection.place(message.asked)
            send(outward, Chosen(worker, seen_s - began_s, time.perf_counter() - seen_s))
        except Exception as error:
            # Whatever it is, the parent must hear of it: it waits for an answer.
            send(outward, Fault(f"{type(error).__name__}: {error}"))
            raise
