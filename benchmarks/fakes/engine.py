"""A fake engine: real HTTP, an OpenAI-like completions API and a metrics page; faults on demand.

In a test: ``async with FakeEngine() as engine: ...``. As a process, ``python -m benchmarks.fakes.engine`` prints
one JSON list of addresses and serves until its standard input closes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Literal

from aiohttp import web

from benchmarks.fakes.pages import PAGES, Load

Mode = Literal["ok", "hang", "error", "slow", "drop", "redirect", "huge"]
"""``hang`` accepts and never answers, ``error`` answers 500, ``slow`` waits ``slow_s`` first, ``drop`` closes the
connection, ``redirect`` answers 302, ``huge`` never stops sending (metrics only)."""


class FakeEngine:
    """One engine on a loopback port.

    Args:
        kind: Which engine's metrics page to serve.
        ttft_s: Time to the first token of every answer.
        tpot_s: Time for each further token.
        buckets: Buckets of the histograms on the metrics page; 28 make a page of about 45 KB.
        port: 0 = any free port.
    """

    def __init__(
        self, kind: str = "vllm", ttft_s: float = 0.0, tpot_s: float = 0.0, buckets: int = 0, port: int = 0
    ) -> None:
        self.kind = kind
        self.ttft_s = ttft_s
        self.tpot_s = tpot_s
        self.buckets = buckets
        self.load = Load()
        self.follow_requests = True
        """Whether running requests and token counters follow what is served."""
        self.metrics_mode: Mode = "ok"
        self.serve_mode: Mode = "ok"
        self.slow_s = 1.0
        self.page: bytes | None = None
        """A page to serve instead of the one made from ``load``."""
        self.scrapes = 0
        self.served = 0
        self.aborted = 0
        self._port = port
        self._held = asyncio.Event()
        app = self.app = web.Application()
        for path in ("/metrics", "/prometheus/metrics"):
            app.router.add_get(path, self._faulty(self._metrics, "metrics_mode"))
        for path in ("/v1/completions", "/v1/chat/completions"):
            app.router.add_post(path, self._faulty(self._complete, "serve_mode"))
        app.router.add_get("/health", self._health)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)

    @property
    def address(self) -> str:
        """``http://127.0.0.1:port``."""
        return f"http://127.0.0.1:{self._port}"

    async def start(self) -> None:
        """Listen."""
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port)
        await site.start()
        self._port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Close the port and every connection."""
        self._held.set()
        await self._runner.cleanup()

    async def __aenter__(self) -> FakeEngine:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def _faulty(
        self, handler: Callable[[web.Request], Awaitable[web.StreamResponse]], mode_name: str
    ) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def handle(request: web.Request) -> web.StreamResponse:
            mode: Mode = getattr(self, mode_name)
            if mode == "hang":
                await self._held.wait()
            if mode == "slow":
                await asyncio.sleep(self.slow_s)
            if mode == "error":
                return web.json_response({"error": {"message": "on demand"}}, status=500)
            if mode == "redirect":
                return web.Response(status=302, headers={"Location": "/elsewhere"})
            if mode == "drop" and request.transport is not None:
                request.transport.abort()
            if mode == "huge":
                return await self._endless(request)
            return await handler(request)

        return handle

    async def _endless(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while not self._held.is_set():
            await response.write(b"# filler\n" * 8192)
        return response

    async def _health(self, _request: web.Request) -> web.Response:
        return web.Response()

    async def _metrics(self, _request: web.Request) -> web.StreamResponse:
        self.scrapes += 1
        body = PAGES[self.kind](self.load, self.buckets) if self.page is None else self.page
        return web.Response(body=body, content_type="text/plain")

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        asked = await request.json()
        tokens = int(asked.get("max_tokens", 8))
        prompt = asked.get("prompt", "")
        if self.follow_requests:
            self.load.running += 1
            self.load.prompt_tokens += len(prompt)
        try:
            response = await self._answer(request, asked, tokens, len(prompt))
        except (asyncio.CancelledError, ConnectionResetError):
            self.aborted += 1
            raise
        finally:
            if self.follow_requests:
                self.load.running -= 1
        self.served += 1
        return response

    async def _answer(
        self, request: web.Request, asked: dict[str, object], tokens: int, prompt_tokens: int
    ) -> web.StreamResponse:
        usage = {"prompt_tokens": prompt_tokens, "completion_tokens": tokens}
        if not asked.get("stream"):
            await asyncio.sleep(self.ttft_s + self.tpot_s * max(tokens - 1, 0))
            self._said(tokens)
            text = {"choices": [{"text": " word" * tokens, "finish_reason": "length"}], "usage": usage}
            return web.json_response(text)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for number in range(tokens):
            await asyncio.sleep(self.tpot_s if number else self.ttft_s)
            self._said(1)
            chunk = {"choices": [{"text": " word", "finish_reason": None if number < tokens - 1 else "length"}]}
            await response.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
        await response.write(b"data: " + json.dumps({"choices": [], "usage": usage}).encode() + b"\n\n")
        await response.write(b"data: [DONE]\n\n")
        return response

    def _said(self, tokens: int) -> None:
        if self.follow_requests:
            self.load.generation_tokens += tokens


async def serve(count: int, kind: str, buckets: int) -> None:
    """Serve ``count`` engines until standard input closes."""
    engines = [FakeEngine(kind, buckets=buckets) for _ in range(count)]
    for engine in engines:
        await engine.start()
    print(json.dumps([engine.address for engine in engines]), flush=True)
    await asyncio.to_thread(sys.stdin.read)
    for engine in engines:
        await engine.stop()


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--kind", default="vllm", choices=sorted(PAGES))
    parser.add_argument("--buckets", type=int, default=28)
    asked = parser.parse_args()
    asyncio.run(serve(asked.count, asked.kind, asked.buckets))


if __name__ == "__main__":
    main()
