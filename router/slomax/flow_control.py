"""SLOMax on line: admission, class queues and the gate in front of the engines, behind one façade."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from data.fleet.types import Fleet
from data.types import FloatArray, IntArray, Outcome, RefusalReason
from router.slomax.admission import Admission
from router.slomax.appraisal import Appraisal
from router.slomax.budgets import Budgets
from router.slomax.context import FlowContext
from router.slomax.gate import ANY_TIME_S, Gate
from router.slomax.queues import Queues, Quotas
from router.slomax.refusals import Refusals
from router.slomax.sent import Sent
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
URGENT_S = 0.5
"""A request of the guaranteed tier that must start within this time waits for no shield."""


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
        self._gate = Gate(context.table, self.settings, _tightest_tpot_s(fleet), now_s)
        self._queues = Queues(fleet, self.settings, now_s)
        self.budgets = Budgets(fleet.tenants, self.settings, now_s)
        self._refusals = Refusals(np.random.default_rng([context.seed, 0x510]))
        self._shed_rng = np.random.default_rng([context.seed, 0x5ED])
        self._admission = Admission(fleet, self.settings, self._queues, self._shed_rng)
        self._appraisal = Appraisal(context, self.settings, self._gate, self._admission)
        self._sent: dict[tuple[int, int], Sent] = {}
        self._chosen: tuple[tuple[int, int], FloatArray, bool] | None = None

    def offer(self, arrival: Arrival, now_s: float) -> Verdict:
        """Refuse, let through at once, or queue; a refusal changes no counter."""
        request = arrival.request
        if request.workload_class not in self._queues.classes:
            return self._refusals.refuse(RefusalReason.UNKNOWN_CLASS)
        rows = self.context.candidates(request)
        if not len(rows):
            return self._refusals.refuse(self.context.reason(request))
        prefill = self._appraisal.prefill_s(request)
        item = self._appraisal.entry(arrival, rows, prefill)
        if item.expires_s <= now_s:
            return self._refusals.refuse(
                RefusalReason.EXPIRED, self._queues.ahead_s(request.model, 99) / len(rows)
            )
        go: IntArray | None = None
        rank = self._queues.rank(request.workload_class)
        if self._queues.undisturbed(request.model, rank):
            self._gate.refresh(now_s)
            go = self._open_rows(item, rows, rank, prefill, now_s)
        queue_s = 0.0
        if go is None or not len(go):
            queue_s = self._admission.wait_s(item, len(rows), self._appraisal.reaches)
            refused = self._hopeless_or_full(item, rows, prefill, queue_s, now_s)
            if refused is not None:
                return refused
        wait_s = self.budgets.reserve(_key(request), request.tenant, _worst_tokens(request), now_s)
        if wait_s > 0:
            return self._refusals.refuse(RefusalReason.BUDGET_EXHAUSTED, wait_s)
        if go is not None and len(go):
            self._leaves(item, prefill, by_floor=False, now_s=now_s)
            return Admitted(go)
        self._queues.add(item)
        return Queued(item.ticket, queue_s)

    def cancel(self, ticket: int, now_s: float) -> bool:
        """Take a waiting request out at once."""
        found = self._queues.items.get(ticket)
        if found is None:
            return False
        self._queues.remove(found[0])
        self.budgets.undo(_key(found[0].request), now_s)
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
        tightest = min(self._queues.all(), key=lambda queue: queue.rank)
        over = self._gate.backlog_s - self._gate.ceiling_s(tightest.rank)
        opens_s = float(over[over > 0].min(initial=LOOK_AGAIN_S))
        opens_s = min(opens_s, self._gate.wakeup_s(now_s, tightest.prefill_s / tightest.requests) - now_s)
        wait_s = max(min(opens_s, LOOK_AGAIN_S), LEAST_WAKE_S)
        return min(now_s + wait_s, max(self._queues.next_expiry_s(), now_s))

    def dispatched(self, request: RouteRequest, endpoint: int, now_s: float) -> None:
        """Charge the gate with what was sent."""
        key = _key(request)
        if self._chosen is not None and self._chosen[0] == key:
            _, prefill, long = self._chosen
        else:
            prefill = self._appraisal.prefill_s(request)
            long = bool(prefill[endpoint] >= self.settings.long_prefill_s)
        bound = request.slo.tpot_s is not None
        sent = self._sent[key] = Sent(endpoint, long, bound, request.tenant in self._appraisal.guaranteed)
        self._gate.dispatched(sent, float(prefill[endpoint]), now_s)

    def first_token(self, request: RouteRequest, endpoint: int, now_s: float) -> None:  # noqa: ARG002
        """A prefill is done."""
        sent = self._sent.get(_key(request))
        if sent is not None:
            self._gate.first_token(sent, now_s)

    def finished(self, request: RouteRequest, outcome: Outcome) -> None:
        """Release what the attempt held at the gate, and settle its budget with what it used."""
        key = _key(request)
        sent = self._sent.pop(key, None)
        if sent is not None:
            self._gate.finished(sent)
        used = outcome.input_tokens + outcome.output_tokens
        self.budgets.settle(key, float(used), outcome.finished_s)

    def abandoned(self, request: RouteRequest, now_s: float) -> None:
        """It was let in and could not be sent: the budget is as before."""
        self.budgets.undo(_key(request), now_s)

    def set_quotas(self, quotas: Quotas, now_s: float) -> None:
        """Put a new capacity split in force; who waits stays in place."""
        self._queues.set_quotas(quotas, now_s)

    def set_debts(self, factor: Callable[[str, str], float]) -> None:
        """What tenants are owed raises their weight."""
        self._queues.debt_factor = factor

    def endpoint_reset(self, endpoint: int) -> None:
        """Another engine, or none, stands in a row: what was sent there no longer weighs on it."""
        self._gate.reset(endpoint)
        self._sent = {key: sent for key, sent in self._sent.items() if sent.row != endpoint}

    def set_fleet(
        self, fleet: Fleet, now_s: float, again: Callable[[RouteRequest], RouteRequest | None]
    ) -> list[int]:
        """Another fleet file: who waits keeps its ticket and place, budgets keep their level."""
        waiting = [item for item, _ in self._queues.items.values()]
        self._queues = self._queues.renewed(fleet, now_s)
        self.budgets.set_tenants(fleet.tenants, now_s)
        self._gate.set_target(_tightest_tpot_s(fleet))
        self.context = replace(self.context, fleet=fleet)
        self._admission = Admission(fleet, self.settings, self._queues, self._shed_rng)
        self._appraisal = self._appraisal.renewed(self.context, self._admission)
        gone = []
        for item in waiting:
            request = again(item.request)
            if request is None:
                self.budgets.undo(_key(item.request), now_s)
                gone.append(item.ticket)
            else:
                self._queues.add(self._appraisal.again(item, request))
        return gone

    def status(self, now_s: float) -> FlowStatus:
        """What waits, and the state of every budget."""
        return FlowStatus(self._queues.status(now_s, len(self.context.table)), self.budgets.status(now_s))

    def _hopeless_or_full(
        self, item: Waiting, rows: IntArray, prefill: FloatArray, queue_s: float, now_s: float
    ) -> Refused | None:
        reason = self._admission.full(item, queue_s)
        if reason is None and self._refuses_late(item):
            self._gate.refresh(now_s)
            ttft = self._gate.ttft_s(rows, prefill[rows]) + self.context.rtt_s(item.request.origin)[rows]
            reason = self._admission.hopeless(item, float(ttft.min()), queue_s, now_s)
        if reason is None:
            return None
        return self._refusals.refuse(reason, queue_s)

    def _next_of(self, model: str, now_s: float) -> Ready | Dropped | None:
        """The next of one model; a round ends when one was sent, dropped or put behind, or with none."""
        tried: set[tuple[int, int]] = set()
        while True:
            for item, rank, by_floor in self._queues.turns(model, now_s):
                if item.due_s < now_s and not item.late:
                    if self._refuses_late(item):
                        return self._drop(item, RefusalReason.OVERLOADED, now_s)
                    if self.settings.demote:
                        self._demote(item)
                        break
                if (item.ticket, rank) in tried or not self._gate.any_open(item, rank):
                    continue
                tried.add((item.ticket, rank))
                found = self._try(item, rank, by_floor, now_s)
                if found is not None:
                    return found
            else:
                return None

    def _try(self, item: Waiting, rank: int, by_floor: bool, now_s: float) -> Ready | None:
        request = item.request
        rows = self.context.candidates(request)
        if not len(rows):
            return None
        prefill = self._appraisal.prefill_s(request)
        go = self._open_rows(item, rows, rank, prefill, now_s, by_floor)
        if not len(go):
            return None
        self._queues.remove(item, served=True)
        self._leaves(item, prefill, by_floor, now_s)
        return Ready(item.ticket, request, go, now_s - item.arrived_s)

    def _open_rows(
        self,
        item: Waiting,
        rows: IntArray,
        rank: int,
        prefill: FloatArray,
        now_s: float,
        by_floor: bool = False,
    ) -> IntArray:
        """Rows that can take it now and are predicted to meet its TTFT target, while that can be met at all."""
        target, left_s = item.request.slo.ttft_s, ANY_TIME_S
        if not item.late and target is not None and item.due_s >= now_s:
            left_s = self.settings.ttft_margin * (target - (now_s - item.arrived_s))
        rtt_s = self.context.rtt_s(item.request.origin)
        forced = by_floor or (item.guaranteed and not item.late and item.due_s - now_s < URGENT_S)
        return self._gate.open_rows(rows, item, rank, prefill, rtt_s, left_s, forced)

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


def _tightest_tpot_s(fleet: Fleet) -> float | None:
    return min((kind.slo.tpot_s for kind in fleet.classes if kind.slo.tpot_s is not None), default=None)


def _key(request: RouteRequest) -> tuple[int, int]:
    return request.request_id, request.attempt


def _worst_tokens(request: RouteRequest) -> float:
    return float(request.input_tokens + request.output_budget)
