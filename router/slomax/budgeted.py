"""Tenants' budgets in front of a flow control that keeps none: a limit holds whatever decides about the order.

A request reserves before the flow control behind is asked, and gets everything back if that refuses it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from data.fleet.types import Fleet
from data.types import Outcome, RefusalReason
from router.slomax.budgets import Budgets, Key
from router.slomax.context import FlowContext
from router.slomax.passing import Passing
from router.slomax.refusals import Refusals
from router.slomax.settings import SloMaxSettings
from router.slomax.types import Admitted, Arrival, Dropped, FlowControl, FlowStatus, Queued, Ready, Verdict
from router.types import RouteRequest


class Budgeted(Passing):
    """See the module; each router grants the whole of every limit, and SLOMax's default bursts.

    Args:
        context: The router's view of the fleet.
        flow: Behind the budgets.
    """

    def __init__(self, context: FlowContext, flow: FlowControl) -> None:
        super().__init__(flow)
        self.budgets = Budgets(context.fleet.tenants, SloMaxSettings(), context.now_s)
        self._refusals = Refusals(np.random.default_rng([context.seed, 0xB0D6]))
        self._waiting: dict[int, Key] = {}

    def offer(self, arrival: Arrival, now_s: float) -> Verdict:
        """Reserve the worst case, then ask the flow control behind."""
        request = arrival.request
        key, worst = key_of(request), float(request.input_tokens + request.output_budget)
        wait_s = self.budgets.reserve(key, request.tenant, worst, now_s)
        if wait_s > 0:
            return self._refusals.refuse(RefusalReason.BUDGET_EXHAUSTED, wait_s)
        verdict = self.flow.offer(arrival, now_s)
        if isinstance(verdict, Queued):
            self._waiting[verdict.ticket] = key
        elif not isinstance(verdict, Admitted):
            self.budgets.undo(key, now_s)
        return verdict

    def cancel(self, ticket: int, now_s: float) -> bool:
        """It has not begun: all of it goes back."""
        self._give_back(ticket, now_s)
        return self.flow.cancel(ticket, now_s)

    def next(self, now_s: float) -> Ready | Dropped | None:
        """What is dropped gives its tokens back; it counts as a request."""
        found = self.flow.next(now_s)
        if found is not None:
            key = self._waiting.pop(found.ticket, None)
            if key is not None and isinstance(found, Dropped):
                self.budgets.settle(key, 0.0, now_s)
        return found

    def finished(self, request: RouteRequest, outcome: Outcome) -> None:
        """Settle with what the attempt used."""
        self.budgets.settle(
            key_of(request), float(outcome.input_tokens + outcome.output_tokens), outcome.finished_s
        )
        self.flow.finished(request, outcome)

    def abandoned(self, request: RouteRequest, now_s: float) -> None:
        """It was let in and could not be sent."""
        self.budgets.undo(key_of(request), now_s)
        self.flow.abandoned(request, now_s)

    def set_fleet(
        self, fleet: Fleet, now_s: float, again: Callable[[RouteRequest], RouteRequest | None]
    ) -> list[int]:
        """Budgets keep their level under the new limits; who has no place any more gives back."""
        self.budgets.set_tenants(fleet.tenants, now_s)
        gone = self.flow.set_fleet(fleet, now_s, again)
        for ticket in gone:
            self._give_back(ticket, now_s)
        return gone

    def status(self, now_s: float) -> FlowStatus:
        """What waits behind, and the state of every budget."""
        return replace(self.flow.status(now_s), budgets=self.budgets.status(now_s))

    def _give_back(self, ticket: int, now_s: float) -> None:
        key = self._waiting.pop(ticket, None)
        if key is not None:
            self.budgets.undo(key, now_s)


def key_of(request: RouteRequest) -> Key:
    """Name of a reservation."""
    return request.request_id, request.attempt
