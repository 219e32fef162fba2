"""Closed-loop clients: each sends its next request when the last one has ended or timed out.

``python -m benchmarks.closed_loop http|router|moving TARGET CLIENTS SECONDS SHARED_TOKENS`` prints one JSON line.
``http`` posts to a gateway; ``router`` asks the TokenFleet router, posts to the engine it names, reports the end;
``moving`` does the same, but asks for another engine after half a second without an answer.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import uuid4

import aiohttp
import numpy as np
import uvloop

from router.client import AsyncRouterClient, Query, RefusedError

PATIENCE_S = 2.0
MOVE_S = 0.5
TAIL_TOKENS = 64
MAX_TOKENS = 8
MODEL = "mock-model"


@dataclass(slots=True)
class Tally:
    """What became of the requests."""

    ok: int = 0
    timed_out: int = 0
    failed: int = 0
    times_s: list[float] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Plain values; times in ms."""
        times = np.array(self.times_s or [float("nan")]) * 1e3
        return {
            "ok": self.ok,
            "timed_out": self.timed_out,
            "failed": self.failed,
            "p50_ms": round(float(np.percentile(times, 50)), 1),
            "p99_ms": round(float(np.percentile(times, 99)), 1),
        }


class Prompts:
    """Prompts that begin with one shared part and end with a part of their own."""

    def __init__(self, shared_tokens: int, seed: int = 1) -> None:
        self._rng = np.random.default_rng(seed)
        self._shared = self._rng.integers(0, 50_000, shared_tokens)

    def next(self) -> list[int]:
        """Token ids of the next prompt."""
        return [*self._shared.tolist(), *self._rng.integers(0, 50_000, TAIL_TOKENS).tolist()]


async def post(session: aiohttp.ClientSession, address: str, prompt: list[int]) -> int:
    """Send to an engine or gateway; gives the HTTP status."""
    words = " ".join(f"t{token}" for token in prompt)
    body = {"model": MODEL, "max_tokens": MAX_TOKENS, "messages": [{"role": "user", "content": words}]}
    async with session.post(f"{address}/v1/chat/completions", json=body) as answer:
        await answer.read()
        return answer.status


async def through_gateway(session: aiohttp.ClientSession, target: str, prompt: list[int]) -> bool:
    """One request through a gateway."""
    return await post(session, target, prompt) == 200


async def through_router(session: aiohttp.ClientSession, router: AsyncRouterClient, prompt: list[int]) -> bool:
    """One request: ask, send, report."""
    query = Query(f"{MODEL}@1", token_ids=prompt, output_budget=MAX_TOKENS)
    async with router.route(query) as attempt:
        status = await post(session, attempt.placement.address, prompt)
        if status == 200:
            attempt.finish(MAX_TOKENS)
        else:
            attempt.fail(status)
        return status == 200


async def through_router_moving(
    session: aiohttp.ClientSession, router: AsyncRouterClient, prompt: list[int]
) -> bool:
    """The same; what has no answer after ``MOVE_S`` is given up and sent elsewhere, once."""
    name = uuid4().hex
    query = Query(f"{MODEL}@1", token_ids=prompt, output_budget=MAX_TOKENS, request_id=name)
    async with router.route(query) as attempt:
        first = attempt.placement
        try:
            async with asyncio.timeout(MOVE_S):
                status = await post(session, first.address, prompt)
        except TimeoutError:
            attempt.cancel(timed_out=True)
        else:
            attempt.finish(MAX_TOKENS) if status == 200 else attempt.fail(status)
            return status == 200
    again = replace(query, attempt=1, avoid_endpoints=(first.endpoint_id,))
    async with router.route(again) as attempt, asyncio.timeout(PATIENCE_S - MOVE_S):
        status = await post(session, attempt.placement.address, prompt)
        attempt.finish(MAX_TOKENS) if status == 200 else attempt.fail(status)
        return status == 200


async def run(kind: str, target: str, clients: int, seconds: float, shared_tokens: int) -> Tally:
    """Keep ``clients`` requests going for ``seconds``."""
    tally, prompts = Tally(), Prompts(shared_tokens)
    timeout = aiohttp.ClientTimeout(total=PATIENCE_S)
    router = AsyncRouterClient(target) if kind != "http" else None
    through = through_router_moving if kind == "moving" else through_router
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as session:
        end = time.perf_counter() + seconds

        async def client() -> None:
            while (start := time.perf_counter()) < end:
                prompt = prompts.next()
                try:
                    if router is None:
                        good = await through_gateway(session, target, prompt)
                    else:
                        good = await through(session, router, prompt)
                except TimeoutError:
                    tally.timed_out += 1
                    continue
                except (aiohttp.ClientError, RefusedError):
                    good = False
                if good:
                    tally.ok += 1
                    tally.times_s.append(time.perf_counter() - start)
                else:
                    tally.failed += 1
                    await asyncio.sleep(0.01)

        await asyncio.gather(*(client() for _ in range(clients)))
    if router is not None:
        await router.close()
    return tally


if __name__ == "__main__":
    made_by, where, number, length_s, shared = sys.argv[1:]
    made = uvloop.run(run(made_by, where, int(number), float(length_s), int(shared)))
    print(json.dumps(made.as_dict()))
