"""The life of requests in a run: offered, routed, sent, served, and what clients do when that fails."""

from __future__ import annotations

import math
from typing import Any

from data.fleet.types import Fleet, WorkloadClass
from data.types import IntArray, RefusalReason, Request, Slo, Status
from planner.sim.accounts import Accounts, outcome_of
from planner.sim.arrivals import Arrivals
from planner.sim.clients import Clients, Deadlines
from planner.sim.end_reasons import CLIENT_CANCELLED, CRASHED, LINK_CUT, NOT_CONNECTED, TIMED_OUT
from planner.sim.engines import Engines
from planner.sim.events import EventQueue
from planner.sim.flight import ClassState, Flight
from planner.sim.lifecycle import Lifecycle
from planner.sim.links import Links
from planner.sim.network import Network
from planner.sim.permissions import Permissions
from planner.sim.router_side import RouterSide
from planner.sim.sequence import Sequence
from planner.sim.waiting_room import WaitingRoom
from router.core import Decision
from router.slomax.time_left import with_time_left
from router.slomax.types import Refused
from router.types import FleetView, RouteRequest

UNKNOWN = "(unknown)"
"""Group of requests whose class or tenant the fleet file does not name."""


class Simulation:
    """Carries every request from its arrival to its end; see ``run`` for how the parts are put together.

    Args:
        fleet: Names of classes, tenants and models.
        arrivals: Where ended requests are told, for closed-loop turns.
        engines: The replicas.
        lifecycle: Which of them are up.
        router: The router.
        network: Paths.
        clients: Time-outs, cancels, retries.
        events: The event queue that all parts share.
        accounts: Counts and records.
        links: Cut links.
        room: Where requests wait for their dispatch; ``None`` = every request is sent on arrival.
    """

    def __init__(
        self,
        fleet: Fleet,
        arrivals: Arrivals,
        engines: Engines,
        lifecycle: Lifecycle,
        router: RouterSide,
        network: Network,
        clients: Clients,
        events: EventQueue,
        accounts: Accounts,
        links: Links,
        room: WaitingRoom | None = None,
    ) -> None:
        self._arrivals = arrivals
        self._engines = engines
        self._lifecycle = lifecycle
        self._router = router
        self._network = network
        self._clients = clients
        self._events = events
        self._accounts = accounts
        self._room = room
        if room is not None:
            room.on_sent, room.on_refused = self._send, self._turned_away
        self._models = tuple(model.key for model in fleet.models)
        self._tenants = {tenant.name: tenant for tenant in fleet.tenants}
        self._classes = {kind.name: ClassState(kind) for kind in fleet.classes}
        self._unknown_class = ClassState(WorkloadClass(UNKNOWN, Slo()))
        self._deadlines = {
            kind.name: Deadlines(timeout_s, events, self._on_timeout)
            for kind in fleet.classes
            if (timeout_s := clients.timeout_s(kind)) is not None
        }
        self._permissions = Permissions(fleet, router.table.specs)
        self.endpoint_requests = [0] * len(engines.replicas)
        self.open_requests = 0
        """Requests that were offered and have not ended."""
        self.last_change_s = -math.inf
        """When a request was last offered or ended."""
        engines.on_step = self._on_step
        engines.on_kv = router.observer.kv_changed
        lifecycle.on_lost = self._on_lost
        lifecycle.on_left = router.left
        self._links, links.on_broken = links, self._on_broken

    def offer(self, request: Request, now_s: float) -> None:
        """A request arrives for the first time. An empty name stands for the fleet's first of its kind."""
        kind = request.workload_class or next(iter(self._classes), "")
        tenant = request.tenant or next(iter(self._tenants), "")
        state = self._classes.get(kind, self._unknown_class)
        known_tenant = not self._tenants or tenant in self._tenants
        named = self._tenants.get(tenant)
        tier = named.tier if named is not None else "standard" if known_tenant else UNKNOWN
        groups = self._accounts.offered(state.kind.name, tenant if known_tenant else UNKNOWN, tier)
        self.open_requests += 1
        self.last_change_s = now_s
        model = request.model or (self._models[0] if self._models else "")
        paths = self._network.paths(request.origin)
        flight = Flight(request, state, groups, paths, now_s, model, tenant)
        deadlines = self._deadlines.get(state.kind.name)
        if deadlines is not None:
            deadlines.watch(flight)
        patience_s = self._clients.cancels_after_s(request, state.kind.slo)
        if patience_s is not None:
            self._events.push(now_s + patience_s, self._on_impatience, flight)
        self._try(now_s, flight)

    def _try(self, now_s: float, flight: Flight) -> None:
        """Route the flight's current attempt."""
        if not flight.open:
            return
        router = self._router
        route = router.request(flight)
        view = router.view(flight, now_s)
        flight.begin(now_s)
        if flight.state is self._unknown_class:
            decision: Decision | RefusalReason = RefusalReason.UNKNOWN_CLASS
        elif self._room is not None:
            self._room.ask(now_s, flight, route)
            return
        else:
            decision = router.decide(route, flight, view)
        self._carry_out(now_s, flight, route, view, decision)

    def _send(self, now_s: float, flight: Flight, route: RouteRequest, rows: IntArray) -> None:
        """Route a flight that the flow control has let through to one of ``rows``."""
        view = self._router.view(flight, now_s)
        flight.decided_s = now_s
        left = with_time_left(route, now_s - flight.arrival_s)
        self._carry_out(now_s, flight, left, view, self._router.decide(left, flight, view, rows))

    def _turned_away(self, now_s: float, flight: Flight, route: RouteRequest, refused: Refused) -> None:
        router = self._router
        self._accounts.refused(route, router.view(flight, now_s), router.policy)
        self._ended(now_s, flight, Status.REJECTED, refused.reason, hint_s=refused.retry_after_s)

    def _carry_out(
        self,
        now_s: float,
        flight: Flight,
        route: RouteRequest,
        view: FleetView,
        decision: Decision | RefusalReason,
    ) -> None:
        """Dispatch as decided, or end the attempt as refused."""
        router = self._router
        if isinstance(decision, RefusalReason):
            self._accounts.refused(route, view, router.policy)
            self._ended(now_s, flight, Status.REJECTED, decision)
            return
        endpoint = decision.endpoint
        self._accounts.decided(route, decision, router.policy)
        flight.route, flight.endpoint, flight.active = route, endpoint, True
        flight.lease = router.dispatch(route, decision)
        if self._room is not None:
            self._room.sent(flight, now_s)
        self._count_dispatch(now_s, flight)
        delay_s = flight.paths.sent_after_s(endpoint, route.input_tokens)
        if delay_s > 0.0:
            self._events.push(now_s + delay_s, self._deliver, (flight, flight.attempt))
        else:
            self._deliver(now_s, (flight, flight.attempt))

    def _count_dispatch(self, now_s: float, flight: Flight) -> None:
        endpoint = flight.endpoint
        self._links.sent(flight, now_s)
        self.endpoint_requests[endpoint] += 1
        self._lifecycle.in_flight[endpoint] += 1
        if not self._permissions.may_run(flight.tenant, flight.model, endpoint):
            self._accounts.meter.residency_breaches += 1

    def _deliver(self, now_s: float, argument: tuple[Flight, int]) -> None:
        """The prompt reaches the engine."""
        flight, attempt = argument
        if not flight.active or flight.attempt != attempt or flight.broken:
            return
        endpoint, request = flight.endpoint, flight.request
        if not self._lifecycle.up(endpoint):
            self._back(now_s, self._on_refused, flight, (Status.FAILED, NOT_CONNECTED))
            return
        flight.delivered_s = now_s
        flight.sequence = self._engines.accept(endpoint, request, flight, now_s)
        if flight.sequence is None:
            self._back(now_s, self._on_refused, flight, (Status.REJECTED, RefusalReason.CONTEXT_TOO_LONG))

    def _back(self, now_s: float, handler: Any, flight: Flight, what: Any) -> None:
        """Something comes back from the engine: it is half a round trip under way."""
        half_s = flight.paths.half_rtt_s[flight.endpoint]
        argument = (flight, flight.attempt, what)
        if half_s > 0.0:
            self._events.push(now_s + half_s, handler, argument)
        else:
            handler(now_s, argument)

    def _on_step(self, now_s: float, firsts: list[Sequence], ended: list[Sequence]) -> None:
        for sequence in firsts:
            flight: Flight = sequence.owner
            flight.engine_first_s = now_s
            self._back(now_s, self._on_first, flight, None)
        for sequence in ended:
            self._back(now_s, self._on_completed, sequence.owner, now_s)

    def _on_lost(self, now_s: float, lost: list[Sequence]) -> None:
        for sequence in lost:
            self._back(now_s, self._on_refused, sequence.owner, (Status.FAILED, CRASHED))

    def _on_first(self, now_s: float, argument: tuple[Flight, int, None]) -> None:
        flight, attempt, _ = argument
        if flight.active and flight.attempt == attempt and not flight.broken:
            flight.first_s = now_s
            self._router.first_token(flight, now_s)
            if self._room is not None:
                self._room.first_token(flight, now_s)

    def _on_completed(self, now_s: float, argument: tuple[Flight, int, float]) -> None:
        flight, attempt, engine_end_s = argument
        if flight.active and flight.attempt == attempt and not flight.broken:
            self._ended(now_s, flight, Status.COMPLETED, "", engine_end_s=engine_end_s)

    def _on_refused(self, now_s: float, argument: tuple[Flight, int, tuple[Status, str]]) -> None:
        flight, attempt, (status, reason) = argument
        if flight.active and flight.attempt == attempt and not flight.broken:
            self._ended(now_s, flight, status, reason)

    def _on_broken(self, now_s: float, flight: Flight) -> None:
        """The connection of the flight's attempt is found dead; both ends let go of it."""
        self._ended(now_s, flight, Status.FAILED, LINK_CUT, progress=self._engines.stop(flight, now_s))

    def _on_timeout(self, now_s: float, flight: Flight) -> None:
        if math.isnan(flight.first_s):
            self._cancel(now_s, flight, TIMED_OUT)

    def _on_impatience(self, now_s: float, flight: Flight) -> None:
        if flight.open:
            self._cancel(now_s, flight, CLIENT_CANCELLED)

    def _cancel(self, now_s: float, flight: Flight, reason: str) -> None:
        # The engine hears of it at once; half a round trip more or less changes nothing that is counted.
        self._ended(now_s, flight, Status.CANCELLED, reason, progress=self._engines.stop(flight, now_s))

    def _ended(
        self,
        now_s: float,
        flight: Flight,
        status: Status,
        reason: str,
        engine_end_s: float = math.nan,
        progress: tuple[int, int] | None = None,
        hint_s: float = 0.0,
    ) -> None:
        """The current attempt has ended: release, record, then end the request or try again."""
        outcome, queued, router = outcome_of(now_s, flight, status, reason, progress), flight.waiting, self._router
        if queued and self._room is not None:
            route = self._room.cancel(flight, now_s)
            self._accounts.refused(route, router.view(flight, now_s), router.policy)
        retry_s = self._clients.retry_after_s(flight.attempt, status, reason, hint_s)
        if flight.active or queued or status is Status.REJECTED:
            self._accounts.attempt(flight, outcome, engine_end_s, progress, again=retry_s is not None)
        if flight.active:
            flight.active = False
            # The sequence points back at the flight: without this only the garbage collector could free them.
            flight.sequence = None
            router.finished(flight, outcome)
            self._links.ended(flight)
            self._lifecycle.flight_ended(flight.endpoint, now_s)
            if self._room is not None:
                self._room.finished(flight, outcome)
        if status is Status.COMPLETED:
            self._accounts.completed(flight, outcome)
            self._close(now_s, flight, completed=True)
        else:
            self._again_or_close(now_s, flight, status, retry_s)
        if self._room is not None:
            self._room.pump(now_s)

    def _again_or_close(self, now_s: float, flight: Flight, status: Status, retry_s: float | None) -> None:
        """After an attempt without success: the client tries again or gives up."""
        if retry_s is None:
            self._accounts.gave_up(flight, status)
            self._close(now_s, flight, completed=False)
            return
        self._accounts.repeated(flight)
        flight.attempt += 1
        self._events.push(now_s + retry_s, self._try, flight)

    def _close(self, now_s: float, flight: Flight, completed: bool) -> None:
        flight.open = False
        self.open_requests -= 1
        self.last_change_s = now_s
        self._arrivals.ended(flight.request.request_id, now_s, completed)
