"""The upper of two levels: chooses the site of each request, hands it to that site's router, and tries another one
when that fails, under the same hard filters. The site's router chooses the instance and holds the lease.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

import grpc

from data.types import RefusalReason, Status
from router.entry.entry_state import EntryState
from router.entry.question import ELSEWHERE, UNREACHED, Question, entry_lease
from router.entry.site_link import SiteCallError
from router.entry.site_state import Freshness
from router.flow.flow_desk import LAST_WORD_S
from router.pb.v1 import router_pb2 as pb
from router.serving.attempt_end import NEVER_SENT
from router.serving.replies import refusal
from router.serving.wire_request import InvalidRequestError, RefusedError

Answer = pb.RouteReply | SiteCallError
ALIVE = {
    grpc.StatusCode.DEADLINE_EXCEEDED: RefusalReason.EXPIRED,
    grpc.StatusCode.RESOURCE_EXHAUSTED: RefusalReason.OVERLOADED,
}
"""What no answer means where the site is heard all the same."""
STALE_FLAG, FALLBACK_FLAG = "stale_summary", "site_fallback"


class EntryRouter(EntryState):
    """Routes requests to sites."""

    async def route(self, asked: pb.RouteRequest, tenant: str, owner: str, left_s: float | None) -> pb.RouteReply:
        """A placement by some permitted site, or a refusal; always an answer before the caller's deadline.

        Args:
            asked: The request; its tenant and origin are filled in.
            tenant: Tenant that the verified caller is bound to; empty = the request's own counts.
            owner: The caller, who alone may report on the lease.
            left_s: Time until the caller's deadline; ``None`` = none.

        Raises:
            InvalidRequestError: The request itself is wrong.
        """
        question = self.prepare(asked, tenant, owner, left_s)
        if isinstance(question, pb.RouteReply):
            return question
        while True:
            reply = self.send(question)
            if reply is None:
                reply = self.take(question, (await self._ask([question], batch=False))[0])
            if reply is not None:
                return reply

    async def batch(
        self, asked: Sequence[pb.RouteRequest], tenant: str, owner: str, left_s: float | None
    ) -> list[pb.RouteReply]:
        """Answers to several requests, decided in order, without any wait in a queue; one call a site."""
        replies: dict[int, pb.RouteReply] = {}
        waiting: list[tuple[int, Question]] = []
        for place, one in enumerate(asked):
            try:
                found = self.prepare(one, tenant, owner, left_s)
            except InvalidRequestError as error:
                found = self.refuse(one.request_id, RefusalReason.INVALID_REQUEST, str(error))
            if isinstance(found, pb.RouteReply):
                replies[place] = found
            else:
                waiting.append((place, found))
        while waiting:
            waiting = await self._round(waiting, replies)
        return [replies[place] for place in range(len(asked))]

    def prepare(
        self, asked: pb.RouteRequest, tenant: str, owner: str, left_s: float | None
    ) -> Question | pb.RouteReply:
        """Read a request, or answer it without asking any site; see :meth:`route`."""
        if self.draining:
            return self.refuse(asked.request_id, RefusalReason.SHUTTING_DOWN)
        reader = self.fleet.reader
        try:
            read = reader.read(asked, tenant)
        except RefusedError as error:
            return self.refuse(asked.request_id, error.reason, str(error))
        request = read.request
        known = self.leases.of(request.request_id, request.attempt)
        if known is not None:
            same = (known.request.model, known.request.input_tokens) == (request.model, request.input_tokens)
            if read.named and known.owner == owner and same:
                return known.reply  # type: ignore[no-any-return]
            read = reader.renumbered(read)
        asked.tenant, asked.origin = request.tenant, request.origin
        now_s = self.clock()
        limit_s = self.settings.call_s if left_s is None else min(left_s, self.settings.call_s)
        return Question(asked, read, owner, now_s, now_s + limit_s - LAST_WORD_S)

    def send(self, question: Question) -> pb.RouteReply | None:
        """Choose the next site and tell the rule; or the answer, if none is to be tried any more."""
        now_s, request, pools = self.clock(), question.request, self.fleet.pools
        if len(question.tried) > self.settings.fallbacks or now_s >= question.until_s:
            return self._given_up(question)
        pools.refresh(self.states, now_s, self.settings)
        sites = pools.candidates(request, question.tried)
        options = pools.options(request, sites, self.states, self.rule.reach)
        if not options:
            return self._given_up(question)
        chosen = options[self.rule.choose(request, options, now_s)]
        question.site, question.sent_s, question.rtt_s = chosen.site, now_s, chosen.rtt_s
        self.rule.sent(request, chosen.site, now_s)
        self.choices[request.origin, chosen.site, chosen.local] += 1
        return None

    def take(self, question: Question, answer: Answer) -> pb.RouteReply | None:
        """What a site's answer means for the caller; ``None`` = another site is to be tried."""
        site, request = question.site, question.request
        if isinstance(answer, SiteCallError):
            return self._not_answered(question, answer)
        if answer.HasField("placement"):
            permitted = self.fleet.pools.permitted(request.tenant, request.model)
            if answer.placement.site in permitted:
                return self._placed(question, answer)
            # A router that serves other sites than its own: never the caller's to find out.
            self.breaches[site] += 1
            event = pb.ReportEvent(lease_id=answer.placement.lease_id, cancelled=pb.Cancelled())
            self.links[site].held.hold([event], question.owner)
            self._failed(question, Status.FAILED, "site_not_permitted", None)
            return None
        reason = answer.refusal.reason
        if reason in ELSEWHERE:
            self._failed(question, Status.REJECTED, reason, answer)
            return None
        self.rule.finished(request, site, question.ended(Status.REJECTED, reason, self.clock()))
        return self._relayed(question, answer)

    async def _round(
        self, waiting: list[tuple[int, Question]], replies: dict[int, pb.RouteReply]
    ) -> list[tuple[int, Question]]:
        """Ask one site for each question, in order; gives those that need another one."""
        by_site: dict[str, list[tuple[int, Question]]] = {}
        for place, question in waiting:
            reply = self.send(question)
            if reply is None:
                by_site.setdefault(question.site, []).append((place, question))
            else:
                replies[place] = reply
        groups = list(by_site.values())
        answers = await asyncio.gather(*(self._ask([q for _, q in group], batch=True) for group in groups))
        again = []
        for (place, question), answer in zip(
            (pair for group in groups for pair in group), (one for given in answers for one in given), strict=True
        ):
            reply = self.take(question, answer)
            if reply is None:
                again.append((place, question))
            else:
                replies[place] = reply
        return sorted(again, key=lambda pair: pair[0])

    async def _ask(self, questions: Sequence[Question], batch: bool) -> Sequence[Answer]:
        """What the site of these questions answers to each; they have all been sent to the same one."""
        first, now_s = questions[0], self.clock()
        link = self.links[first.site]
        limit_s = max(min(question.until_s for question in questions) - now_s, 0.001)
        messages = [question.message(now_s) for question in questions]
        try:
            if not batch:
                return [await link.ask("Route", messages[0], limit_s, first.owner)]
            reply = await link.ask("RouteBatch", pb.RouteBatchRequest(requests=messages), limit_s, first.owner)
            if len(reply.replies) == len(questions):
                return list(reply.replies)
            return [SiteCallError(grpc.StatusCode.INTERNAL, "not as many replies as requests")] * len(questions)
        except SiteCallError as error:
            return [error] * len(questions)
        except asyncio.CancelledError:
            # The caller has gone. The site's router hears of it, and it is no fault of the site.
            for question in questions:
                outcome = question.ended(Status.REJECTED, NEVER_SENT, self.clock())
                self.rule.finished(question.request, question.site, outcome)
            raise

    def _not_answered(self, question: Question, error: SiteCallError) -> pb.RouteReply | None:
        if error.own_fault:
            outcome = question.ended(Status.REJECTED, UNREACHED, self.clock())
            self.rule.finished(question.request, question.site, outcome)
            raise InvalidRequestError(str(error))
        fresh = self.states[question.site].freshness(self.clock(), self.settings) is Freshness.FRESH
        # A site that is heard and was only too slow for this caller, or too busy, has not failed.
        reason = ALIVE.get(error.code) if fresh else None
        if reason is None:
            self._failed(question, Status.FAILED, UNREACHED, None)
        else:
            self._failed(question, Status.REJECTED, reason.value, self._unheard(question, reason))
        return None

    def _unheard(self, question: Question, reason: RefusalReason) -> pb.RouteReply:
        """A refusal in the place of a site that is alive and did not answer."""
        return pb.RouteReply(
            request_id=question.asked.request_id,
            refusal=refusal(reason, float(self._rng.random())),
            workload_class=question.request.workload_class,
            plan_id=self.serving.plan_id,
        )

    def _failed(self, question: Question, status: Status, reason: str, answer: pb.RouteReply | None) -> None:
        """The site did not place the request; another one may."""
        self.rule.finished(question.request, question.site, question.ended(status, reason, self.clock()))
        question.tried[question.site] = answer
        self.fallbacks[question.site, reason] += 1

    def _placed(self, question: Question, reply: pb.RouteReply) -> pb.RouteReply:
        now_s, site = self.clock(), question.site
        if question.tried:
            reply.queued_s += question.sent_s - question.began_s
            reply.degraded.append(FALLBACK_FLAG)
        if self.states[site].freshness(now_s, self.settings) is not Freshness.FRESH:
            reply.degraded.append(STALE_FLAG)
        lease = entry_lease(question, reply, now_s)
        self.holders.learn(lease.wire_id, site)
        key = lease.request.request_id, lease.request.attempt
        known = self.leases.get(lease.wire_id) is not None or self.leases.of(*key) is not None
        if not known and len(self.leases) < self.settings.leases:
            lease.observed = question.owner in self.tellers
            self.leases.add(lease)
        if not lease.observed:
            # Nothing more will be told, or not before the end: the site must not count as silent for its sake.
            self.rule.finished(question.request, site, question.ended(Status.REJECTED, "not_observed", now_s))
        self.listener.placed(lease, reply.placement.site, tuple(reply.degraded), now_s - question.began_s)
        return reply

    def _relayed(self, question: Question, reply: pb.RouteReply) -> pb.RouteReply:
        with contextlib.suppress(ValueError):  # the reason of a newer router
            self.listener.refused(RefusalReason(reply.refusal.reason))
        if question.tried:
            reply.degraded.append(FALLBACK_FLAG)
        return reply

    def _given_up(self, question: Question) -> pb.RouteReply:
        """The answer when no site is left: the mildest refusal of those that were asked, else the entry's own."""
        best = question.best_refusal()
        if best is not None:
            return self._relayed(question, best)
        reason = self.fleet.pools.refusal_reason(question.request, question.tried)
        message = ""
        if question.tried:
            message = f"site {', '.join(question.tried)} did not answer, and no other permitted site can take it"
        reply = self.refuse(question.asked.request_id, reason, message)
        reply.workload_class = question.request.workload_class
        return reply
