"""A router in this event loop beside fake engines with real HTTP and ZMQ, for tests."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import yaml

from benchmarks.fakes.engine import FakeEngine
from benchmarks.fakes.kv_publisher import KvPublisher
from data.fleet.reference import reference_path
from router.feeds.scrape import ScrapeSettings
from router.pb.v1 import router_pb2 as pb
from router.pb.v1 import router_pb2_grpc as rpc
from router.serving.server_settings import ListenSettings, ServerLimits
from router.serving.service import RouterService
from router.serving.service_settings import Knobs, ServiceSettings

TOKENS = list(range(100, 100 + 16 * 20))


@dataclass
class Running:
    """A service in this event loop, and how to ask it."""

    service: RouterService
    stub: Any
    page: str

    async def get(self, path: str) -> str:
        """A page of its HTTP server."""

        def fetch() -> str:
            with urllib.request.urlopen(f"{self.page}{path}", timeout=10) as answer:
                text: str = answer.read().decode()
            return text

        return await asyncio.to_thread(fetch)

    async def status(self) -> Any:
        """Its status."""
        return json.loads(await self.get("/status"))


def quick_knobs(**given: Any) -> Knobs:
    """Settings under which everything happens soon."""
    values: dict[str, Any] = {
        "scrape": ScrapeSettings(period_s=0.03),
        "server": ServerLimits(drain_s=0.1, tick_s=0.02),
    }
    return Knobs(**{**values, **given})


@asynccontextmanager
async def running(settings: ServiceSettings) -> AsyncIterator[Running]:
    """Run a router on free ports until the block ends."""
    told: asyncio.Future[tuple[str, str | None]] = asyncio.get_running_loop().create_future()
    listen = replace(settings, listen=ListenSettings("127.0.0.1:0"), metrics_listen="127.0.0.1:0", follow_s=0.05)
    service = RouterService(listen, lambda address, page: told.set_result((address, page)))
    task = asyncio.create_task(service.run())
    try:
        done, _ = await asyncio.wait([task, told], return_when=asyncio.FIRST_COMPLETED)
        if task in done:
            await task
        address, page = await told
        async with grpc.aio.insecure_channel(address) as channel:
            yield Running(service, rpc.RouterStub(channel), str(page).removesuffix("/metrics"))
    finally:
        service.stop()
        with suppress(asyncio.CancelledError):
            await task


async def until(true: Callable[[], bool], seconds: float = 20.0) -> None:
    """Wait for something; ``TimeoutError`` if it does not happen."""
    async with asyncio.timeout(seconds):
        while not true():
            await asyncio.sleep(0.01)


@dataclass
class Site:
    """Files of a router, and engines behind them."""

    folder: Path
    engines: list[FakeEngine]
    publisher: KvPublisher
    document: dict[str, Any] = field(default_factory=dict)

    @property
    def fleet(self) -> Path:
        """The fleet file, written anew."""
        path = self.folder / "fleet.yaml"
        path.write_text(yaml.safe_dump(self.document))
        return path

    def endpoints(self, *numbers: int) -> list[dict[str, str]]:
        """Rows of the fleet file's list; number 0 publishes events."""
        rows = []
        for number in numbers:
            row = {"id": f"e{number}", "site": "main", "config": "assistant-h100"}
            row["address"] = self.engines[number].address
            if number == 0:
                row |= {"kv_events": self.publisher.events, "kv_replay": self.publisher.replay}
            rows.append(row)
        return rows


@asynccontextmanager
async def router_site(folder: Path) -> AsyncIterator[Site]:
    """Three engines and the files of a router."""
    async with AsyncExitStack() as stack:
        engines = [await stack.enter_async_context(FakeEngine()) for _ in range(3)]
        publisher = await stack.enter_async_context(KvPublisher(folder, "e0"))
        site = Site(folder, engines, publisher, yaml.safe_load(reference_path("one-pool").read_text()))
        site.document["endpoints"] = site.endpoints(0, 1)
        yield site


def question(**given: Any) -> pb.RouteRequest:
    """A request of 320 tokens, unless a length or hashes are given."""
    values: dict[str, Any] = {"model": "assistant@v1", "tenant": "default", "output_budget": 50}
    if "block_hashes" not in given and "input_tokens" not in given:
        values["token_ids"] = np.array(TOKENS, dtype=np.uint32).tobytes()
    return pb.RouteRequest(**{**values, **given})


async def tell_of(router: Running, publisher: KvPublisher, salt: str) -> None:
    """Publish that prompt until the router has heard of it: a subscription takes a moment."""
    index = router.service.live.index
    async with asyncio.timeout(20):
        while index.resident(0) < 20:
            await publisher.stored(range(1, 21), TOKENS, 16, salt)
            await asyncio.sleep(0.02)
