"""Refuses calls beyond a bound at once, with a problem document."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from planner.api.problem import ProblemError, send_problem

HEALTH = ("/livez", "/readyz")
"""Answered however busy the service is: a probe must not take a busy service for a dead one."""


class CallLimit:
    """An ASGI layer that lets so many calls in at a time.

    Args:
        app: The application behind it.
        most: Calls at a time, health pages not counted (1 or more).
    """

    def __init__(self, app: ASGIApp, most: int) -> None:
        self._app, self._most, self._calls = app, most, 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or scope["path"] in HEALTH:
            await self._app(scope, receive, send)
            return
        if self._calls >= self._most:
            detail = f"{self._most} calls are being served, which is the most"
            await send_problem(send, ProblemError(503, "busy", detail, {"Retry-After": "1"}))
            return
        self._calls += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._calls -= 1
