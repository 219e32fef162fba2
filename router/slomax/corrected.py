"""A flow control under feedback: it reports to the feedback, and its corrections thin out what is offered to it.

Thinning is by credit, not by chance: with a share of 0.7 seven of ten go on, evenly spread. The guaranteed tier is
never thinned out. The flow control behind it is any other; one that shares by weight is told of debts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from data.fleet.types import Fleet
from data.plan import PoolSplit
from data.types import Outcome, RefusalReason
from router.slomax.context import FlowContext
from router.slomax.corrections import Corrections, PoolClass
from router.slomax.expected import expected_of
from router.slomax.feedback import Feedback
from router.slomax.feedback_state import SavedFeedback
from router.slomax.passing import Passing
from router.slomax.refusals import Refusals
from router.slomax.types import Arrival, FlowControl, Verdict
from router.types import RouteRequest

LEAST_LEFT = 0.2
"""With less than this share of its TTFT target left, a request counts as lost before it was sent."""


class Credit:
    """Lets a share of calls through, evenly spread."""

    def __init__(self) -> None:
        self._credit: dict[PoolClass, float] = {}

    def passes(self, key: PoolClass, share: float) -> bool:
        """Whether this one goes on."""
        if share >= 1.0:
            return True
        credit = self._credit.get(key, 0.5) + share
        passed = credit >= 1.0
        self._credit[key] = credit - passed
        return passed


class Corrected(Passing):
    """See the module; see ``router.slomax.types.FlowControl`` for the methods. The pool of a request is its model.

    Args:
        context: The router's view of the fleet.
        flow: Behind the feedback.
        feedback: Learns from all arrivals and ends.
        share: Share of the traffic that this router sees (above 0, at most 1), so of what a plan promises.
    """

    def __init__(self, context: FlowContext, flow: FlowControl, feedback: Feedback, share: float = 1.0) -> None:
        super().__init__(flow)
        self.feedback = feedback
        self._share = share
        self._splits: tuple[PoolSplit, ...] = ()
        self._refusals = Refusals(np.random.default_rng([context.seed, 0xFEED]))
        self._first, self._further = Credit(), Credit()
        self._read(context.fleet)

    def _read(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._exempt = {one.name for one in fleet.tenants if one.tier == "guaranteed"}
        self._slos = {kind.name: kind.slo for kind in fleet.classes}
        self.feedback.expect(expected_of(fleet, self._splits, self._share))

    @property
    def corrections(self) -> Corrections:
        """What is corrected now."""
        return self.feedback.corrections

    def expect(self, splits: Iterable[PoolSplit]) -> None:
        """Another plan is in force; what was learned stays."""
        self._splits = tuple(splits)
        self._read(self._fleet)

    def step(self, now_s: float) -> Corrections:
        """Take the next step if it is due, and pass on what tenants are owed; gives the corrections."""
        before = self.feedback.corrections
        now = self.feedback.step(now_s)
        if now is not before:
            self.set_debts(now.debt_of)
        return now

    def restore(self, saved: SavedFeedback, now_s: float) -> None:
        """Go on where another process was; see ``Feedback.restore``. ``now_s`` is the time since 1970."""
        self.set_debts(self.feedback.restore(saved.state, max(now_s - saved.saved_at_s, 0.0), now_s).debt_of)

    @property
    def name(self) -> str:
        """Name of the flow control behind, marked."""
        return f"{self.flow.name}+feedback"

    def offer(self, arrival: Arrival, now_s: float) -> Verdict:
        """Count it, thin out, then ask the flow control behind."""
        request = arrival.request
        key = request.model, request.workload_class
        corrections = self.step(now_s)
        if not arrival.again:
            self.feedback.offered(*key, request.tenant, request.attempt, request.expected_output_tokens)
        if not arrival.again and request.tenant not in self._exempt:
            repeated = request.attempt > 0
            shares, credit = (
                (corrections.repeats, self._further) if repeated else (corrections.admission, self._first)
            )
            if not credit.passes(key, shares.get(key, 1.0)):
                return self._refusals.refuse(RefusalReason.OVERLOADED, self.feedback.due_s - now_s)
        return self.flow.offer(arrival, now_s)

    def finished(self, request: RouteRequest, outcome: Outcome) -> None:
        """Tell both. The request carries what was left of its targets when it was sent."""
        slo = self._slos.get(request.workload_class)
        if slo is not None:  # its class is still in the fleet file
            hopeful = slo.ttft_s is None or (request.slo.ttft_s or 0.0) >= LEAST_LEFT * slo.ttft_s
            self.feedback.ended(request.model, outcome, slo, hopeful)
        self.flow.finished(request, outcome)

    def set_fleet(
        self, fleet: Fleet, now_s: float, again: Callable[[RouteRequest], RouteRequest | None]
    ) -> list[int]:
        """As the flow control behind; what was learned stays."""
        self._read(fleet)
        return self.flow.set_fleet(fleet, now_s, again)
