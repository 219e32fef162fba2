"""Refuses bodies that are too large, or take too long to come, before anything reads them whole."""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from planner.api.problem import ProblemError, send_problem


class BodyLimit:
    """An ASGI layer that hands a body on only when it is whole and within the limits.

    Args:
        app: The application behind it.
        most_bytes: Largest body.
        wait_s: Longest time that a body may take to come, seconds.
    """

    def __init__(self, app: ASGIApp, most_bytes: int, wait_s: float) -> None:
        self._app, self._most, self._wait_s = app, most_bytes, wait_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if _declared(scope) > self._most:
            # Said in advance: nothing needs to be read, however slowly it would come.
            await self._refuse(send, 413, "too-large", f"the body is larger than {self._most:,} bytes")
            return
        try:
            async with asyncio.timeout(self._wait_s):
                body = await self._read(receive)
        except TimeoutError:
            await self._refuse(send, 408, "too-slow", f"the body was not there after {self._wait_s:g} s")
            return
        if body is None:
            return
        if len(body) > self._most:
            await self._refuse(send, 413, "too-large", f"the body is larger than {self._most:,} bytes")
            return
        given = False

        async def whole() -> Message:
            nonlocal given
            if given:
                return await receive()
            given = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self._app(scope, whole, send)

    async def _read(self, receive: Receive) -> bytes | None:
        """The body, or so much of it as shows that it is too large; ``None`` = the caller went away."""
        chunks: list[bytes] = []
        size, more = 0, True
        while more and size <= self._most:
            message = await receive()
            if message["type"] != "http.request":
                return None
            chunks.append(message.get("body", b""))
            size += len(chunks[-1])
            more = message.get("more_body", False)
        return b"".join(chunks)

    async def _refuse(self, send: Send, status: int, kind: str, detail: str) -> None:
        # The rest of the body still lies on the connection.
        await send_problem(send, ProblemError(status, kind, detail, {"Connection": "close"}))


def _declared(scope: Scope) -> int:
    """Length that the request declares; 0 = it declares none."""
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value[:20])
    return 0
