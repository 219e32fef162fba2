"""Answers to the requests of one stream, many at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

from router.pb.v1 import router_pb2 as pb

AnswerT = TypeVar("AnswerT")


async def in_parallel(
    requests: AsyncIterator[pb.RouteRequest],
    answer: Callable[[pb.RouteRequest], Awaitable[AnswerT]],
    window: int,
) -> AsyncIterator[AnswerT]:
    """Answers as they come, with at most ``window`` requests under way; a full window stops the reading."""
    done: asyncio.Queue[AnswerT | BaseException | None] = asyncio.Queue()
    room = asyncio.Semaphore(window)

    async def one(request: pb.RouteRequest) -> None:
        try:
            done.put_nowait(await answer(request))
        except Exception as error:
            done.put_nowait(error)

    async def read() -> None:
        try:
            async with asyncio.TaskGroup() as group:
                async for request in requests:
                    await room.acquire()
                    group.create_task(one(request))
        finally:
            done.put_nowait(None)

    reader = asyncio.create_task(read())
    try:
        while (result := await done.get()) is not None:
            room.release()
            if isinstance(result, BaseException):
                raise result
            yield result
        await reader
    finally:
        reader.cancel()
