"""Scraping over real HTTP on loopback: faults of one engine stay its own."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import numpy as np
import pytest

from benchmarks.bench_decision import request_of, table_of
from benchmarks.fakes.engine import FakeEngine, Mode
from benchmarks.fakes.pages import PAGES
from data.errors import SettingError
from data.fleet.addresses import parse_http_address
from data.fleet.types import Endpoint
from router.engines.aliases import RUNNING, Reading
from router.feeds.endpoint_state import EndpointStates, ReportState, StateSettings
from router.feeds.metrics_feed import MetricsFeed
from router.feeds.page_fetcher import PageFetcher, ScrapeError
from router.feeds.scrape import Scraper, ScrapeSettings, ScrapeTarget
from router.leases import LeaseBook
from router.prefix import EventPrefixIndex
from router.registry import make_policy
from router.types import FleetView

FAST = ScrapeSettings(period_s=0.02, deadline_s=0.15, stale_after_s=0.2, max_page_bytes=100_000)


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 20))


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Seen:
    """What a scraper told."""

    def __init__(self) -> None:
        self.pages: dict[str, list[tuple[Reading, float]]] = {}
        self.failures: dict[str, list[str]] = {}

    def page(self, name: str, reading: Reading, asked_s: float) -> None:
        self.pages.setdefault(name, []).append((reading, asked_s))

    def failed(self, name: str, reason: str) -> None:
        self.failures.setdefault(name, []).append(reason)

    def scraper(self, settings: ScrapeSettings = FAST) -> Scraper:
        return Scraper(settings, self.page, self.failed, time.monotonic, np.random.default_rng(1))


@pytest.mark.parametrize("kind", list(PAGES))
def test_every_kind_of_engine_is_scraped_at_its_usual_path(kind: str) -> None:
    async def scenario() -> None:
        seen = Seen()
        scraper = seen.scraper()
        async with FakeEngine(kind, buckets=4) as engine:
            engine.load.running = 17
            before_s = time.monotonic()
            scraper.add(ScrapeTarget("e", engine.address, kind))
            assert scraper.never_scraped() == ["e"]
            await until(lambda: len(seen.pages.get("e", [])) >= 3)
            assert scraper.never_scraped() == []
            await scraper.close()
        reading, asked_s = seen.pages["e"][0]
        assert reading.get(RUNNING) == 17
        assert before_s <= asked_s <= time.monotonic()

    run(scenario)


@pytest.mark.parametrize(
    ("mode", "reason"),
    [
        ("error", "status"),
        ("redirect", "redirect"),
        ("huge", "too_large"),
        ("hang", "timeout"),
        ("drop", "connect"),
    ],
)
def test_faults_are_counted_by_reason_and_scraping_goes_on(mode: Mode, reason: str) -> None:
    async def scenario() -> None:
        seen = Seen()
        scraper = seen.scraper()
        async with FakeEngine() as engine:
            engine.metrics_mode = mode
            scraper.add(ScrapeTarget("e", engine.address, "vllm"))
            await until(lambda: len(seen.failures.get("e", [])) >= 2)
            assert scraper.counts["e"].failures[reason] >= 2
            engine.metrics_mode = "ok"
            await until(lambda: "e" in seen.pages)
            await scraper.close()
        assert set(seen.failures["e"]) <= {reason, "connect"}

    run(scenario)


def test_a_closed_port_is_counted_in_full_logged_seldom_and_listed(caplog: pytest.LogCaptureFixture) -> None:
    """F003: a target that never answers shows as never scraped."""

    async def scenario() -> None:
        seen = Seen()
        scraper = seen.scraper(ScrapeSettings(period_s=0.01, deadline_s=0.5, stale_after_s=0.2, jitter=0.0))
        scraper.add(ScrapeTarget("gone", f"http://127.0.0.1:{closed_port()}", "vllm"))
        await until(lambda: len(seen.failures.get("gone", [])) >= 150)
        counts = scraper.counts["gone"]
        assert sum(counts.failures.values()) == len(seen.failures["gone"])
        assert counts.never_scraped
        assert scraper.never_scraped() == ["gone"]
        assert 1 <= counts.log_lines <= 8
        await scraper.close()

    with caplog.at_level(logging.INFO, logger="tokenfleet.scrape"):
        run(scenario)
    assert len(caplog.records) <= 8


@pytest.mark.parametrize(
    "address", ["10.0.0.1:8000", "http://h", "http://h:0", "http://h:70000", "ftp://h:1", "http://h:80/m"]
)
def test_a_target_without_host_and_port_is_refused_before_the_first_scrape(address: str) -> None:
    """F003: nothing falls back to port 80."""

    async def scenario() -> None:
        with pytest.raises(SettingError, match="host:port"):
            Seen().scraper().add(ScrapeTarget("e", address, "vllm"))

    run(scenario)
    with pytest.raises(ValueError, match="host:port"):
        parse_http_address(address)


def test_silent_engines_delay_no_other_and_no_decision() -> None:
    """F007: while five black holes keep their first scrape waiting, three stay fresh and are chosen."""

    async def scenario() -> None:
        table = table_of(8)
        rows = {spec.endpoint_id: row for row, spec in enumerate(table.specs)}
        states = EndpointStates(table, LeaseBook(table), [0] * 8, lambda _: None, lambda _: None)
        policy = make_policy("least_request", {}, table, 1)
        settings = ScrapeSettings(period_s=0.03, deadline_s=15.0, stale_after_s=5.0)
        feed = MetricsFeed(states, rows.get, settings, time.monotonic, np.random.default_rng(0))
        async with AsyncExitStack() as stack:
            engines = [await stack.enter_async_context(FakeEngine()) for _ in rows]
            for engine in engines[3:]:
                engine.metrics_mode = "hang"
            feed.apply([Endpoint(name, "B", "c", engines[row].address) for name, row in rows.items()])
            await until(lambda: all(engine.scrapes >= 8 for engine in engines[:3]))
            assert not feed.failures
            now_s = time.monotonic()
            left, degraded = states.prefer_fresh(np.arange(8), now_s)
            view = FleetView(now_s, table, EventPrefixIndex(8), np.zeros(8))
            assert (left.tolist(), degraded) == ([0, 1, 2], False)
            assert policy.choose(request_of(1, ()), left, view) < 3
            assert [states.state(row, now_s) for row in range(3, 8)] == [ReportState.NEVER_SEEN] * 5
            await feed.close()

    run(scenario)


def test_the_feed_follows_the_list_of_engines() -> None:
    """F021: an engine that left is not scraped any more; one that moved is scraped at its new address."""

    async def scenario() -> None:
        table = table_of(2)
        states = EndpointStates(table, LeaseBook(table), [0, 0], lambda _: None, lambda _: None)
        rows = {"a": 0, "b": 1}
        feed = MetricsFeed(states, rows.get, FAST, time.monotonic, np.random.default_rng(0))
        async with FakeEngine() as first, FakeEngine() as second, FakeEngine() as third:
            feed.apply([Endpoint("a", "B", "c", first.address), Endpoint("b", "B", "c", second.address)])
            await until(lambda: first.scrapes > 2 and second.scrapes > 2)
            feed.apply([Endpoint("b", "B", "c", third.address)])
            await asyncio.sleep(0.05)
            stopped = first.scrapes, second.scrapes
            await until(lambda: third.scrapes > 3)
            assert (first.scrapes, second.scrapes) == stopped
            await feed.close()
            assert feed.scraper.counts == {}

    run(scenario)


def test_a_connection_is_kept_and_opened_again_when_the_server_dropped_it() -> None:
    async def scenario() -> None:
        async with FakeEngine() as engine:
            fetcher = PageFetcher(parse_http_address(engine.address), "/metrics", 100_000)
            pages = [await fetcher.get(1.0) for _ in range(3)]
            assert len(set(pages)) == 1
            assert fetcher._session is not None
            assert fetcher._session.connector is not None
            assert len(fetcher._session.connector._conns) == 1
            engine.metrics_mode = "drop"
            with pytest.raises(ScrapeError):
                await fetcher.get(1.0)
            engine.metrics_mode = "ok"
            assert await fetcher.get(1.0) == pages[0]
            await fetcher.close()

    run(scenario)


def test_proxy_settings_of_the_environment_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{closed_port()}")
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{closed_port()}")

    async def scenario() -> None:
        async with FakeEngine() as engine:
            fetcher = PageFetcher(parse_http_address(engine.address), "/metrics", 100_000)
            assert b"vllm:num_requests_running" in await fetcher.get(1.0)
            await fetcher.close()

    run(scenario)


def test_a_host_name_that_no_resolver_takes_is_a_failure_like_others() -> None:
    async def scenario() -> None:
        fetcher = PageFetcher(parse_http_address("http://a..b:80"), "/metrics", 100_000)
        with pytest.raises(ScrapeError):
            await fetcher.get(5.0)
        await fetcher.close()

    run(scenario)


def test_states_that_go_stale_between_two_scrapes_are_refused() -> None:
    """F001: the same rule holds between the states and the feed."""
    table = table_of(1)
    settings = StateSettings(stale_after_s=0.4)
    states = EndpointStates(table, LeaseBook(table), [0], lambda _: None, lambda _: None, settings)
    with pytest.raises(SettingError, match="stale_after_s"):
        MetricsFeed(states, {}.get, ScrapeSettings(), time.monotonic, np.random.default_rng(0))


def test_a_receiver_that_fails_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        def broken(*_: object) -> None:
            raise ZeroDivisionError

        scraper = Scraper(FAST, broken, lambda *_: None, time.monotonic, np.random.default_rng(0))
        async with FakeEngine() as engine:
            scraper.add(ScrapeTarget("e", engine.address, "vllm"))
            await until(lambda: scraper.counts["e"].failures["receiver"] >= 3)
            await scraper.close()

    run(scenario)
    assert "was not taken" in caplog.text


@pytest.mark.parametrize(
    "wrong",
    [{"period_s": 0.0}, {"deadline_s": 61.0}, {"jitter": 0.6}, {"max_page_bytes": 10}, {"stale_after_s": 0.4}],
)
def test_settings_are_checked(wrong: dict[str, float]) -> None:
    """F001: a staleness window below two periods is refused."""
    with pytest.raises(SettingError, match=next(iter(wrong))):
        ScrapeSettings(**wrong)  # type: ignore[arg-type]


def test_a_period_of_one_endpoint_keeps_the_same_rule_and_ids_are_unique() -> None:
    """F001: also where one endpoint has a period of its own."""

    async def scenario() -> None:
        scraper = Seen().scraper()
        with pytest.raises(SettingError, match="period_s"):
            scraper.add(ScrapeTarget("e", "http://127.0.0.1:9", "vllm", period_s=0.15))
        with pytest.raises(SettingError, match="unknown engine"):
            scraper.add(ScrapeTarget("e", "http://127.0.0.1:9", "llama"))
        scraper.add(ScrapeTarget("e", "http://127.0.0.1:9", "vllm"))
        with pytest.raises(SettingError, match="scraped already"):
            scraper.add(ScrapeTarget("e", "http://127.0.0.1:9", "vllm"))
        await scraper.close()

    run(scenario)
