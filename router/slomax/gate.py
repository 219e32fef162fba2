"""Which engines can take one more request now, so that waiting happens here, in our order, and not in theirs.

For endpoint ``i``, from what this router has in flight there and what the engine last reported:

(1)  ``backlog_i``  prefill seconds sent there that have not given a first token, less the time already spent on
     the first of them; a first one that is overdue counts up again (a hung engine must not look idle)
(2)  ``S_i = p1·u + p2·u·(h + u/2)``              own prefill of the request, ``h`` its prefix hit there
(3)  ``TTFT_i = rtt_i + backlog_i + S_i + step_i``
(4)  ``step_i = d0 + d1·r + d2·k + host``         one decode step of what runs there
(5)  ``duty_i = 1 − step_i / (margin · TPOT target)``  share of time that prefill may take without breaking the
     TPOT of those who decode there; held by a bucket of prefill seconds that refills at this rate

An endpoint is open to a request when its backlog is below the ceiling of the class, a sequence slot and KV memory
are free, its bucket (5) is not overdrawn (only if somebody with a TPOT target is or would be there), and a long
prefill finds no other one there and enough endpoints without any. One with nothing in flight is always open.
Own dispatches count from the moment they are made: nothing is sent twice into the same gap between two reports.
"""

from __future__ import annotations

import numpy as np

from data.types import FloatArray, IntArray
from router.endpoints import EndpointTable
from router.slomax.settings import SloMaxSettings
from router.slomax.waiting import Waiting
from router.types import BoolArray

HEAD_FLOOR = 0.1
"""Share of the backlog that is left at least, however long the first one has been worked on."""


class Gate:
    """State of all endpoints of a table as the flow control sees it.

    Args:
        table: Read only.
        settings: Ceilings, pace, reserve.
        tpot_s: Tightest TPOT target of the fleet's classes; ``None`` = none has any, and nothing is paced.
        now_s: The clock.
    """

    def __init__(self, table: EndpointTable, settings: SloMaxSettings, tpot_s: float | None, now_s: float) -> None:
        n = len(table)
        self._table = table
        self._settings = settings
        self._tpot_s = None if tpot_s is None or not settings.pace else settings.tpot_margin * tpot_s
        self._paced_s = now_s
        self._level = np.full(n, settings.pace_burst_s)
        self._free = np.zeros(n, dtype=bool)
        self._idle = np.ones(n, dtype=bool)
        self._masks: dict[tuple[int, bool, bool], BoolArray] = {}
        self.backlog_s: FloatArray = np.zeros(n)
        self.step_s: FloatArray = np.zeros(n)
        self.long = np.zeros(n)
        """Long prefills in progress at each endpoint."""
        self.bound = np.zeros(n)
        """Requests with a TPOT target in flight at each endpoint."""

    def refresh(self, now_s: float) -> None:
        """Take in the table as it is now."""
        table, settings = self._table, self._settings
        if len(table) > len(self._level):
            self._grow(len(table) - len(self._level))
        waits = table.waiting_prefill_s
        spent = np.where(table.inflight_uncached_tokens > 0, now_s - table.prefill_since_s, 0.0)
        left = np.maximum(waits - spent, HEAD_FLOOR * waits)
        self.backlog_s = np.maximum(left, 0.5 * (spent - waits))  # (1)
        seen = np.fmax(table.running + table.waiting + table.sent_since_report, table.inflight)
        reported = table.kv_use * table.kv_capacity_tokens + table.sent_uncached_since_report
        kv = np.where(reported == reported, reported, table.inflight_tokens)
        self.step_s = table.d0 + table.d1 * table.decoding + table.d2 * kv + table.host_overhead  # (4)
        self._free = (seen < table.max_seqs) & (kv < settings.kv_ceiling * table.kv_capacity_tokens)
        self._idle = table.inflight <= 0
        self._masks.clear()
        self._pace(now_s)

    def _grow(self, rows: int) -> None:
        """The table has got more rows."""
        self._level = np.append(self._level, np.full(rows, self._settings.pace_burst_s))
        self.long = np.append(self.long, np.zeros(rows))
        self.bound = np.append(self.bound, np.zeros(rows))

    def _pace(self, now_s: float) -> None:
        if self._tpot_s is None:
            return
        duty = np.minimum(np.maximum(1.0 - self.step_s / self._tpot_s, 0.05), 1.0)  # (5)
        gained = self._level + (now_s - self._paced_s) * duty
        self._level = np.minimum(gained, self._settings.pace_burst_s)
        self._paced_s = max(now_s, self._paced_s)

    def ceiling_s(self, rank: int) -> float:
        """Backlog below which a class of that rank may send; falls from class to class."""
        return self._settings.backlog_s * self._settings.ceiling_step**rank

    def any_open(self, item: Waiting, rank: int) -> bool:
        """Whether any endpoint at all is open to such a request: a quick first look, before the hard filters."""
        return bool(self._mask(rank, item.request.slo.tpot_s is not None, item.long).any())

    def open_rows(self, rows: IntArray, item: Waiting, rank: int) -> IntArray:
        """Those of ``rows`` that are open to a request of a class of that rank."""
        if item.long and self._reserve_used(rows):
            return rows[:0]
        return rows[self._mask(rank, item.request.slo.tpot_s is not None, item.long)[rows]]

    def _mask(self, rank: int, bound: bool, long: bool) -> BoolArray:
        """What is open to a kind of request, but for the reserve; the same until the next refresh."""
        key = rank, bound, long
        mask = self._masks.get(key)
        if mask is None:
            mask = self._free & (self.backlog_s < self.ceiling_s(rank))
            if self._tpot_s is not None:
                paced = self._level > 0
                mask &= paced if bound else paced | (self.bound == 0)
            if long:
                mask &= self.long < self._settings.long_at_once
            mask |= self._idle
            self._masks[key] = mask
        return mask

    def _reserve_used(self, rows: IntArray) -> bool:
        """Whether as many of ``rows`` carry a long prefill as may."""
        most = max(int(len(rows) * (1.0 - self._settings.reserve)), 1)
        return int(np.count_nonzero(self.long[rows])) >= most

    def prefill_s(self, rows: IntArray, input_tokens: int, hits: FloatArray) -> FloatArray:
        """Equation (2) for each of ``rows``."""
        table = self._table
        uncached = input_tokens - hits
        seconds: FloatArray = uncached * (table.p1[rows] + table.p2[rows] * (hits + 0.5 * uncached))
        return seconds

    def ttft_s(self, rows: IntArray, prefill_s: FloatArray) -> FloatArray:
        """Equation (3) without the round trip."""
        seconds: FloatArray = self.backlog_s[rows] + prefill_s + self.step_s[rows]
        return seconds

    def dispatched(self, row: int, prefill_s: float, long: bool, bound: bool) -> None:
        """A request was sent to ``row``."""
        self._level[row] -= prefill_s
        self.long[row] += long
        self.bound[row] += bound

    def first_token(self, row: int, long: bool) -> None:
        """Its prefill is done."""
        self.long[row] -= long

    def finished(self, row: int, bound: bool) -> None:
        """It has left."""
        self.bound[row] -= bound

    def wakeup_s(self, now_s: float) -> float:
        """When an overdrawn pace bucket has filled up again; infinite if none is overdrawn."""
        if self._tpot_s is None:
            return float("inf")
        behind = self._level <= 0
        if not behind.any():
            return float("inf")
        duty = np.maximum(1.0 - self.step_s[behind] / self._tpot_s, 0.05)
        return now_s + float((-self._level[behind] / duty).min()) + 1e-3
