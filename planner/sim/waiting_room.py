"""The flow control inside a run: its tickets belong to flights, its wake-ups are events."""

from __future__ import annotations

import math
from collections.abc import Callable

from data.fleet.types import Fleet
from data.types import IntArray, Outcome, RefusalReason
from planner.sim.events import EventQueue
from planner.sim.flight import Flight
from planner.sim.network import Network
from planner.sim.router_side import RouterSide
from router.filters import refusal_reason
from router.slomax.context import FlowContext
from router.slomax.types import Arrival, FlowControl, Queued, Ready, Refused
from router.types import RouteRequest

OnSent = Callable[[float, Flight, RouteRequest, IntArray], None]
OnRefused = Callable[[float, Flight, RouteRequest, Refused], None]
FlowFactory = Callable[[FlowContext], FlowControl]
"""Makes the flow control of one run."""


class WaitingRoom:
    """Stands between arrivals and the router.

    Args:
        make: Makes the flow control.
        fleet: Classes and tenants.
        router: The router; its hard filters are asked for candidates.
        network: Paths of each origin.
        events: Where wake-ups are put.
        seed: Of the run.
        now_s: Start of the run.

    Attributes:
        on_sent: Called with each flight that goes to one of some rows; set by whoever puts the run together.
        on_refused: Called with each that is turned away; the same.
    """

    def __init__(
        self,
        make: FlowFactory,
        fleet: Fleet,
        router: RouterSide,
        network: Network,
        events: EventQueue,
        seed: int,
        now_s: float,
    ) -> None:
        self._router = router
        self._network = network
        self._events = events
        self._flights: dict[int, tuple[Flight, RouteRequest]] = {}
        self._tickets: dict[int, int] = {}
        self._armed_s = math.inf
        self._pumping = False
        self.on_sent: OnSent
        self.on_refused: OnRefused
        context = FlowContext(
            fleet=fleet,
            table=router.table,
            prefixes=router.index,
            candidates=lambda route: router.core.candidates(route, network.paths(route.origin).reachable),
            reason=self._reason,
            rtt_s=lambda origin: network.paths(origin).rtt_s,
            seed=seed,
            now_s=now_s,
        )
        self.flow = make(context)

    def __len__(self) -> int:
        """Requests that wait."""
        return len(self._flights)

    def ask(self, now_s: float, flight: Flight, route: RouteRequest) -> None:
        """Let the flow control say whether a flight's current attempt goes, waits or is turned away."""
        self._router.observer.refresh(now_s)
        verdict = self.flow.offer(Arrival(route, flight.arrival_s), now_s)
        if isinstance(verdict, Queued):
            flight.waiting = True
            self._flights[verdict.ticket] = flight, route
            self._tickets[flight.request.request_id] = verdict.ticket
        elif isinstance(verdict, Refused):
            self.on_refused(now_s, flight, route, verdict)
        else:
            self.on_sent(now_s, flight, route, verdict.rows)
        self.pump(now_s)

    def pump(self, now_s: float) -> None:
        """Do what the flow control has to do now; what that causes is done by the same loop."""
        if self._pumping:
            return
        self._pumping = True
        self._router.observer.refresh(now_s)
        while (found := self.flow.next(now_s)) is not None:
            flight, route = self._forget(found.ticket)
            if isinstance(found, Ready):
                self.on_sent(now_s, flight, route, found.rows)
            else:
                self.on_refused(now_s, flight, route, found.refused)
        self._arm(now_s)
        self._pumping = False

    def cancel(self, flight: Flight, now_s: float) -> RouteRequest:
        """The client of a waiting flight has gone; gives what it had asked."""
        ticket = self._tickets[flight.request.request_id]
        if not self.flow.cancel(ticket, now_s):
            raise RuntimeError(f"flow control {self.flow.name} does not know the waiting ticket {ticket}")
        return self._forget(ticket)[1]

    def sent(self, flight: Flight, now_s: float) -> None:
        """A flight was dispatched."""
        assert flight.route is not None
        self.flow.dispatched(flight.route, flight.endpoint, now_s)

    def first_token(self, flight: Flight, now_s: float) -> None:
        """Its first token came; others may go now."""
        assert flight.route is not None
        self.flow.first_token(flight.route, flight.endpoint, now_s)
        self.pump(now_s)

    def finished(self, flight: Flight, outcome: Outcome) -> None:
        """Its dispatched attempt ended."""
        assert flight.route is not None
        self.flow.finished(flight.route, outcome)

    def _forget(self, ticket: int) -> tuple[Flight, RouteRequest]:
        flight, route = self._flights.pop(ticket)
        del self._tickets[flight.request.request_id]
        flight.waiting = False
        return flight, route

    def _reason(self, route: RouteRequest) -> RefusalReason:
        return refusal_reason(route, self._router.table, self._router.rules) or RefusalReason.NO_ENDPOINT

    def _arm(self, now_s: float) -> None:
        at_s = self.flow.wakeup_s(now_s)
        if at_s < self._armed_s:
            self._armed_s = at_s
            self._events.push(at_s, self._wake, at_s)

    def _wake(self, now_s: float, at_s: float) -> None:
        if at_s == self._armed_s:
            self._armed_s = math.inf
            self.pump(now_s)
