"""The flow control of a running router: who waits, whose turn has come, and what each is answered.

No gRPC and no timers here: ``ask`` answers at once or gives a ticket and calls back later; whoever runs the router
calls ``pump`` when ``arm`` said so. All calls come from one thread.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable

import numpy as np

from data.plan import PlanDocument
from data.types import IntArray, RefusalReason
from router.flow.first_arrivals import FirstArrivals
from router.flow.flow_hooks import Clearance
from router.flow.flow_listener import FlowListener
from router.flow.holding import HOLDABLE, HoldingBay
from router.flow.silence import SilenceWatch
from router.flow.waiter import Answer, Key, Waiter, key_of
from router.pb.v1 import router_pb2 as pb
from router.serving.live import LiveRouter
from router.serving.wire_request import Asked
from router.slomax.context import FlowContext
from router.slomax.corrected import Corrected
from router.slomax.refusals import Refusals
from router.slomax.types import Admitted, FlowControl, FlowStatus, Queued, Ready, Refused
from router.types import RouteRequest

SEEN_EVERY_S = 1.0
LAST_WORD_S = 0.05
"""A refusal leaves this long before the caller's deadline, so that it still arrives."""


class FlowDesk:
    """Stands in front of a ``LiveRouter``.

    Args:
        live: The router.
        make: Makes the flow control.
        seed: Of the jitter of retry hints.

    Attributes:
        flow: The flow control.
        corrected: The same, if it is under feedback; else ``None``.
        listener: Must be told of everything that the router does.
        silence: Notices callers that do not report.
        seen: Queues and budgets as of a second ago at most, for readers on other threads.
        arm: Told when ``pump`` must be called next (the router's clock); set by whoever runs the router.
    """

    def __init__(self, live: LiveRouter, make: Callable[[FlowContext], FlowControl], seed: int = 0) -> None:
        self._live = live
        self._waiting: dict[int, Waiter] = {}
        self._keys: dict[Key, Waiter] = {}
        self._held = HoldingBay(live)
        self._arrivals = FirstArrivals()
        self._refusals = Refusals(np.random.default_rng([seed, 0x512]))
        self._pumping = False
        self.arm: Callable[[float], None] = lambda _: None
        context = FlowContext(
            fleet=live.state.fleet,
            table=live.core.table,
            prefixes=live.index,
            candidates=self._candidates,
            reason=live.core.refusal_reason,
            rtt_s=lambda origin: live.state.paths.of(origin).rtt_s,
            seed=seed,
            now_s=live.clock(),
        )
        self.flow = make(context)
        self.corrected = self.flow if isinstance(self.flow, Corrected) else None
        self.seen = FlowStatus((), ())
        self._see_again_s = -math.inf
        self.silence = SilenceWatch()
        self.listener = FlowListener(self.flow, self._arrivals, self._opened, self.silence)

    def __len__(self) -> int:
        """Requests that wait, held ones included."""
        return len(self._waiting) + len(self._held)

    @property
    def held(self) -> int:
        """Requests that wait for an engine to come up."""
        return len(self._held)

    def ask(
        self, asked: pb.RouteRequest, tenant: str, owner: str, left_s: float | None, answer: Answer
    ) -> pb.RouteReply | int:
        """Answer, or let wait.

        Args:
            asked: The request.
            tenant: Tenant that the verified caller is bound to; empty = the request's own counts.
            owner: The caller.
            left_s: Time until the caller's deadline; ``None`` = none.
            answer: Called once, later, if a ticket is given and not handed back with ``leave``.

        Raises:
            InvalidRequestError: The request itself is wrong.
        """
        read = self._live.prepare(asked, tenant, owner)
        if isinstance(read, pb.RouteReply):
            return read
        ttl_s = math.inf if left_s is None else max(left_s - LAST_WORD_S, 0.0)
        waiter = self._waiter(asked, read, tenant, owner, min(ttl_s, asked.queue_ttl_s or math.inf), answer)
        now_s = waiter.asked_s
        verdict = self._offer(waiter, now_s)
        if isinstance(verdict, Queued):
            self._waiting[verdict.ticket] = waiter
            self.arm(now_s)
            return verdict.ticket
        if isinstance(verdict, Refused) and verdict.reason in HOLDABLE:
            return self._hold(waiter, verdict, now_s)
        return self._reply(waiter, verdict)

    def at_once(self, asked: pb.RouteRequest, read: Asked, owner: str) -> pb.RouteReply:
        """Answer a request that must not wait: refused as overloaded where it would have to."""
        got: list[pb.RouteReply | Exception] = []
        waiter = self._waiter(asked, read, "", owner, math.inf, got.append)
        verdict = self._offer(waiter, waiter.asked_s)
        if not isinstance(verdict, Queued):
            return self._reply(waiter, verdict)
        self._waiting[verdict.ticket] = waiter
        self.pump()
        if self.leave(verdict.ticket):
            return self._reply(waiter, self._refusals.refuse(RefusalReason.OVERLOADED, verdict.expected_wait_s))
        if isinstance(got[0], Exception):
            raise got[0]
        return got[0]

    def _waiter(
        self, asked: pb.RouteRequest, read: Asked, tenant: str, owner: str, ttl_s: float, answer: Answer
    ) -> Waiter:
        now_s = self._live.clock()
        if key_of(read.request) in self._keys:
            read = self._live.state.reader.renumbered(read)
        request = read.request
        arrived_s = self._arrivals.of(request.request_id, request.attempt, now_s)
        return Waiter(asked, read, tenant, owner, arrived_s, now_s, ttl_s, answer)

    def leave(self, ticket: int) -> bool:
        """The caller of a waiting request has gone; gives whether it was still waiting."""
        if ticket < 0:
            waiter = self._held.remove(ticket)
        else:
            waiter = self._waiting.pop(ticket, None)
            self.flow.cancel(ticket, self._live.clock())
        if waiter is not None:
            self._forget(waiter)
        return waiter is not None

    def unsent(self, reply: pb.RouteReply) -> None:
        """A reply did not reach its caller, who has gone: what it holds is given back."""
        if reply.HasField("placement"):
            self._live.reports.withdraw(reply.placement.lease_id, self._live.clock())

    def pump(self) -> None:
        """Do what is due: send whose turn has come, drop whose time is over, and arm the next call."""
        if self._pumping:
            return
        self._pumping = True
        try:
            now_s = self._live.clock()
            self._live.health.refresh(now_s)
            if self._held:
                self._release(now_s)
            while (found := self.flow.next(now_s)) is not None:
                waiter = self._waiting.pop(found.ticket)
                self._forget(waiter)
                verdict = Admitted(found.rows) if isinstance(found, Ready) else found.refused
                self._tell(waiter, verdict)
            self._arm(now_s)
        finally:
            self._pumping = False

    def tick(self) -> None:
        """Upkeep: watch engines that load, and do what is due."""
        now_s = self._live.clock()
        self._held.look(now_s)
        if self.corrected is not None:
            self.corrected.step(now_s)
        self.silence.look(len(self._waiting), len(self._live.leases), now_s)
        self.pump()
        if now_s >= self._see_again_s:
            self._see_again_s = now_s + SEEN_EVERY_S
            self.seen = self.status()

    def endpoint_reset(self, row: int) -> None:
        """Another engine, or none, stands in a row."""
        self.flow.endpoint_reset(row)

    def fleet_changed(self) -> None:
        """Read all that wait anew under another fleet file; who has no place in it any more is refused."""
        refusals: dict[Key, Refused] = {}

        def again(request: RouteRequest) -> RouteRequest | None:
            waiter = self._keys[key_of(request)]
            refused = waiter.read_anew(self._live.state.reader)
            if refused is not None:
                refusals[waiter.key] = refused
            return waiter.request if refused is None else None

        for ticket in self.flow.set_fleet(self._live.state.fleet, self._live.clock(), again):
            waiter = self._waiting.pop(ticket)
            self._tell(waiter, refusals[self._forget(waiter)])
        for number, waiter in self._held.all():
            refused = waiter.read_anew(self._live.state.reader)
            if refused is not None:
                self._held.remove(number)
                self._forget(waiter)
                self._tell(waiter, refused)
        self._arm(self._live.clock())

    def plan_changed(self, plan: PlanDocument) -> None:
        """Take the quotas of classes from a plan's capacity split."""
        quotas: dict[tuple[str, str], float] = defaultdict(float)
        for split in plan.splits:
            quotas[split.model, split.workload_class] += split.tokens_per_s
        self.flow.set_quotas(quotas, self._live.clock())
        if self.corrected is not None:
            self.corrected.expect(plan.splits)

    def close(self) -> None:
        """Refuse all that wait: another router may still serve them in time."""
        waiting = [*self._waiting.items(), *self._held.all()]
        for ticket, waiter in waiting:
            self.leave(ticket)
            self._tell(waiter, self._refusals.refuse(RefusalReason.SHUTTING_DOWN))

    def status(self) -> FlowStatus:
        """What waits, and the state of every budget."""
        return self.flow.status(self._live.clock())

    def _opened(self, now_s: float) -> None:
        if self._waiting:
            self.arm(now_s)

    def _arm(self, now_s: float) -> None:
        if self._waiting:
            self.arm(max(self.flow.wakeup_s(now_s), now_s))

    def _offer(self, waiter: Waiter, now_s: float, again: bool = False) -> Admitted | Queued | Refused:
        self._keys[waiter.key] = waiter
        verdict = self.flow.offer(waiter.arrival(again), now_s)
        if not isinstance(verdict, Queued):
            del self._keys[waiter.key]
        return verdict

    def _hold(self, waiter: Waiter, refused: Refused, now_s: float) -> pb.RouteReply | int:
        held = self._held.hold(waiter, refused, now_s)
        if isinstance(held, Refused):
            return self._reply(waiter, held)
        self._keys[waiter.key] = waiter
        return held

    def _release(self, now_s: float) -> None:
        """Let in those for whom an engine has come up, and refuse those whose time is over."""
        for waiter, refused in self._held.released(now_s, lambda one: bool(len(self._candidates(one)))):
            self._forget(waiter)
            verdict = self._offer(waiter, now_s, again=True) if refused is None else refused
            if isinstance(verdict, Queued):
                self._waiting[verdict.ticket] = waiter
            else:
                self._tell(waiter, verdict)

    def _forget(self, waiter: Waiter) -> Key:
        del self._keys[waiter.key]
        return waiter.key

    def _tell(self, waiter: Waiter, verdict: Admitted | Refused) -> None:
        try:
            reply: pb.RouteReply | Exception = self._reply(waiter, verdict)
        except Exception as error:  # the fault belongs to this request; the others must go on
            reply = error
        waiter.answer(reply)

    def _reply(self, waiter: Waiter, verdict: Admitted | Refused) -> pb.RouteReply:
        if isinstance(verdict, Refused):
            queued_s = self._live.clock() - waiter.asked_s
            return self._live.refused(waiter.asked, waiter.read, verdict, queued_s)
        sent = False
        try:
            go = Clearance(verdict.rows, waiter.arrived_s, waiter.asked_s)
            reply = self._live.place(waiter.asked, waiter.read, waiter.owner, go)
            sent = reply.HasField("placement")
            return reply
        finally:
            if not sent:
                self.flow.abandoned(waiter.request, self._live.clock())

    def _candidates(self, request: RouteRequest) -> IntArray:
        live = self._live
        rows = live.core.candidates(request, live.state.paths.of(request.origin).reachable)
        waiter = self._keys.get(key_of(request))
        if waiter is not None and waiter.read.avoid and len(rows):
            rows = live.without(rows, waiter.read.avoid)
        return rows
