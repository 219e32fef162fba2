"""What is known of each endpoint's load reports: never seen, fresh, stale, missing or frozen.

Pages come one endpoint at a time; what they say goes to the table through ``router.reports.apply_reports``.
Nothing here ever lowers a local count: only a request's end, or another incarnation of the engine, does.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import nan

import numpy as np

from data.errors import SettingError
from data.types import FloatArray, IntArray
from router.endpoints import EndpointTable
from router.engines.aliases import (
    BLOCK_TOKENS,
    COUNTERS,
    KV_BLOCKS,
    KV_TOKENS,
    KV_USE,
    RUNNING,
    STARTED_AT_S,
    WAITING,
    Reading,
)
from router.feeds.fresh_rows import DEGRADED, FRESH_ONLY, which_rows
from router.leases import LeaseBook
from router.reports import apply_reports
from router.types import BoolArray

_LOAD = (RUNNING, WAITING, KV_USE, *COUNTERS)


class ReportState(enum.StrEnum):
    """Five things that are not the same."""

    NEVER_SEEN = "never_seen"
    """No page since the endpoint, or this incarnation of it, came."""
    FRESH = "fresh"
    """The newest page is recent and tells everything required."""
    STALE = "stale"
    """The newest page is too old."""
    MISSING = "missing"
    """The newest page is recent but lacks a required quantity; what it has is used."""
    FROZEN = "frozen"
    """Pages come, but their load never changes although requests were sent: it is not measured any more."""


@dataclass(frozen=True, slots=True)
class StateSettings:
    """When reports are no longer believed.

    Attributes:
        stale_after_s: Age of a report from which it is stale (above 0); at least twice the scrape period, which
            ``router.feeds.scrape.ScrapeSettings`` holds to.
        frozen_pages: Pages in a row without any change of load that may be a frozen series (2 or more).
        frozen_requests: Requests that must have been sent there meanwhile (1 or more).
        fresh_lead: Requests in flight that a fresh endpoint may have beyond the least loaded other one before the
            others are chosen from too (1 or more).
    """

    stale_after_s: float = 1.0
    frozen_pages: int = 8
    frozen_requests: int = 20
    fresh_lead: int = 8

    def __post_init__(self) -> None:
        for name, least in (("frozen_pages", 2), ("frozen_requests", 1), ("fresh_lead", 1)):
            if getattr(self, name) < least:
                value = getattr(self, name)
                raise SettingError("setting out of range", field=name, value=value, expected=f"{least} or more")
        if not self.stale_after_s > 0:
            raise SettingError(
                "setting out of range", field="stale_after_s", value=self.stale_after_s, expected="above 0"
            )


@dataclass(frozen=True, slots=True)
class StateChange:
    """Something an operator should hear of once.

    Attributes:
        row: The endpoint.
        what: ``missing``, ``frozen``, ``restarted``, or ``recovered`` from the first two.
        detail: The quantities that are missing, or how the restart showed.
    """

    row: int
    what: str
    detail: str = ""


@dataclass(slots=True)
class _Known:
    """What must be remembered of one endpoint's pages to judge the next."""

    load: tuple[float, ...] = ()
    unchanged: int = 0
    sent_before: int = 0
    started_at_s: float = nan
    counters: tuple[float, ...] = field(default_factory=lambda: (nan,) * len(COUNTERS))


class EndpointStates:
    """States of all rows of a table.

    Args:
        table: Its report columns are written.
        book: The accounting of the same table.
        sent: Requests dispatched to each row since its incarnation began, such as ``HealthBook.sent``.
        on_restart: Told of a row whose engine has restarted, before the page that showed it is used. The owner
            drops everything of the old incarnation: leases, blocks, health, the policy's memory.
        on_change: Told of what deserves an alert.
        settings: When reports are no longer believed.
    """

    def __init__(
        self,
        table: EndpointTable,
        book: LeaseBook,
        sent: Sequence[int],
        on_restart: Callable[[int], None],
        on_change: Callable[[StateChange], None],
        settings: StateSettings | None = None,
    ) -> None:
        self._table = table
        self._book = book
        self._sent = sent
        self._on_restart = on_restart
        self._on_change = on_change
        self.settings = settings or StateSettings()
        n = len(table)
        self._page_s = np.full(n, np.nan)
        self._missing = np.zeros(n, dtype=bool)
        self._frozen = np.zeros(n, dtype=bool)
        self._known = [_Known() for _ in range(n)]
        self.kv_tokens = np.full(n, np.nan)
        """KV capacity that the engine itself reports, in tokens; NaN = it does not."""
        self.prefer_fresh(np.arange(0), 0.0)  # compiles, which the first decision should not wait for

    def resized(self) -> None:
        """The table has grown."""
        more = len(self._table) - len(self._known)
        self._page_s = np.append(self._page_s, np.full(more, np.nan))
        self._missing = np.append(self._missing, np.zeros(more, dtype=bool))
        self._frozen = np.append(self._frozen, np.zeros(more, dtype=bool))
        self.kv_tokens = np.append(self.kv_tokens, np.full(more, np.nan))
        self._known += [_Known() for _ in range(more)]

    def reset(self, row: int) -> None:
        """The row has another endpoint or incarnation: it was never seen."""
        self._page_s[row] = self.kv_tokens[row] = nan
        self._missing[row] = self._frozen[row] = False
        self._known[row] = _Known()

    def page(self, row: int, reading: Reading, sampled_at_s: float) -> None:
        """A page came. A page older than the last one is ignored.

        Args:
            row: Whose it is.
            reading: What it says.
            sampled_at_s: When it was asked for: the engine counted no earlier.
        """
        if self._page_s[row] >= sampled_at_s:
            return
        how = _restart(self._known[row], reading)
        if how:
            self._on_restart(row)
            self.reset(row)
            _restart(self._known[row], reading)
            self._on_change(StateChange(row, "restarted", how))
        self._page_s[row] = sampled_at_s
        self._judge(row, reading)
        self.kv_tokens[row] = _kv_tokens(reading)
        if self._frozen[row]:
            return
        one = np.array([row])
        load = [np.array([reading.get(quantity)]) for quantity in (RUNNING, WAITING, KV_USE)]
        apply_reports(self._table, self._book, one, sampled_at_s, *load)

    def state(self, row: int, now_s: float) -> ReportState:
        """State of one endpoint."""
        page_s = self._page_s[row]
        if np.isnan(page_s):
            return ReportState.NEVER_SEEN
        if now_s - page_s > self.settings.stale_after_s:
            return ReportState.STALE
        if self._missing[row]:
            return ReportState.MISSING
        return ReportState.FROZEN if self._frozen[row] else ReportState.FRESH

    def started_at_s(self, row: int) -> float:
        """When the engine's process started, by its own metrics (Unix seconds); NaN = it has not told."""
        return self._known[row].started_at_s

    def fresh(self, rows: IntArray, now_s: float) -> BoolArray:
        """Which of these endpoints are fresh."""
        recent = now_s - self._page_s[rows] <= self.settings.stale_after_s
        return np.asarray(recent & ~self._missing[rows] & ~self._frozen[rows])

    def prefer_fresh(self, rows: IntArray, now_s: float) -> tuple[IntArray, bool]:
        """The endpoints to choose from, of those that passed the hard filters; and whether the choice is degraded.

        While some fresh endpoint has room by our own count of requests, only fresh ones are chosen from: it is not
        full, and not ``fresh_lead`` requests ahead of the least loaded of the others, so that one endpoint whose
        metrics came first is not sent everything. Else all are chosen from, by what the router knows itself, and
        the decision is marked ``stale_metrics``.
        """
        which = which_rows(
            rows,
            now_s,
            self.settings.stale_after_s,
            self._page_s,
            self._missing,
            self._frozen,
            self._table.inflight,
            self._table.max_seqs,
            self.settings.fresh_lead,
        )
        return (rows[self.fresh(rows, now_s)] if which == FRESH_ONLY else rows), which == DEGRADED

    def counts(self, rows: IntArray, now_s: float) -> dict[ReportState, int]:
        """How many of these endpoints are in each state; every state is named."""
        found = dict.fromkeys(ReportState, 0)
        for row in rows.tolist():
            found[self.state(row, now_s)] += 1
        return found

    def _judge(self, row: int, reading: Reading) -> None:
        """Is anything missing, has anything moved?"""
        known = self._known[row]
        load = tuple(reading.get(quantity) for quantity in _LOAD)
        if _same(load, known.load):
            known.unchanged += 1
        else:
            known.load, known.unchanged, known.sent_before = load, 1, self._sent[row]
        frozen = (
            known.unchanged >= self.settings.frozen_pages
            and self._sent[row] - known.sent_before >= self.settings.frozen_requests
        )
        missing = bool(reading.missing)
        self._note(row, self._missing, missing, "missing", ", ".join(reading.missing))
        self._note(row, self._frozen, frozen, "frozen", f"{known.unchanged} pages")

    def _note(self, row: int, column: BoolArray, now: bool, what: str, detail: str) -> None:
        if column[row] != now:
            column[row] = now
            self._on_change(StateChange(row, what if now else "recovered", detail if now else what))


def _same(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    """Equal, a missing value being equal to a missing one."""
    return len(a) == len(b) and all(x == y or (x != x and y != y) for x, y in zip(a, b, strict=True))


def _restart(known: _Known, reading: Reading) -> str:
    """How a page shows that the engine restarted since the last one, or an empty text; remembers the page."""
    started_at_s = reading.get(STARTED_AT_S)
    counters = tuple(reading.get(quantity) for quantity in COUNTERS)
    before_s, before = known.started_at_s, known.counters
    if started_at_s == started_at_s:
        known.started_at_s = started_at_s
    known.counters = tuple(new if new == new else old for new, old in zip(counters, before, strict=True))
    if abs(started_at_s - before_s) > 1.0:
        return f"process started at {started_at_s:.0f}, before it was {before_s:.0f}"
    for name, new, old in zip(COUNTERS, counters, before, strict=True):
        if new < old:
            return f"{name} fell from {old:g} to {new:g}"
    return ""


def _kv_tokens(reading: Reading) -> float:
    tokens = reading.get(KV_TOKENS)
    return tokens if tokens == tokens else reading.get(KV_BLOCKS) * reading.get(BLOCK_TOKENS)


def kv_capacity(reported: FloatArray, declared: FloatArray) -> FloatArray:
    """KV capacity in tokens to count with: the engine's own number where it reports one, else the declared one."""
    return np.where(np.isnan(reported), declared, reported)
