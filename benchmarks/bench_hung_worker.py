"""One of eight workers hangs: it accepts requests and never answers, and clients give up after two seconds.

Eight fake engines over real HTTP, sixteen closed-loop clients, the real router in process. Two halves of equal
length, the fault in the second; what counts is the second half's throughput over the first's.
"""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import aiohttp

from benchmarks.fakes.engine import FakeEngine
from benchmarks.router_fixture import MODEL, endpoints, fleet
from router.pb.v1 import router_pb2 as pb
from router.serving.live import LiveRouter
from router.serving.live_build import LiveSettings, build_live

Row = dict[str, Any]
WORKERS, CLIENTS, GIVE_UP_S = 8, 16, 2.0
TTFT_S, TPOT_S, TOKENS = 0.03, 0.01, 8


class Clients:
    """Closed-loop clients of one router.

    Args:
        live: The router.
        move: Whether requests that wait at a silent endpoint are moved, where the router allows it.
    """

    def __init__(self, live: LiveRouter, move: bool) -> None:
        self.live, self.move = live, move
        self.done = 0
        self.waiting: dict[int, asyncio.Event] = {}

    async def run(self, session: aiohttp.ClientSession) -> None:
        """One client, until cancelled."""
        number = 0
        while True:
            number += 1
            attempt, avoid, began = 0, list[str](), time.monotonic()
            while attempt < 4:
                asked = pb.RouteRequest(
                    request_id=f"{id(asyncio.current_task())}-{number}",
                    model=MODEL,
                    tenant="t",
                    input_tokens=200,
                    output_budget=TOKENS,
                    attempt=attempt,
                    avoid_endpoints=avoid,
                )
                reply = self.live.route(asked)
                if not reply.HasField("placement"):
                    await asyncio.sleep(0.05)
                    break
                left_s = GIVE_UP_S - (time.monotonic() - began)
                if await self.attempt(session, reply.placement, left_s):
                    break
                attempt, avoid = attempt + 1, [*avoid, reply.placement.endpoint_id]

    async def attempt(self, session: aiohttp.ClientSession, placed: pb.Placement, left_s: float) -> bool:
        """One attempt; ``False`` = it was moved."""
        moved = self.waiting[placed.lease_id] = asyncio.Event()
        call = asyncio.create_task(self.call(session, placed))
        mover = asyncio.create_task(moved.wait())
        try:
            await asyncio.wait({call, mover}, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
            ended = call.done()
        finally:
            del self.waiting[placed.lease_id]
            call.cancel()
            mover.cancel()
            await asyncio.gather(call, mover, return_exceptions=True)
        if ended and not isinstance(call.exception(), aiohttp.ClientError):
            self.done += 1
            self.report(placed, finished=pb.Finished(output_tokens=TOKENS, finish_reason="length"))
        else:
            self.report(placed, cancelled=pb.Cancelled(timed_out=not moved.is_set()))
        return not moved.is_set()

    async def call(self, session: aiohttp.ClientSession, placed: pb.Placement) -> None:
        """Ask the engine and tell of its first token."""
        body = {"prompt": "p", "max_tokens": TOKENS, "stream": True}
        async with session.post(placed.address + "/v1/completions", json=body) as answer:
            first = True
            async for _ in answer.content.iter_any():
                if first:
                    self.report(placed, first_token=pb.FirstToken())
                    first = False

    def report(self, placed: pb.Placement, **event: Any) -> None:
        """Tell the router."""
        self.live.reports.take(pb.ReportEvent(lease_id=placed.lease_id, **event), "", self.live.clock())

    async def watch(self) -> None:
        """Look for silent requests twenty times a second."""
        while True:
            await asyncio.sleep(0.05)
            self.live.health.refresh(self.live.clock())
            for lease in self.live.health.silent_leases() if self.move else []:
                if lease in self.waiting and self.live.health.rescue(lease):
                    self.waiting[lease].set()


async def kept(policy: str, move: bool, half_s: float, fault: bool) -> float:
    """Throughput of the second half over that of the first; without the fault that is the noise."""
    async with AsyncExitStack() as stack:
        engines = [
            await stack.enter_async_context(FakeEngine(ttft_s=TTFT_S, tpot_s=TPOT_S)) for _ in range(WORKERS)
        ]
        places = [replace(e, address=f.address) for e, f in zip(endpoints(WORKERS), engines, strict=True)]
        live = build_live(fleet(), places, LiveSettings(policy=policy, seed=1))
        clients = Clients(live, move)
        session = await stack.enter_async_context(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)))
        tasks = [asyncio.create_task(clients.run(session)) for _ in range(CLIENTS)]
        tasks.append(asyncio.create_task(clients.watch()))
        await asyncio.sleep(1.0)
        counts = [clients.done]
        for hang in (False, fault):
            engines[3].serve_mode = "hang" if hang else "ok"
            await asyncio.sleep(half_s)
            counts.append(clients.done)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return (counts[2] - counts[1]) / (counts[1] - counts[0])


def rows(quick: bool) -> list[Row]:
    """Worst of several runs for each way to run it."""
    runs, half_s = (2, 3.0) if quick else (5, 4.0)
    found = []
    for policy, move, fault in (
        ("tokenpilot", True, False),
        ("tokenpilot", True, True),
        ("tokenpilot", False, True),
    ):
        every = [asyncio.run(kept(policy, move, half_s, fault)) for _ in range(runs)]
        name = ("moved" if move else "sat_out") if fault else "no_fault"
        found.append(
            {
                "id": f"hung_worker.{policy}.{name}.worst",
                "area": "health",
                "value": min(every),
                "unit": "share",
                "reference": "same run before the fault; " + ", ".join(f"{one:.3f}" for one in every),
                "ratio": min(every),
                "target": ">= 0.95 in every run" if fault and move else "-",
                "met": min(every) >= 0.95 if fault and move else None,
                "seeds": runs,
            }
        )
    return found


if __name__ == "__main__":
    for row in rows(quick="--full" not in sys.argv):
        print(row)
