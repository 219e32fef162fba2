"""How much prefill the answers of the guaranteed tier that are being written at each endpoint can still bear.

The average prefill of an endpoint is held by the pace of the gate; a short answer has no time to average. One of
``n`` tokens meets its target ``T`` if its ``n − 1`` gaps take no more than ``(n − 1)·T``, so a single long prefill
that lands just after its first token is enough to lose it. Since its length is not known, its next token is always
treated as the last: after ``k`` gaps it may have taken ``(k + 1)·T``. For endpoint ``i``, with one decode step of
``step_i`` and the margin ``m``:

(6)  ``slack_i += dt · (m·T / step_i − 1)``   while such answers with a TPOT target are in progress there
     ``slack_i −= S_i``                       at each dispatch, ``S_i`` the prefill of what was sent
     ``slack_i = min(slack_i, m·T − step_i)`` when such a request is sent and when its answer begins
     ``slack_i = ∞``                          where none is in progress

While a prefill runs, (6) grows as if decode went on; the margin allows for that. A request goes where
``S_i <= slack_i``. The newest answer has the least slack, so one number an endpoint will do. Other tiers have no
shield: for all answers it costs more Goodput than it saves.
"""

from __future__ import annotations

import numpy as np

from data.types import FloatArray
from router.slomax.gate_kernels import LEAST_GAIN, UNPACED, grow_slack
from router.slomax.sent import Sent
from router.types import BoolArray

UNSHIELDED_S = float("inf")


class Shield:
    """Slack of the answers of the guaranteed tier, by endpoint.

    Args:
        rows: Endpoints of the table.

    Attributes:
        slack_s: As of the last refresh; infinite where nothing is shielded.
        tpot_s: ``m·T``; 0 = nothing is shielded.
    """

    def __init__(self, rows: int) -> None:
        self.slack_s: FloatArray = np.full(rows, UNSHIELDED_S)
        self.tpot_s = UNPACED
        self._count: FloatArray = np.zeros(rows)
        self._since_s: FloatArray = np.zeros(rows)
        self._step_s: FloatArray = np.zeros(rows)

    def grow(self, rows: int) -> None:
        """The table has got more rows."""
        self.slack_s = np.append(self.slack_s, np.full(rows, UNSHIELDED_S))
        self._count = np.append(self._count, np.zeros(rows))
        self._since_s = np.append(self._since_s, np.zeros(rows))

    def reset(self, row: int) -> None:
        """Another engine stands in ``row``."""
        self._count[row], self.slack_s[row] = 0.0, UNSHIELDED_S

    def refresh(self, now_s: float, step_s: FloatArray, idle: BoolArray) -> None:
        """First and last line of equation (6)."""
        self._step_s = step_s
        grow_slack(now_s, self.tpot_s, step_s, idle, self._count, self.slack_s, self._since_s)

    def dispatched(self, sent: Sent, prefill_s: float, now_s: float) -> None:
        """A request was sent: second and third line."""
        self.slack_s[sent.row] -= prefill_s
        if sent.shielded:
            self._count[sent.row] += 1.0
            self.first_token(sent, now_s)

    def first_token(self, sent: Sent, now_s: float) -> None:
        """Its answer begins: third line."""
        if sent.shielded:
            first_s = max(self.tpot_s - self._step_s[sent.row], 0.0)
            self._since_s[sent.row] = now_s
            self.slack_s[sent.row] = min(self.slack_s[sent.row], first_s)

    def finished(self, sent: Sent) -> None:
        """It has left."""
        self._count[sent.row] -= sent.shielded

    def bears_in_s(self, prefill_s: float) -> float:
        """Time until another endpoint's answers can bear a prefill; infinite if none's will do."""
        missing = prefill_s - self.slack_s
        behind = missing > 0.0
        if not behind.any():
            return UNSHIELDED_S
        gain = np.maximum(self.tpot_s / self._step_s[behind] - 1.0, LEAST_GAIN)
        return float((missing[behind] / gain).min())
