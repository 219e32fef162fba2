"""Eight fake engines that also answer what gateways probe, with faults and counters on a control port.

``python -m benchmarks.fakes.gateway_workers COUNT CONTROL_PORT`` prints the engines' addresses as one JSON list
and serves until its standard input closes. On the control port ``GET /set?ttft_s=0.02&hang=2`` sets times and the
faulty worker (``hang=-1`` = none) and zeroes the counters; ``GET /stats`` gives requests taken and most in flight.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Awaitable, Callable

import uvloop
from aiohttp import web

from benchmarks.fakes.engine import FakeEngine

MODEL = "mock-model"
PROBES: dict[str, object] = {
    "/v1/models": {
        "object": "list",
        "data": [{"id": MODEL, "object": "model", "owned_by": "vllm", "root": MODEL, "max_model_len": 32_768}],
    },
    "/get_server_info": {"model_path": MODEL, "served_model_name": MODEL, "tp_size": 1, "dp_size": 1},
    "/server_info": {"model_path": MODEL, "served_model_name": MODEL, "tp_size": 1, "dp_size": 1},
    "/get_model_info": {"model_path": MODEL, "is_generation": True, "model_type": "llama"},
    "/model_info": {"model_path": MODEL, "is_generation": True, "model_type": "llama"},
    "/get_load": [],
    "/get_loads": [],
    "/health_generate": {},
    "/version": {"version": "0.10.0"},
}


class Count:
    """Requests that one worker has taken since the last reset."""

    def __init__(self) -> None:
        self.taken = self.inflight = self.most = 0

    @web.middleware
    async def middleware(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Count requests for answers; what else gateways post is not served by an engine."""
        if request.method != "POST" or not request.path.endswith("/completions"):
            return await handler(request)
        self.taken += 1
        self.inflight += 1
        self.most = max(self.most, self.inflight)
        try:
            return await handler(request)
        finally:
            self.inflight -= 1


def worker() -> tuple[FakeEngine, Count]:
    """One engine with probes and a counter."""
    engine, count = FakeEngine(), Count()
    engine.app.middlewares.append(count.middleware)
    for path, answer in PROBES.items():

        async def probe(_request: web.Request, answer: object = answer) -> web.Response:
            return web.json_response(answer)

        engine.app.router.add_get(path, probe)
    return engine, count


async def serve(number: int, control_port: int) -> None:
    """Serve until standard input closes."""
    workers = [worker() for _ in range(number)]
    for engine, _ in workers:
        await engine.start()

    async def change(request: web.Request) -> web.Response:
        bad = int(request.query.get("hang", -1))
        for position, (engine, count) in enumerate(workers):
            engine.ttft_s = float(request.query.get("ttft_s", 0.0))
            engine.serve_mode = "hang" if position == bad else "ok"
            count.taken = count.most = 0
        return web.json_response({})

    async def stats(_request: web.Request) -> web.Response:
        return web.json_response([{"taken": count.taken, "most": count.most} for _, count in workers])

    app = web.Application()
    app.router.add_get("/set", change)
    app.router.add_get("/stats", stats)
    control = web.AppRunner(app, access_log=None)
    await control.setup()
    await web.TCPSite(control, "127.0.0.1", control_port).start()
    print(json.dumps([engine.address for engine, _ in workers]), flush=True)
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    # Gateways try HTTP/2 first; that is their fault to mend and no news here.
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)
    uvloop.run(serve(int(sys.argv[1]), int(sys.argv[2])))
