"""Health of all endpoints from what becomes of requests; keeps the table's ``healthy`` column.

A hung worker accepts requests and never answers; once its clients give up it looks idle and draws ever more. So
the clock matters, not only ends: a request that has waited several times its predicted P99 TTFT while its endpoint
said nothing at all makes the endpoint *suspect* at once, and a request given up in that time opens its breaker.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from dataclasses import dataclass
from math import inf

import numpy as np

from data.types import IntArray
from router.endpoints import EndpointTable
from router.feeds.breaker import Breaker, Ending, HealthSettings, Phase

_HIGH = 0.99
"""Quantile of observed over predicted that stretches patience."""
_STEP = 0.05
_LEAST_SWEEP = 64
_RECENT, _EVERY = 256, 32
"""First tokens whose times are kept, and how often their P99 is taken anew."""


@dataclass(slots=True)
class _Waiting:
    """A dispatch that has not ended."""

    row: int
    since_s: float
    p99_s: float
    patience_s: float
    predicted: bool
    answered: bool = False
    doubted: bool = False


@dataclass(frozen=True, slots=True)
class HealthReport:
    """Health of one endpoint, for people."""

    endpoint_id: str
    phase: str
    reason: str
    until_s: float
    opened: int
    endings: dict[str, int]


class HealthBook:
    """Breakers of all rows of a table, fed by four notices; pure but for the table's ``healthy`` column.

    Args:
        table: Its ``healthy`` column is written here and nowhere else.
        settings: When endpoints are distrusted.
    """

    def __init__(self, table: EndpointTable, settings: HealthSettings | None = None) -> None:
        self._table = table
        self.settings = settings or HealthSettings()
        self._breakers = [Breaker(self.settings) for _ in range(len(table))]
        self._endings: list[Counter[str]] = [Counter() for _ in range(len(table))]
        self.sent = [0] * len(table)
        """Requests dispatched to each row since its incarnation began."""
        self._doubts: list[set[int]] = [set() for _ in range(len(table))]
        """Requests of each row that wait for longer than they should, while nothing came from there."""
        self._doubtful = np.zeros(len(table), dtype=bool)
        self._waiting: dict[int, _Waiting] = {}
        self._due: list[tuple[float, int]] = []
        self._pauses: list[tuple[float, int]] = []
        self._stretch = 1.0
        self._recent_s: deque[float] = deque(maxlen=_RECENT)
        self._observed = 0
        self._unpredicted_p99_s = self.settings.unpredicted_p99_s
        self._rescues_left = self.settings.rescue_burst
        self.rescued = 0
        """Requests that were moved off silent endpoints."""

    def resized(self) -> None:
        """The table has grown."""
        while len(self._breakers) < len(self._table):
            self._breakers.append(Breaker(self.settings))
            self._endings.append(Counter())
            self.sent.append(0)
            self._doubts.append(set())
        self._doubtful = np.array([bool(leases) for leases in self._doubts])

    def reset(self, row: int) -> None:
        """The row has a new endpoint or a new incarnation: forget everything about it."""
        self._breakers[row] = Breaker(self.settings)
        self._endings[row] = Counter()
        self.sent[row] = 0
        self._believe(row)
        for lease in [lease for lease, held in self._waiting.items() if held.row == row]:
            del self._waiting[lease]
        self._table.healthy[row] = True

    def phase(self, row: int) -> Phase:
        """What the endpoint may take now."""
        return self._breakers[row].phase

    def refresh(self, now_s: float) -> None:
        """Take the passing of time into account; call before each decision. Costs nothing when nothing is due."""
        while self._pauses and self._pauses[0][0] <= now_s:
            row = heapq.heappop(self._pauses)[1]
            if self._breakers[row].refresh(now_s):
                self._write(row)
        while self._due and self._due[0][0] <= now_s:
            _, lease = heapq.heappop(self._due)
            held = self._waiting.get(lease)
            if held is not None and not held.answered:
                self._overdue(lease, held, now_s)

    def dispatched(self, lease: int, row: int, now_s: float, p99_s: float = float("nan")) -> float:
        """A request was sent to ``row``.

        Args:
            lease: Its lease.
            row: Where to.
            now_s: The clock.
            p99_s: Predicted P99 of the time until the caller tells of it again: TTFT for a caller that reports
                first tokens, else the whole response. NaN = not predicted: the P99 of late is taken; inf = nothing
                is expected.

        Returns:
            Patience, seconds: without a first token after that time the request is overdue, and its caller may ask
            for another endpoint (see ``rescue``).
        """
        settings = self.settings
        predicted = p99_s == p99_s
        expected = p99_s if predicted else self._unpredicted_p99_s
        patience_s = max(settings.least_patience_s, settings.patience_factor * self._stretch * expected)
        self._waiting[lease] = _Waiting(row, now_s, expected, patience_s, predicted)
        self._await(now_s + min(settings.doubt_factor * self._stretch * expected, patience_s), lease)
        self.sent[row] += 1
        self._rescues_left = min(self._rescues_left + settings.rescue_share, settings.rescue_burst)
        self._breakers[row].dispatched(lease, now_s, patience_s)
        self._write(row)
        return patience_s

    def first_token(self, lease: int, now_s: float) -> None:
        """The first token of a request came. Unknown leases (their endpoint is gone) and repeats are ignored."""
        held = self._waiting.get(lease)
        if held is None or held.answered:
            return
        held.answered = True
        self._believe(held.row)
        self._learn(now_s - held.since_s, held)
        self._breakers[held.row].alive()
        self._write(held.row)

    def finished(self, lease: int, ending: Ending, now_s: float) -> None:
        """An attempt ended; unknown leases are ignored. Call once for each dispatch, whatever became of it."""
        held = self._waiting.pop(lease, None)
        if held is None:
            return
        row, breaker = held.row, self._breakers[held.row]
        breaker.ended(lease)
        # Nothing is left to wait for: the next request is a first contact, not a second choice.
        self._doubts[row].discard(lease)
        self._doubtful[row] = bool(self._doubts[row])
        self._endings[row][ending.value] += 1
        if ending is Ending.COMPLETED:
            if not held.answered:
                self._believe(row)
                breaker.alive()
            breaker.completed()
        elif ending in (Ending.CLIENT_ERROR, Ending.THROTTLED):
            self._believe(row)
            breaker.answered()
        elif ending in (Ending.SERVER_ERROR, Ending.CONNECT_ERROR) or (held.answered and ending is Ending.TIMEOUT):
            if breaker.failed(now_s):
                self._pause(row)
        elif not held.answered and (ending is not Ending.UNTOLD or breaker.phase is Phase.SUSPECT):
            # Of a suspect, also what nobody told of is silence; else it would wait for a sign for ever.
            self._given_up(held, ending, now_s)
        self._write(row)

    def prefer_heard(self, rows: IntArray) -> IntArray:
        """These endpoints without the ones that have been silent for longer than they should; all of them if none
        would be left. A hung worker is a second choice well before it is known to hang."""
        if not self._doubtful.any():
            return rows
        doubtful = self._doubtful[rows]
        return rows if doubtful.all() else rows[~doubtful]

    def rescue(self, lease: int) -> bool:
        """Whether this request may be given up and sent elsewhere now: it waits at an endpoint that is out for
        silence, and the share of requests that may be moved is not used up. A yes counts as a move."""
        held = self._waiting.get(lease)
        if held is None or held.answered or self._rescues_left < 1:
            return False
        if not self._out_for_silence(self._breakers[held.row]):
            return False
        self._rescues_left -= 1
        self.rescued += 1
        return True

    def silent_leases(self) -> list[int]:
        """Requests without a first token at endpoints that are out for silence: what ``rescue`` may say yes to."""
        return [
            lease
            for lease, held in self._waiting.items()
            if not held.answered and self._out_for_silence(self._breakers[held.row])
        ]

    def report(self) -> list[HealthReport]:
        """All rows with an endpoint, in order of the table."""
        return [
            HealthReport(spec.endpoint_id, b.phase.value, b.reason, b.until_s, b.opened, dict(self._endings[row]))
            for row, (spec, b) in enumerate(zip(self._table.specs, self._breakers, strict=True))
            if spec.endpoint_id
        ]

    @staticmethod
    def _out_for_silence(breaker: Breaker) -> bool:
        return breaker.reason == "silence" and breaker.phase in (Phase.SUSPECT, Phase.OPEN)

    def _overdue(self, lease: int, held: _Waiting, now_s: float) -> None:
        breaker = self._breakers[held.row]
        if not held.doubted:
            held.doubted = True
            if breaker.silent_since_s <= held.since_s:
                self._doubts[held.row].add(lease)
                self._doubtful[held.row] = True
            self._await(held.since_s + held.patience_s, lease)
        elif breaker.silent_since_s <= held.since_s and self._may_take_out(held.row):
            breaker.suspect()
            self._write(held.row)
        else:
            # Something came from there meanwhile, or the whole pool is slow: look again later.
            self._await(now_s + held.patience_s, lease)

    def _believe(self, row: int) -> None:
        """Something came from there, or the breaker decides from now on."""
        self._doubts[row].clear()
        self._doubtful[row] = False

    def _await(self, due_s: float, lease: int) -> None:
        """Look at a request at ``due_s``. Those that have ended are swept out once they are the greater part."""
        if due_s < inf:
            heapq.heappush(self._due, (due_s, lease))
        if len(self._due) > 2 * len(self._waiting) + _LEAST_SWEEP:
            self._due = [entry for entry in self._due if entry[1] in self._waiting]
            heapq.heapify(self._due)

    def _given_up(self, held: _Waiting, ending: Ending, now_s: float) -> None:
        """A cancel or a time-out before the first token."""
        row, breaker = held.row, self._breakers[held.row]
        if breaker.phase is Phase.OPEN or breaker.silent_since_s != breaker.silent_since_s:
            return
        breaker.silent += 1
        silence_s = now_s - breaker.silent_since_s
        waited_s = now_s - held.since_s
        probe = breaker.phase is Phase.HALF_OPEN and (ending is Ending.TIMEOUT or waited_s >= held.p99_s)
        many = breaker.silent >= self.settings.silent_to_open and silence_s >= breaker.silence_patience_s
        alone = waited_s >= held.patience_s and breaker.silent_since_s <= held.since_s
        if probe or breaker.phase is Phase.SUSPECT or ((many or alone) and self._may_take_out(row)):
            breaker.open(now_s, "silence", self.settings.silent_pause_factor * waited_s)
            self._believe(row)
            self._pause(row)

    def _may_take_out(self, row: int) -> bool:
        """Whether silence may take one more endpoint of this model out."""
        table = self._table
        pool = np.flatnonzero(table.ready & (table.models == table.models[row])).tolist()
        out = sum(self._breakers[other].phase is not Phase.CLOSED for other in pool if other != row)
        return out + 1 <= self.settings.most_suspected * len(pool)

    def _learn(self, ttft_s: float, held: _Waiting) -> None:
        """Follow the 99th percentile of observed TTFTs, and of observed over predicted P99: patience grows where
        predictions are too short. The latter by stochastic approximation, whose steps balance at the quantile."""
        if held.predicted:
            up = ttft_s > self._stretch * held.p99_s
            step = _STEP if up else -_STEP * (1 - _HIGH) / _HIGH
            self._stretch = max(self._stretch * (1.0 + step), 1.0)
        self._recent_s.append(ttft_s)
        self._observed += 1
        if self._observed % _EVERY == 0:
            self._unpredicted_p99_s = float(np.quantile(self._recent_s, _HIGH))

    def _pause(self, row: int) -> None:
        heapq.heappush(self._pauses, (self._breakers[row].until_s, row))

    def _write(self, row: int) -> None:
        self._table.healthy[row] = self._breakers[row].admits()
