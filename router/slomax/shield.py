"""How much prefill the answers that are being written at each endpoint can still bear.

The average prefill of an endpoint is held by the pace of the gate; a short answer has no time to average. One of
``n`` tokens meets its target ``T`` if its ``n − 1`` gaps take no more than ``(n − 1)·T``, so a single long prefill
that lands just after its first token is enough to lose it. Since its length is not known, its next token is always
treated as the last: after ``k`` gaps it may have taken ``(k + 1)·T``. For endpoint ``i``, with one decode step of
``step_i`` and the margin ``m``:

(6)  ``slack_i += dt · (m·T / step_i − 1)``   while answers with a TPOT target are in progress there
     ``slack_i −= S_i``                       at each dispatch, ``S_i`` the prefill of what was sent
     ``slack_i = min(slack_i, m·T − step_i)`` when such a request is sent and when its answer begins
     ``slack_i = ∞``                          where none is in progress

While a prefill runs, (6) grows as if decode went on; a margin below 1 allows for that.

The newest answer has the least slack, so one number an endpoint will do. A *long* prefill goes where
``S_i <= slack_i``, any other one goes regardless: where all prompts take a tenth of a second, waiting for
everybody's answers cost 3 to 7 % of the Goodput. Answers of the guaranteed tier have a slack of their own besides,
with a smaller ``m``, that every prefill must leave them; a request of that tier that finds no other place passes
over the slack of the other tiers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from data.types import FloatArray
from router.slomax.gate_kernels import LEAST_GAIN, UNPACED, grow_slack
from router.slomax.sent import Sent
from router.types import BoolArray

UNSHIELDED_S = float("inf")
GUARANTEED_MARGIN = 0.6
"""Factor on ``m`` for answers of the guaranteed tier."""


@dataclass(slots=True)
class Answers:
    """Answers in progress and their slack, by endpoint; ``slack_s`` is as of ``since_s``."""

    count: FloatArray
    slack_s: FloatArray
    since_s: FloatArray

    @classmethod
    def none(cls, rows: int) -> Answers:
        """None anywhere."""
        return cls(np.zeros(rows), np.full(rows, UNSHIELDED_S), np.zeros(rows))

    def grow(self, rows: int) -> None:
        """The table has got more rows."""
        self.count = np.append(self.count, np.zeros(rows))
        self.slack_s = np.append(self.slack_s, np.full(rows, UNSHIELDED_S))
        self.since_s = np.append(self.since_s, np.zeros(rows))


class Shield:
    """Slack of all answers with a TPOT target, and of those of the guaranteed tier.

    Args:
        rows: Endpoints of the table.
    """

    def __init__(self, rows: int) -> None:
        self.all = Answers.none(rows)
        self.guaranteed = Answers.none(rows)
        self._kinds = ((self.all, 1.0), (self.guaranteed, GUARANTEED_MARGIN))
        self.joint_s = np.full(rows, UNSHIELDED_S)
        """Slack of all answers, as of the last refresh."""
        self._step_s: FloatArray = np.zeros(rows)
        self.tpot_s = UNPACED
        """``m·T``; 0 = nothing is shielded."""

    def grow(self, rows: int) -> None:
        """The table has got more rows."""
        self.all.grow(rows)
        self.guaranteed.grow(rows)
        self.joint_s = np.append(self.joint_s, np.full(rows, UNSHIELDED_S))

    def reset(self, row: int) -> None:
        """Another engine stands in ``row``."""
        for answers in (self.all, self.guaranteed):
            answers.count[row], answers.slack_s[row] = 0.0, UNSHIELDED_S

    def refresh(self, now_s: float, step_s: FloatArray, idle: BoolArray) -> None:
        """First and last line of equation (6)."""
        self._step_s = step_s
        for answers, margin in self._kinds:
            grow_slack(now_s, margin * self.tpot_s, step_s, idle, answers.count, answers.slack_s, answers.since_s)
        np.minimum(self.all.slack_s, self.guaranteed.slack_s, out=self.joint_s)

    def dispatched(self, sent: Sent, prefill_s: float, now_s: float) -> None:
        """A request was sent: second and third line."""
        self.all.slack_s[sent.row] -= prefill_s
        self.guaranteed.slack_s[sent.row] -= prefill_s
        for answers, _ in self._of(sent):
            answers.count[sent.row] += 1.0
        self.first_token(sent, now_s)

    def first_token(self, sent: Sent, now_s: float) -> None:
        """Its answer begins: third line."""
        for answers, margin in self._of(sent):
            first_s = max(margin * self.tpot_s - self._step_s[sent.row], 0.0)
            answers.since_s[sent.row] = now_s
            answers.slack_s[sent.row] = min(answers.slack_s[sent.row], first_s)

    def finished(self, sent: Sent) -> None:
        """It has left."""
        for answers, _ in self._of(sent):
            answers.count[sent.row] -= 1.0

    def bears_in_s(self, prefill_s: float) -> float:
        """Time until another endpoint's guaranteed answers can bear a prefill; infinite if none's will do."""
        missing = prefill_s - self.guaranteed.slack_s
        behind = missing > 0.0
        if not behind.any():
            return UNSHIELDED_S
        gain = np.maximum(GUARANTEED_MARGIN * self.tpot_s / self._step_s[behind] - 1.0, LEAST_GAIN)
        return float((missing[behind] / gain).min())

    def _of(self, sent: Sent) -> tuple[tuple[Answers, float], ...]:
        """Which answers it is one of, with their factors on the margin."""
        if not sent.bound:
            return ()
        return self._kinds if sent.guaranteed else self._kinds[:1]
