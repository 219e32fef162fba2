"""Cost of scraping: 64 endpoints each 250 ms with pages of about 45 KB, and of reading one such page.

The engines are fakes in another process. What counts is the processor time of the scraping process alone, as a
share of one core over the time it ran.
"""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import time
from typing import Any

import numpy as np
import uvloop
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.bench_decision import request_of, table_of
from benchmarks.fakes.pages import Load, vllm_page
from data.fleet.types import Endpoint
from router.engines.aliases import Reading
from router.engines.registry import page_reader
from router.feeds.endpoint_state import EndpointStates
from router.feeds.metrics_feed import MetricsFeed
from router.feeds.scrape import Scraper, ScrapeSettings, ScrapeTarget
from router.leases import LeaseBook
from router.prefix import EventPrefixIndex
from router.registry import make_policy
from router.types import FleetView

Row = dict[str, Any]
ENDPOINTS = 64
BUCKETS = 28


class Engines:
    """Fake engines in a process of their own."""

    def __enter__(self) -> list[str]:
        command = [sys.executable, "-m", "benchmarks.fakes.engine", f"--count={ENDPOINTS}", f"--buckets={BUCKETS}"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        addresses: list[str] = json.loads(self._process.stdout.readline())
        return addresses

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(10)


async def scrape(addresses: list[str], duration_s: float) -> tuple[float, float, int]:
    """Share of a core, pages a second and failures, after the first second."""
    pages = 0
    table = table_of(len(addresses))
    states = EndpointStates(table, LeaseBook(table), [0] * len(table), lambda _: None, lambda _: None)

    def count(endpoint_id: str, reading: Reading, asked_s: float) -> None:
        nonlocal pages
        states.page(int(endpoint_id[1:]), reading, asked_s)
        pages += not reading.missing

    settings = ScrapeSettings()
    scraper = Scraper(settings, count, lambda *_: None, time.monotonic, np.random.default_rng(0))
    for number, address in enumerate(addresses):
        scraper.add(ScrapeTarget(f"e{number}", address, "vllm"))
    await asyncio.sleep(1.0)
    began, processor, before = time.monotonic(), time.process_time(), pages
    await asyncio.sleep(duration_s)
    took = time.monotonic() - began
    share, rate = (time.process_time() - processor) / took, (pages - before) / took
    failures = sum(sum(counts.failures.values()) for counts in scraper.counts.values())
    await scraper.close()
    return share, rate, failures


async def decision_seconds(addresses: list[str], holes: int, count: int) -> list[float]:
    """Times of decisions while three good engines and some black holes are scraped."""
    table = table_of(3 + holes)
    rows_of = {spec.endpoint_id: row for row, spec in enumerate(table.specs)}
    states = EndpointStates(table, LeaseBook(table), [0] * len(table), lambda _: None, lambda _: None)
    policy = make_policy("least_request", {}, table, 1)
    feed = MetricsFeed(states, rows_of.get, ScrapeSettings(), time.monotonic, np.random.default_rng(0))
    # A listening socket that nobody accepts from: connections stand, and nothing ever comes.
    silent = [socket.create_server(("127.0.0.1", 0)) for _ in range(holes)]
    reached = addresses[:3] + [f"http://127.0.0.1:{one.getsockname()[1]}" for one in silent]
    feed.apply([Endpoint(name, "B", "c", reached[row]) for name, row in rows_of.items()])
    request, index, rtt_s, every = request_of(1, ()), EventPrefixIndex(len(table)), np.zeros(len(table)), []
    for _ in range(count):
        await asyncio.sleep(0.001)
        began = time.perf_counter()
        now_s = time.monotonic()
        left, _ = states.prefer_fresh(np.arange(len(table)), now_s)
        policy.choose(request, left, FleetView(now_s, table, index, rtt_s))
        every.append(time.perf_counter() - began)
    await feed.close()
    for one in silent:
        one.close()
    return every[100:]


def beside_black_hole(addresses: list[str], rounds: int, count: int = 1500) -> float:
    """P99 of a decision with a black hole over that without: over all decisions of rounds that take turns."""
    found: dict[int, list[float]] = {0: [], 1: []}
    for _ in range(rounds):
        for holes, every in found.items():
            every += uvloop.run(decision_seconds(addresses, holes, count))
    return float(np.percentile(found[1], 99) / np.percentile(found[0], 99))


def page_seconds(count: int) -> tuple[float, float]:
    """Median time of one page: ours, and the reference parser's."""
    pages = [vllm_page(Load(running=i, waiting=3 * i, prompt_tokens=7.0 * i), BUCKETS) for i in range(count)]
    reader = page_reader("vllm")
    ours = [_timed(lambda page=page: reader.read(page)) for page in pages]
    theirs = [_timed(lambda page=page: list(text_string_to_metric_families(page.decode()))) for page in pages[:20]]
    return float(np.median(ours)), float(np.median(theirs))


def _timed(call: Any) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def rows(quick: bool) -> list[Row]:
    """All rows; ``quick`` measures for a shorter time."""
    duration_s = 6.0 if quick else 30.0
    with Engines() as addresses:
        share, rate, failures = uvloop.run(scrape(addresses, duration_s))
        ratio = beside_black_hole(addresses, rounds=6 if quick else 20)
    mine, reference = page_seconds(100 if quick else 1000)
    each = share / rate
    return [
        _row(
            "scrape.64_endpoints.core_share", share, "cores", "llm-d: 7.5 cores for 100 pods at 50 ms", None, 0.15
        ),
        _row("scrape.64_endpoints.pages_per_s", rate, "1/s", f"{failures} failures", None, None),
        _row("scrape.page_all_in", each * 1e3, "ms", "-", None, 0.58),
        _row("scrape.decision_p99_beside_black_hole", ratio, "x", "p99 without it", ratio, 1.1),
        _row("scrape.page_read", mine * 1e3, "ms", "prometheus_client's parser", reference / mine, None),
    ]


def _row(id_: str, value: float, unit: str, reference: str, ratio: float | None, most: float | None) -> Row:
    return {
        "id": id_,
        "area": "scrape",
        "value": value,
        "unit": unit,
        "reference": reference,
        "ratio": ratio,
        "target": "-" if most is None else f"<= {most:g} {unit}",
        "met": None if most is None else value <= most,
    }


if __name__ == "__main__":
    for found in rows(quick="--full" not in sys.argv):
        print(found)
