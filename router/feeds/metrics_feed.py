"""From the list of engines to fresh rows of the endpoint table: scrapers, and what their pages say.

Runs in the event loop that decides, so that nothing needs a lock: a page takes a few dozen microseconds.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from data.errors import SettingError
from data.fleet.types import Endpoint
from router.engines.aliases import Reading
from router.feeds.discovery import diff, scrape_target
from router.feeds.endpoint_state import EndpointStates, StateChange
from router.feeds.scrape import Scraper, ScrapeSettings

LOG = logging.getLogger("tokenfleet.metrics_feed")


class MetricsFeed:
    """Scrapes the engines of a list that may change, and tells the endpoint states.

    Args:
        states: Told of every page.
        row_of: Row of an endpoint id; ``None`` = it has none (any more).
        settings: Period, deadline and bounds.
        clock: Seconds on the clock that leases and decisions use.
        rng: Jitter of the scrapes.
        on_page: Told of a row after its page was taken in.

    Raises:
        SettingError: Reports would be stale before the next ones are due.
    """

    def __init__(
        self,
        states: EndpointStates,
        row_of: Callable[[str], int | None],
        settings: ScrapeSettings,
        clock: Callable[[], float],
        rng: np.random.Generator,
        on_page: Callable[[int], None] = lambda _: None,
    ) -> None:
        stale_after_s = states.settings.stale_after_s
        if stale_after_s < 2 * settings.period_s:
            expected = f"at least twice period_s: {2 * settings.period_s:g}"
            raise SettingError(
                "reports go stale between two scrapes",
                field="stale_after_s",
                value=stale_after_s,
                expected=expected,
            )
        self._states = states
        self._row_of = row_of
        self._on_page = on_page
        self._endpoints: tuple[Endpoint, ...] = ()
        self.scraper = Scraper(settings, self._page, self._failed, clock, rng)
        self.failures: Counter[str] = Counter()
        """Failed scrapes by reason, of all endpoints since the start."""

    def apply(self, endpoints: Sequence[Endpoint]) -> None:
        """Scrape these from now on; must run inside the event loop, after the rows have been applied.

        Raises:
            SettingError: An address or engine is wrong (a checked list has none).
        """
        change = diff(self._endpoints, endpoints)
        for name in (*change.removed, *(endpoint.id for endpoint in change.changed)):
            self.scraper.remove(name)
        for endpoint in (*change.added, *change.changed):
            self.scraper.add(scrape_target(endpoint))
        self._endpoints = tuple(endpoints)

    async def close(self) -> None:
        """Stop scraping."""
        await self.scraper.close()

    def _page(self, endpoint_id: str, reading: Reading, asked_s: float) -> None:
        row = self._row_of(endpoint_id)
        if row is not None:
            self._states.page(row, reading, asked_s)
            self._on_page(row)

    def _failed(self, endpoint_id: str, reason: str) -> None:  # noqa: ARG002
        self.failures[reason] += 1


def log_change(name_of: Callable[[int], str]) -> Callable[[StateChange], None]:
    """An ``on_change`` for ``EndpointStates`` that logs each change once, under the endpoint's id."""

    def log(change: StateChange) -> None:
        level = logging.INFO if change.what == "recovered" else logging.WARNING
        LOG.log(level, "metrics of %s: %s (%s)", name_of(change.row), change.what, change.detail)

    return log
