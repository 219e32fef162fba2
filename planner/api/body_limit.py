"""Refuses bodies that are too large before anything reads them whole."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from planner.api.problem import MEDIA_TYPE, ProblemError, problem_body


class BodyLimit:
    """An ASGI layer that hands a body on only when it is whole and within the limit.

    Args:
        app: The application behind it.
        most_bytes: Largest body.
    """

    def __init__(self, app: ASGIApp, most_bytes: int) -> None:
        self._app, self._most = app, most_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        chunks: list[bytes] = []
        size, more = 0, True
        while more:
            message = await receive()
            if message["type"] != "http.request":
                return
            chunks.append(message.get("body", b""))
            size += len(chunks[-1])
            more = message.get("more_body", False)
            if size > self._most:
                await _refuse(send, self._most)
                return
        given = False

        async def whole() -> Message:
            nonlocal given
            if given:
                return await receive()
            given = True
            return {"type": "http.request", "body": b"".join(chunks), "more_body": False}

        await self._app(scope, whole, send)


async def _refuse(send: Send, most: int) -> None:
    body = problem_body(ProblemError(413, "too-large", f"the body is larger than {most:,} bytes"))
    headers = [(b"content-type", MEDIA_TYPE.encode()), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 413, "headers": [*headers, (b"connection", b"close")]})
    await send({"type": "http.response.body", "body": body})
