"""A flow control under feedback: it reports to the feedback, and its corrections thin out what is offered to it.

Thinning is by credit, not by chance: with a share of 0.7 seven of ten go on, evenly spread. The guaranteed tier is
never thinned out. The flow control behind it is any other; it is not told.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from data.fleet.types import Fleet
from data.types import Outcome, RefusalReason
from router.slomax.context import FlowContext
from router.slomax.corrections import PoolClass
from router.slomax.feedback import Feedback
from router.slomax.refusals import Refusals
from router.slomax.types import Arrival, Dropped, FlowControl, FlowStatus, Ready, Verdict
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


class Corrected:
    """See the module; see ``router.slomax.types.FlowControl`` for the methods. The pool of a request is its model.

    Args:
        context: The router's view of the fleet.
        flow: Behind the feedback.
        feedback: Learns from all arrivals and ends.
    """

    def __init__(self, context: FlowContext, flow: FlowControl, feedback: Feedback) -> None:
        self.flow = flow
        self.feedback = feedback
        self._refusals = Refusals(np.random.default_rng([context.seed, 0xFEED]))
        self._first, self._further = Credit(), Credit()
        self._read(context.fleet)

    def _read(self, fleet: Fleet) -> None:
        self._exempt = {one.name for one in fleet.tenants if one.tier == "guaranteed"}
        self._slos = {kind.name: kind.slo for kind in fleet.classes}

    @property
    def name(self) -> str:
        """Name of the flow control behind, marked."""
        return f"{self.flow.name}+feedback"

    def offer(self, arrival: Arrival, now_s: float) -> Verdict:
        """Count it, thin out, then ask the flow control behind."""
        request = arrival.request
        key = request.model, request.workload_class
        self.feedback.offered(*key, request.tenant, request.attempt, request.expected_output_tokens)
        corrections = self.feedback.step(now_s)
        if request.tenant not in self._exempt:
            repeated = request.attempt > 0
            shares, credit = (
                (corrections.repeats, self._further) if repeated else (corrections.admission, self._first)
            )
            if not credit.passes(key, shares.get(key, 1.0)):
                return self._refusals.refuse(RefusalReason.OVERLOADED, self.feedback.due_s - now_s)
        return self.flow.offer(arrival, now_s)

    def cancel(self, ticket: int, now_s: float) -> bool:
        """As the flow control behind."""
        return self.flow.cancel(ticket, now_s)

    def next(self, now_s: float) -> Ready | Dropped | None:
        """As the flow control behind."""
        return self.flow.next(now_s)

    def wakeup_s(self, now_s: float) -> float:
        """As the flow control behind: corrections only bear on what arrives."""
        return self.flow.wakeup_s(now_s)

    def dispatched(self, request: RouteRequest, endpoint: int, now_s: float) -> None:
        """As the flow control behind."""
        self.flow.dispatched(request, endpoint, now_s)

    def first_token(self, request: RouteRequest, endpoint: int, now_s: float) -> None:
        """As the flow control behind."""
        self.flow.first_token(request, endpoint, now_s)

    def finished(self, request: RouteRequest, outcome: Outcome) -> None:
        """Tell both. The request carries what was left of its targets when it was sent."""
        slo = self._slos[request.workload_class]
        hopeful = slo.ttft_s is None or (request.slo.ttft_s or 0.0) >= LEAST_LEFT * slo.ttft_s
        self.feedback.ended(request.model, outcome, slo, hopeful)
        self.flow.finished(request, outcome)

    def abandoned(self, request: RouteRequest, now_s: float) -> None:
        """As the flow control behind."""
        self.flow.abandoned(request, now_s)

    def endpoint_reset(self, endpoint: int) -> None:
        """As the flow control behind."""
        self.flow.endpoint_reset(endpoint)

    def set_quotas(self, quotas: Mapping[tuple[str, str], float], now_s: float) -> None:
        """As the flow control behind: a plan that was made with the corrections holds them already."""
        self.flow.set_quotas(quotas, now_s)

    def set_fleet(
        self, fleet: Fleet, now_s: float, again: Callable[[RouteRequest], RouteRequest | None]
    ) -> list[int]:
        """As the flow control behind; what was learned stays."""
        self._read(fleet)
        return self.flow.set_fleet(fleet, now_s, again)

    def status(self, now_s: float) -> FlowStatus:
        """As the flow control behind."""
        return self.flow.status(now_s)
