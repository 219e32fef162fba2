"""Scrape the metrics of all engines, each on its own clock: one slow or silent engine delays no other.

Every endpoint has a task, a connection and a deadline of its own; nothing is shared that could fill up. What comes
of a page is the caller's: the scraper hands over a reading with the time at which it was *asked for*, because the
engine may have counted at any moment after that, and what was sent since must stay counted.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from data.errors import SettingError
from data.fleet.addresses import parse_http_address
from router.engines.aliases import Reading
from router.engines.registry import ENGINES, page_reader
from router.feeds.log_gate import LogGate
from router.feeds.page_fetcher import PageFetcher, ScrapeError

LOG = logging.getLogger("tokenfleet.scrape")


@dataclass(frozen=True, slots=True)
class ScrapeSettings:
    """How engines are scraped.

    Attributes:
        period_s: Time between two scrapes of an endpoint (0.01 to 60).
        deadline_s: A scrape that takes longer has failed (0.01 to 60).
        jitter: Each pause is longer or shorter by up to this share (0 to 0.5), so that scrapes do not bunch up.
        stale_after_s: Reports older than this count as stale (at least twice ``period_s``).
        max_page_bytes: Longer pages are refused (1,024 to 1 GiB).
    """

    period_s: float = 0.25
    deadline_s: float = 1.0
    jitter: float = 0.1
    stale_after_s: float = 1.0
    max_page_bytes: int = 4 * 2**20

    def __post_init__(self) -> None:
        _in_range("period_s", self.period_s, 0.01, 60.0)
        _in_range("deadline_s", self.deadline_s, 0.01, 60.0)
        _in_range("jitter", self.jitter, 0.0, 0.5)
        _in_range("max_page_bytes", self.max_page_bytes, 1024, 2**30)
        if not self.stale_after_s >= 2 * self.period_s:
            raise SettingError(
                "every ordinary pause between two scrapes would look stale",
                field="stale_after_s",
                value=self.stale_after_s,
                expected=f"at least twice period_s: {2 * self.period_s:g}",
            )


def _in_range(name: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:
        raise SettingError("setting out of range", field=name, value=value, expected=f"{least:g} to {most:g}")


@dataclass(frozen=True, slots=True)
class ScrapeTarget:
    """One page to scrape.

    Attributes:
        endpoint_id: Whose it is.
        address: ``http://host:port`` or ``https://host:port``.
        engine: Kind of engine, see ``router.engines.registry.ENGINES``.
        path: Path of the page; empty = the engine's usual one.
        period_s: Period of this endpoint; ``None`` = the one of the settings.
    """

    endpoint_id: str
    address: str
    engine: str
    path: str = ""
    period_s: float | None = None


@dataclass(slots=True)
class ScrapeCounts:
    """What was counted for one endpoint since it was added."""

    pages: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    """By reason, see ``router.feeds.page_fetcher.SCRAPE_FAILURES``; ``receiver`` = the caller failed on a page."""
    bad_samples: int = 0
    log_lines: int = 0

    @property
    def never_scraped(self) -> bool:
        """Whether no page has come since the start."""
        return not self.pages


OnPage = Callable[[str, Reading, float], None]
"""Endpoint id, what the page said, and when it was asked for."""
OnFailure = Callable[[str, str], None]
"""Endpoint id and reason."""


class Scraper:
    """Scrapes targets until they are removed. Belongs to one event loop.

    Args:
        settings: Period, deadline and bounds.
        on_page: Told of every page.
        on_failure: Told of every failure.
        clock: Seconds on the clock that leases and decisions use.
        rng: Jitter.
    """

    def __init__(
        self,
        settings: ScrapeSettings,
        on_page: OnPage,
        on_failure: OnFailure,
        clock: Callable[[], float],
        rng: np.random.Generator,
    ) -> None:
        self._settings = settings
        self._on_page = on_page
        self._on_failure = on_failure
        self._clock = clock
        self._rng = rng
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.counts: dict[str, ScrapeCounts] = {}

    def add(self, target: ScrapeTarget) -> None:
        """Begin to scrape, at a random moment of the first period.

        Raises:
            SettingError: The address or the engine is wrong, or the endpoint is scraped already.
        """
        if target.endpoint_id in self._tasks:
            raise SettingError("scraped already", field="endpoint_id", value=target.endpoint_id)
        if target.engine not in ENGINES:
            expected = "one of " + ", ".join(ENGINES)
            raise SettingError("unknown engine", field="engine", value=target.engine, expected=expected)
        try:
            address = parse_http_address(target.address)
        except ValueError as error:
            raise SettingError(str(error), field="address") from error
        period_s = self._settings.period_s if target.period_s is None else target.period_s
        _in_range("period_s", period_s, 0.01, self._settings.stale_after_s / 2)
        path = target.path or ENGINES[target.engine].path
        fetcher = PageFetcher(address, path, self._settings.max_page_bytes)
        self.counts[target.endpoint_id] = ScrapeCounts()
        self._tasks[target.endpoint_id] = asyncio.get_running_loop().create_task(
            self._run(target, fetcher, period_s), name=f"scrape {target.endpoint_id}"
        )

    def remove(self, endpoint_id: str) -> None:
        """Stop at once; nothing is told of this endpoint any more. Unknown ids are ignored."""
        task = self._tasks.pop(endpoint_id, None)
        self.counts.pop(endpoint_id, None)
        if task is not None:
            task.cancel()

    async def close(self) -> None:
        """Stop everything and wait until it has stopped."""
        tasks = list(self._tasks.values())
        for endpoint_id in list(self._tasks):
            self.remove(endpoint_id)
        await asyncio.gather(*tasks, return_exceptions=True)

    def never_scraped(self) -> list[str]:
        """Endpoints from which no page has come since they were added, by id."""
        return sorted(endpoint_id for endpoint_id, counts in list(self.counts.items()) if counts.never_scraped)

    async def _run(self, target: ScrapeTarget, fetcher: PageFetcher, period_s: float) -> None:
        loop = asyncio.get_running_loop()
        reader, gate = page_reader(target.engine), LogGate()
        deadline_s, jitter = self._settings.deadline_s, self._settings.jitter
        due = loop.time() + self._rng.random() * period_s
        try:
            while True:
                await asyncio.sleep(due - loop.time())
                asked_s = self._clock()
                try:
                    page = await fetcher.get(deadline_s)
                except ScrapeError as error:
                    self._failed(target, error, gate)
                else:
                    self._came(target, reader.read(page), asked_s, gate)
                # A scrape that took longer than the pause is followed by the next one, never by two.
                pause_s = period_s * (1.0 + jitter * (2.0 * self._rng.random() - 1.0))
                due = max(due + pause_s, loop.time())
        finally:
            await fetcher.close()

    def _came(self, target: ScrapeTarget, reading: Reading, asked_s: float, gate: LogGate) -> None:
        counts = self.counts[target.endpoint_id]
        counts.pages += 1
        counts.bad_samples += reading.bad_samples
        row = gate.succeeded()
        if row:
            LOG.info("scraping %s works again after %d failures", target.endpoint_id, row)
        try:
            self._on_page(target.endpoint_id, reading, asked_s)
        except Exception:
            counts.failures["receiver"] += 1
            if gate.failed(self._clock()):
                LOG.exception("a page of %s was not taken", target.endpoint_id)

    def _failed(self, target: ScrapeTarget, error: ScrapeError, gate: LogGate) -> None:
        counts = self.counts[target.endpoint_id]
        counts.failures[error.reason] += 1
        if gate.failed(self._clock()):
            counts.log_lines += 1
            text = "scraping %s at %s failed (%s, %d in a row, %d in all): %s"
            LOG.warning(
                text, target.endpoint_id, target.address, error.reason, gate.in_a_row, gate.total, str(error)
            )
        self._on_failure(target.endpoint_id, error.reason)
