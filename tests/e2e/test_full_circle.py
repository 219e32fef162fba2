"""The full circle with real processes: route, report, log, train, promote, served by the running router (F150)."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest
import yaml
from aiohttp import web

from benchmarks.fakes.engine import FakeEngine
from benchmarks.serve_process import MAIN, ROOT, ServeProcess
from data.fleet.reference import reference_path
from router.client import AsyncRouterClient, ClientSettings, Query

REQUESTS = 1300
CALLERS = 12
OUTPUT_TOKENS = 4
CANARY = 3141592653
"""A token id that stands in every prompt and must stand nowhere else."""


class TimedEngine(FakeEngine):
    """Takes longer for a longer prompt: a law that the prior of the catalog does not know."""

    async def _answer(
        self, request: web.Request, asked: dict[str, object], tokens: int, prompt_tokens: int
    ) -> web.StreamResponse:
        await asyncio.sleep(0.04 + 6e-6 * prompt_tokens)
        return await super()._answer(request, asked, tokens, prompt_tokens)


async def send(http: aiohttp.ClientSession, client: AsyncRouterClient, prompt: list[int]) -> str:
    """One request as a proxy would send it; gives the version of the model that placed it."""
    async with client.route(Query("assistant@v1", token_ids=prompt, output_budget=64)) as attempt:
        placed = attempt.placement
        body = {"prompt": prompt, "max_tokens": OUTPUT_TOKENS, "stream": True, "cache_salt": placed.cache_salt}
        async with http.post(f"{placed.address}/v1/completions", json=body) as answer:
            tokens = 0
            async for line in answer.content:
                if b" word" in line:
                    attempt.first_token()
                    tokens += 1
            attempt.finish(tokens, finish_reason="length")
        return str(placed.model_version)


async def drive(address: str, rng: np.random.Generator) -> set[str]:
    """All requests, a few callers at a time; gives the model versions that placed them."""
    lengths = rng.integers(50, 3000, REQUESTS).tolist()
    prompts = iter([[*rng.integers(1, 30_000, length).tolist(), CANARY] for length in lengths])
    seen: set[str] = set()
    async with aiohttp.ClientSession() as http, AsyncRouterClient(address, ClientSettings(30.0)) as client:

        async def caller() -> None:
            for prompt in prompts:
                seen.add(await send(http, client, prompt))

        async with asyncio.TaskGroup() as group:
            for _ in range(CALLERS):
                group.create_task(caller())
    return seen


def fleet_of(engines: list[TimedEngine]) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(reference_path("one-pool").read_text())
    document["endpoints"] = [
        {"id": f"e{i}", "site": "main", "config": "assistant-h100", "address": engine.address}
        for i, engine in enumerate(engines)
    ]
    document["tenants"] = []
    return document


def train(*arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-c", MAIN, "train", *arguments, "--priority", "normal", "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    values: dict[str, Any] = json.loads(done.stdout)
    return values


async def logged(log: Path) -> None:
    """Wait until every outcome stands in the log's files."""
    from data.log.reader import LogReader

    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        rows = LogReader(log).window(0.0, 1e12) if log.exists() else []
        if len(rows) == REQUESTS and rows.column("status").null_count == 0:
            return
        await asyncio.sleep(0.2)
    raise AssertionError("the log is not complete")


@pytest.mark.slow
@pytest.mark.asyncio
async def test_what_was_routed_trains_the_model_that_the_same_router_serves_next(tmp_path: Path) -> None:
    log, store, fleet, settings = (tmp_path / name for name in ("log", "models", "fleet.yaml", "router.yaml"))
    settings.write_text("log: {rotate_s: 0.5}\n")
    store.mkdir()
    async with AsyncExitStack() as stack:
        engines = [await stack.enter_async_context(TimedEngine(tpot_s=0.003)) for _ in range(2)]
        fleet.write_text(yaml.safe_dump(fleet_of(engines)))
        files = ("--fleet", fleet, "--log", log, "--models", store, "--settings", settings)
        router = ServeProcess(*map(str, files))
        with router:
            seen = await drive(router.address, np.random.default_rng(5))
            assert seen == {"prior"}
            await logged(log)
            trained = await asyncio.to_thread(
                train, "--log", str(log), "--store", str(store), "--fleet", str(fleet)
            )
            assert trained["promoted"], trained["reasons"]
            async with aiohttp.ClientSession() as http, AsyncRouterClient(router.address) as client:
                deadline = time.monotonic() + 20
                while await send(http, client, [1, 2, 3] * 300) != trained["version"]:
                    assert time.monotonic() < deadline, "the running router never took the new model"
        assert router.code == 0, router.errors
        assert all(engine.served > REQUESTS // 5 for engine in engines)
        assert "Traceback" not in router.errors
        written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
        for canary in (str(CANARY).encode(), CANARY.to_bytes(4, "little")):
            assert canary not in written + router.errors.encode()
