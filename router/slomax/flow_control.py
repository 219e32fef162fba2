"""SLOMax on line: admission, class queues and the gate in front of the engines, behind one façade."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from data.types import FloatArray, IntArray, Outcome, RefusalReason
from router.slomax.admission import Admission
from router.slomax.budgets import Budgets
from router.slomax.context import FlowContext
from router.slomax.fair_queue import FairQueue
from router.slomax.gate import Gate
from router.slomax.queues import Queues, Quotas
from router.slomax.refusals import Refusals
from router.slomax.settings import SloMaxSettings
from router.slomax.types import (
    Admitted,
    Arrival,
    Dropped,
    FlowStatus,
    Queued,
    Ready,
    Refused,
    Verdict,
)
from router.slomax.waiting import Waiting
from router.types import RouteRequest

LOOK_AGAIN_S = 0.25
"""While anybody waits the gate is looked at this often at least: a report may have opened it."""
LEAST_WAKE_S = 0.002
BOOSTS = 3
"""Returns that make a request more urgent, at most."""


@dataclass(slots=True)
class Sent:
    """One dispatch that has not ended."""

    row: int
    long: bool
    bound: bool


class SloMax:
    """Flow control by service targets; see ``router.slomax.types.FlowControl`` for the methods.

    Args:
        context: The router's view of the fleet.
        settings: Knobs.
    """

    name = "slomax"

    def __init__(self, context: FlowContext, settings: SloMaxSettings | None = None) -> None:
        self.settings = settings or SloMaxSettings()
        self.context = context
        fleet, now_s = context.fleet, context.now_s
        tightest = min((kind.slo.tpot_s for kind in fleet.classes if kind.slo.tpot_s is not None), default=None)
        self._gate = Gate(context.table, self.settings, tightest, now_s)
        self._queues = Queues(fleet, self.settings, now_s)
        self.budgets = Budgets(fleet.tenants, self.settings, now_s)
        self._refusals = Refusals(np.random.default_rng([context.seed, 0x510]))
        self._admission = Admission(fleet, self.settings, self._queues)
        self._sent: dict[tuple[int, int], Sent] = {}
        self._chosen: tuple[tuple[int, int], FloatArray, bool] | None = None
        self._tickets = 0

    def offer(self, arrival: Arrival, now_s: float) -> Verdict:
        """Refuse, let through at once, or queue; a refusal changes no counter."""
        request = arrival.request
        if request.workload_class not in self._queues.classes:
            return self._refusals.refuse(RefusalReason.UNKNOWN_CLASS)
        rows = self.context.candidates(request)
        if not len(rows):
            return self._refusals.refuse(self.context.reason(request))
        prefill = self._prefill_s(request)
        item = self._waiting(arrival, rows, prefill)
        if item.expires_s <= now_s:
            return self._refusals.refuse(
                RefusalReason.EXPIRED, self._queues.ahead_s(request.model, 99) / len(rows)
            )
        go: IntArray | None = None
        rank = self._queues.rank(request.workload_class)
        if self._queues.undisturbed(request.model, rank):
            self._gate.refresh(now_s)
            go = self._within_target(item, self._gate.open_rows(rows, item, rank), prefill, now_s)
        if go is None or not len(go):
            refused = self._hopeless_or_full(item, rows, prefill, now_s)
            if refused is not None:
                return refused
        wait_s = self.budgets.reserve(_key(request), request.tenant, _worst_tokens(request), now_s)
        if wait_s > 0:
            return self._refusals.refuse(RefusalReason.BUDGET_EXHAUSTED, wait_s)
        if go is not None and len(go):
            self._leaves(item, prefill, by_floor=False, now_s=now_s)
            return Admitted(go)
        self._queues.add(item)
        return Queued(item.ticket, self._admission.wait_s(item, len(rows)))

    def cancel(self, ticket: int, now_s: float) -> bool:
        """Take a waiting request out at once."""
        found = self._queues.items.get(ticket)
        if found is None:
            return False
        self._queues.remove(found[0])
        self.budgets.settle(_key(found[0].request), 0.0, now_s)
        return True

    def next(self, now_s: float) -> Ready | Dropped | None:
        """The next request to send or to drop; the queue's order, the gate and the targets are checked again."""
        expired = self._queues.expired(now_s)
        if expired is not None:
            return self._drop(expired, RefusalReason.EXPIRED, now_s)
        if not self._queues.items:
            return None
        self._gate.refresh(now_s)
        for model in self._queues.models():
            found = self._next_of(model, now_s)
            if found is not None:
                return found
        return None

    def wakeup_s(self, now_s: float) -> float:
        """The next expiry, or when time alone may open the gate for somebody who waits."""
        if not self._queues.items:
            return math.inf
        rank = min(queue.rank for queue in self._queues.all())
        over = self._gate.backlog_s - self._gate.ceiling_s(rank)
        opens_s = float(over[over > 0].min(initial=LOOK_AGAIN_S))
        paced_s = self._gate.wakeup_s(now_s) - now_s
        wait_s = max(min(opens_s, paced_s, LOOK_AGAIN_S), LEAST_WAKE_S)
        return min(now_s + wait_s, max(self._queues.next_expiry_s(), now_s))

    def dispatched(self, request: RouteRequest, endpoint: int, now_s: float) -> None:  # noqa: ARG002
        """Charge the gate with what was sent."""
        key = _key(request)
        if self._chosen is not None and self._chosen[0] == key:
            _, prefill, long = self._chosen
        else:
            prefill = self._prefill_s(request)
            long = bool(prefill[endpoint] >= self.settings.long_prefill_s)
        bound = request.slo.tpot_s is not None
        self._sent[key] = Sent(endpoint, long, bound)
        self._gate.dispatched(endpoint, float(prefill[endpoint]), long, bound)

    def first_token(self, request: RouteRequest, endpoint: int, now_s: float) -> None:  # noqa: ARG002
        """A prefill is done."""
        sent = self._sent.get(_key(request))
        if sent is not None:
            self._gate.first_token(sent.row, sent.long)
            sent.long = False

    def finished(self, request: RouteRequest, outcome: Outcome) -> None:
        """Release what the attempt held at the gate, and settle its budget with what it used."""
        key = _key(request)
        sent = self._sent.pop(key, None)
        if sent is not None:
            self._gate.first_token(sent.row, sent.long)
            self._gate.finished(sent.row, sent.bound)
        used = outcome.input_tokens + outcome.output_tokens
        self.budgets.settle(key, float(used), outcome.finished_s)

    def abandoned(self, request: RouteRequest, now_s: float) -> None:
        """It was let in and could not be sent: the budget is as before."""
        self.budgets.undo(_key(request), now_s)

    def set_quotas(self, quotas: Quotas, now_s: float) -> None:
        """Put a new capacity split in force; who waits stays in place."""
        self._queues.set_quotas(quotas, now_s)

    def status(self, now_s: float) -> FlowStatus:
        """What waits, and the state of every budget."""
        return FlowStatus(self._queues.status(now_s, len(self.context.table)), self.budgets.status(now_s))

    def _prefill_s(self, request: RouteRequest) -> FloatArray:
        every = np.arange(len(self.context.table))
        return self._gate.prefill_s(every, request.input_tokens, self.context.hit_tokens(request))

    def _waiting(self, arrival: Arrival, rows: IntArray, prefill: FloatArray) -> Waiting:
        request = arrival.request
        own_s = float(prefill[rows].min()) if len(rows) < len(prefill) else float(prefill.min())
        self._tickets += 1
        item = Waiting(
            ticket=self._tickets,
            request=request,
            arrived_s=arrival.arrived_s,
            due_s=0.0,
            expires_s=arrival.arrived_s + self._admission.ttl_s(request.workload_class, arrival.ttl_s),
            work=self._work(request, own_s, rows),
            prefill_s=own_s,
            long=own_s >= self.settings.long_prefill_s,
        )
        boost_s = self.settings.boost_s * min(request.attempt, BOOSTS)
        item.due_s = self._admission.latest_start_s(item, self._spare_s(request, rows)) - boost_s
        return item

    def _work(self, request: RouteRequest, own_s: float, rows: IntArray) -> float:
        uncached = own_s / float(self.context.table.p1[rows].min())
        return max(uncached + self.settings.decode_price * request.expected_output_tokens, 1.0)

    def _spare_s(self, request: RouteRequest, rows: IntArray) -> float:
        """Round trip and one step of an idle engine: what passes besides the prefill, at the best."""
        table = self.context.table
        rtt = float(self.context.rtt_s(request.origin)[rows].min())
        return rtt + float((table.d0 + table.host_overhead)[rows].min())

    def _hopeless_or_full(
        self, item: Waiting, rows: IntArray, prefill: FloatArray, now_s: float
    ) -> Refused | None:
        reason = self._admission.full(item, len(rows))
        if reason is None and self._refuses_late(item):
            self._gate.refresh(now_s)
            ttft = self._gate.ttft_s(rows, prefill[rows]) + self.context.rtt_s(item.request.origin)[rows]
            reason = self._admission.hopeless(item, float(ttft.min()), len(rows), now_s)
        if reason is None:
            return None
        return self._refusals.refuse(reason, self._admission.wait_s(item, len(rows)))

    def _next_of(self, model: str, now_s: float) -> Ready | Dropped | None:
        """The next of one model; a round ends when one was sent, dropped or put behind, or with none."""
        tried: set[int] = set()
        while True:
            for queue, item, by_floor in self._queues.turns(model, now_s):
                if item.due_s < now_s and not item.late:
                    if self._refuses_late(item):
                        return self._drop(item, RefusalReason.OVERLOADED, now_s)
                    if self.settings.demote:
                        self._demote(item)
                        break
                if item.ticket in tried or not self._gate.any_open(item, queue.rank):
                    continue
                tried.add(item.ticket)
                found = self._try(queue, item, by_floor, now_s)
                if found is not None:
                    return found
            else:
                return None

    def _try(self, queue: FairQueue, item: Waiting, by_floor: bool, now_s: float) -> Ready | None:
        request = item.request
        rows = self._gate.open_rows(self.context.candidates(request), item, queue.rank)
        if not len(rows):
            return None
        prefill = self._prefill_s(request)
        go = self._within_target(item, rows, prefill, now_s)
        if not len(go):
            return None
        self._queues.remove(item, served=True)
        self._leaves(item, prefill, by_floor, now_s)
        return Ready(item.ticket, request, go, now_s - item.arrived_s)

    def _within_target(self, item: Waiting, go: IntArray, prefill: FloatArray, now_s: float) -> IntArray:
        """Those of the open rows ``go`` that are predicted to meet the TTFT target, while it can be met at all."""
        target = item.request.slo.ttft_s
        if item.late or target is None or not len(go) or item.due_s < now_s:
            return go
        left_s = self.settings.ttft_margin * (target - (now_s - item.arrived_s))
        ttft = self._gate.ttft_s(go, prefill[go]) + self.context.rtt_s(item.request.origin)[go]
        return go[ttft <= left_s]

    def _leaves(self, item: Waiting, prefill: FloatArray, by_floor: bool, now_s: float) -> None:
        self._queues.sent(item.request, item.work, item.late, by_floor, now_s)
        self._chosen = _key(item.request), prefill, item.long

    def _refuses_late(self, item: Waiting) -> bool:
        return self._queues.classes[item.request.workload_class].when_late == "refuse"

    def _demote(self, item: Waiting) -> None:
        self._queues.remove(item)
        self._queues.add(replace(item, late=True, gone=False))  # entries of the old one are garbage

    def _drop(self, item: Waiting, reason: RefusalReason, now_s: float) -> Dropped:
        queue = self._queues.remove(item)
        request = item.request
        self.budgets.settle(_key(request), 0.0, now_s)
        rows = max(len(self.context.candidates(request)), 1)
        after_s = self._queues.ahead_s(request.model, queue.rank) / rows
        return Dropped(item.ticket, request, self._refusals.refuse(reason, after_s), now_s - item.arrived_s)


def _key(request: RouteRequest) -> tuple[int, int]:
    return request.request_id, request.attempt


def _worst_tokens(request: RouteRequest) -> float:
    return float(request.input_tokens + request.output_budget)
