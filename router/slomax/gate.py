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
Of the open ones it goes where the answers in progress can bear its prefill (``router.slomax.shield``).
Own dispatches count from the moment they are made: nothing is sent twice into the same gap between two reports.
"""

from __future__ import annotations

import numpy as np

from data.types import FloatArray, IntArray
from router.endpoints import EndpointTable
from router.slomax.gate_kernels import LEAST_DUTY, UNPACED, least_of, look, open_mask, picked, prefill_into
from router.slomax.sent import Sent
from router.slomax.settings import SloMaxSettings
from router.slomax.shield import Shield
from router.slomax.waiting import Waiting
from router.types import BoolArray

LEAST_SHIELD_WAKE_S = 0.01
"""The shield is not looked at more often than this for its own sake."""
ANY_TIME_S = float("inf")
"""In place of the time that is left, for a request that no TTFT target binds."""


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
        self.shield = Shield(n)
        self._unshielded = np.full(n, ANY_TIME_S)
        self.set_target(tpot_s)
        self._paced_s = now_s
        self._level = np.full(n, settings.pace_burst_s)
        self._free = np.zeros(n, dtype=bool)
        self._idle = np.ones(n, dtype=bool)
        self._masks: dict[tuple[int, bool, bool], tuple[BoolArray, bool]] = {}
        self.backlog_s: FloatArray = np.zeros(n)
        self.step_s: FloatArray = np.zeros(n)
        self.long = np.zeros(n)
        """Long prefills in progress at each endpoint."""
        self.bound = np.zeros(n)
        """Requests with a TPOT target in flight at each endpoint."""
        self._compile(now_s)

    def _compile(self, now_s: float) -> None:
        """Run every kernel once, which the first request should not wait for."""
        self.refresh(now_s)
        nothing, rows = self.prefill_s(1, np.zeros(len(self._table))), np.zeros(0, dtype=np.int64)
        self.least_of(rows, nothing, nothing)
        mask = np.zeros(len(self._level), dtype=bool)
        open_mask(0.0, True, True, 1.0, nothing, nothing, nothing, nothing, self._free, self._idle, mask)
        picked(rows, mask, ANY_TIME_S, nothing, nothing, nothing, nothing, nothing)

    def set_target(self, tpot_s: float | None) -> None:
        """Another tightest TPOT target; see the class."""
        self._tpot_s = (
            UNPACED if tpot_s is None or not self._settings.pace else self._settings.tpot_margin * tpot_s
        )
        self.shield.tpot_s = UNPACED if tpot_s is None else self._settings.shield * tpot_s

    def refresh(self, now_s: float) -> None:
        """Take in the table as it is now."""
        table, settings = self._table, self._settings
        if len(table) > len(self._level):
            self._grow(len(table) - len(self._level))
        look(
            now_s,
            max(now_s - self._paced_s, 0.0),
            self._tpot_s,
            settings.pace_burst_s,
            settings.kv_ceiling,
            table.waiting_prefill_s,
            table.prefill_since_s,
            table.inflight_uncached_tokens,
            table.inflight,
            table.inflight_tokens,
            table.decoding,
            table.running,
            table.waiting,
            table.kv_use,
            table.sent_since_report,
            table.sent_uncached_since_report,
            table.kv_capacity_tokens,
            table.max_seqs,
            table.d0,
            table.d1,
            table.d2,
            table.host_overhead,
            self.backlog_s,
            self.step_s,
            self._level,
            self._free,
            self._idle,
        )
        self.shield.refresh(now_s, self.step_s, self._idle)
        self._paced_s = max(now_s, self._paced_s)
        self._masks.clear()

    def _grow(self, rows: int) -> None:
        """The table has got more rows."""
        self._level = np.append(self._level, np.full(rows, self._settings.pace_burst_s))
        self._free = np.append(self._free, np.zeros(rows, dtype=bool))
        self._idle = np.append(self._idle, np.ones(rows, dtype=bool))
        self._unshielded = np.append(self._unshielded, np.full(rows, ANY_TIME_S))
        self.shield.grow(rows)
        self.backlog_s, self.step_s, self.long, self.bound = (
            np.append(column, np.zeros(rows)) for column in (self.backlog_s, self.step_s, self.long, self.bound)
        )

    def reset(self, row: int) -> None:
        """Another engine stands in ``row``: nothing of ours is there."""
        if row < len(self._level):
            self._level[row] = self._settings.pace_burst_s
            self.long[row] = self.bound[row] = 0.0
            self.shield.reset(row)

    def ceiling_s(self, rank: int) -> float:
        """Backlog below which a class of that rank may send; falls from class to class."""
        return self._settings.backlog_s * self._settings.ceiling_step**rank

    def any_open(self, item: Waiting, rank: int) -> bool:
        """Whether any endpoint at all is open to such a request: a quick first look, before the hard filters."""
        return self._mask(item, rank)[1]

    def open_rows(
        self,
        rows: IntArray,
        item: Waiting,
        rank: int,
        prefill_s: FloatArray,
        rtt_s: FloatArray,
        left_s: float = ANY_TIME_S,
        forced: bool = False,
    ) -> IntArray:
        """Those of ``rows`` that are open to a request.

        Args:
            rows: Endpoints that may serve it.
            item: The request.
            rank: Place of its class.
            prefill_s: Its prefill time at every endpoint of the table.
            rtt_s: Its round trip to every endpoint.
            left_s: Its predicted TTFT must be within this.
            forced: Where no answers can bear it, it goes all the same, to where the slack is greatest.
        """
        mask, any_open = self._mask(item, rank)
        if not any_open or (item.long and self._reserve_used(rows)):
            return rows[:0]
        shield = self.shield
        slack_s = shield.joint_s if item.long else shield.guaranteed.slack_s
        found = self._picked(rows, mask, left_s, prefill_s, rtt_s, slack_s)
        if len(found) or shield.tpot_s <= UNPACED:
            return found
        if item.long and item.guaranteed and not item.late:
            found = self._picked(rows, mask, left_s, prefill_s, rtt_s, shield.guaranteed.slack_s)
        if forced and not len(found):
            found = self._picked(rows, mask, left_s, prefill_s, rtt_s, self._unshielded)
            return found[np.argsort(-shield.joint_s[found], kind="stable")[:1]]
        return found

    def _picked(
        self,
        rows: IntArray,
        mask: BoolArray,
        left_s: float,
        prefill_s: FloatArray,
        rtt_s: FloatArray,
        slack_s: FloatArray,
    ) -> IntArray:
        return picked(rows, mask, left_s, self.backlog_s, prefill_s, self.step_s, rtt_s, slack_s)

    def _mask(self, item: Waiting, rank: int) -> tuple[BoolArray, bool]:
        """What is open to a kind of request, but for the reserve; the same until the next refresh."""
        bound, long = item.request.slo.tpot_s is not None, item.long
        found = self._masks.get((rank, bound, long))
        if found is None:
            mask = np.empty(len(self._level), dtype=bool)
            most_long = float(self._settings.long_at_once) if long else ANY_TIME_S
            any_open = open_mask(
                self.ceiling_s(rank),
                self._tpot_s > UNPACED,
                bound,
                most_long,
                self.backlog_s,
                self._level,
                self.bound,
                self.long,
                self._free,
                self._idle,
                mask,
            )
            found = self._masks[rank, bound, long] = mask, bool(any_open)
        return found

    def _reserve_used(self, rows: IntArray) -> bool:
        """Whether as many of ``rows`` carry a long prefill as may."""
        most = max(int(len(rows) * (1.0 - self._settings.reserve)), 1)
        return int(np.count_nonzero(self.long[rows])) >= most

    def prefill_s(self, input_tokens: int, hits: FloatArray) -> FloatArray:
        """Equation (2) for every endpoint."""
        seconds = np.empty(len(hits))
        prefill_into(float(input_tokens), hits, self._table.p1, self._table.p2, seconds)
        return seconds

    def least_of(
        self, rows: IntArray, prefill_s: FloatArray, rtt_s: FloatArray
    ) -> tuple[float, float, float, float]:
        """Least prefill time, time per token, round trip and idle step over ``rows`` (not empty)."""
        table = self._table
        return least_of(rows, prefill_s, table.p1, rtt_s, table.d0, table.host_overhead)

    def ttft_s(self, rows: IntArray, prefill_s: FloatArray) -> FloatArray:
        """Equation (3) without the round trip, ``prefill_s`` at the same rows."""
        seconds: FloatArray = self.backlog_s[rows] + prefill_s + self.step_s[rows]
        return seconds

    def dispatched(self, sent: Sent, prefill_s: float, now_s: float) -> None:
        """A request was sent."""
        self._level[sent.row] -= prefill_s
        self.long[sent.row] += sent.long
        self.bound[sent.row] += sent.bound
        self.shield.dispatched(sent, prefill_s, now_s)

    def first_token(self, sent: Sent, now_s: float) -> None:
        """Its prefill is done."""
        self._prefilled(sent)
        self.shield.first_token(sent, now_s)

    def finished(self, sent: Sent) -> None:
        """It has left, before its first token or after."""
        self._prefilled(sent)
        self.bound[sent.row] -= sent.bound
        self.shield.finished(sent)

    def _prefilled(self, sent: Sent) -> None:
        self.long[sent.row] -= sent.long
        sent.long = False

    def wakeup_s(self, now_s: float, prefill_s: float) -> float:
        """When time alone may open an endpoint for a prefill; infinite if it does not.

        An overdrawn pace bucket has filled up again, or answers can bear it.
        """
        wait_s = ANY_TIME_S
        behind = self._level <= 0
        if self._tpot_s > UNPACED and behind.any():
            duty = np.maximum(1.0 - self.step_s[behind] / self._tpot_s, LEAST_DUTY)
            wait_s = float((-self._level[behind] / duty).min()) + 1e-3
        if self.shield.tpot_s > UNPACED:
            wait_s = min(wait_s, max(self.shield.bears_in_s(prefill_s), LEAST_SHIELD_WAKE_S))
        return now_s + wait_s
