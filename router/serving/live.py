"""The router as a service sees it: requests of the wire in, answers out, everything swappable while it runs.

No gRPC and no clock of its own here: the server, tests and benchmarks drive the same object. All calls come from
one thread.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import numpy as np

from data.types import IntArray, RefusalReason
from router.core import Decision
from router.flow.flow_hooks import Clearance
from router.log_rows import decision_row
from router.pb.v1 import router_pb2 as pb
from router.pilot_decision import LastDecision
from router.serving.live_state import LiveParts, LiveState
from router.serving.open_leases import GONE, OpenLease
from router.serving.replies import placement, refusal
from router.serving.wire_request import Asked, InvalidRequestError, RefusedError
from router.slomax.time_left import with_time_left
from router.slomax.types import Refused
from router.types import FleetView

NOWHERE: frozenset[str] = frozenset()


class LiveRouter(LiveState):
    """Routes, charges and answers over a state that may change between any two requests."""

    def __init__(self, parts: LiveParts) -> None:
        super().__init__(parts)
        self._sink = parts.sink
        self._listener = parts.listener
        self._rng = np.random.default_rng(parts.seed)
        self._stale = False

    def route(self, asked: pb.RouteRequest, tenant: str = "", owner: str = "") -> pb.RouteReply:
        """Choose an endpoint, charge it, and answer; or refuse. With a flow control: without any wait.

        Args:
            asked: The request.
            tenant: Tenant that the verified caller is bound to; empty = the request's own counts.
            owner: The caller, who alone may report on the lease.

        Raises:
            InvalidRequestError: The request itself is wrong; nothing was charged.
        """
        read = self.prepare(asked, tenant, owner)
        if isinstance(read, pb.RouteReply):
            return read
        return self.place(asked, read, owner) if self.desk is None else self.desk.at_once(asked, read, owner)

    def prepare(self, asked: pb.RouteRequest, tenant: str, owner: str) -> Asked | pb.RouteReply:
        """Read a request, or answer it without any decision; see :meth:`route`."""
        if self.draining:
            return self._refuse(asked.request_id, RefusalReason.SHUTTING_DOWN)
        try:
            read = self.state.reader.read(asked, tenant)
        except RefusedError as error:
            return self._refuse(asked.request_id, error.reason, str(error))
        request = read.request
        open_lease = self.leases.of(request.request_id, request.attempt)
        if open_lease is not None:
            if open_lease.owner == owner and _same_request(open_lease, read):
                # Asked again, because the answer got lost: the same answer, charged once.
                return open_lease.reply  # type: ignore[no-any-return]
            read = self.state.reader.renumbered(read)
        return read

    def place(self, asked: pb.RouteRequest, read: Asked, owner: str, go: Clearance | None = None) -> pb.RouteReply:
        """Choose an endpoint and charge it; ``go``: what a flow control has left to choose from."""
        started = time.perf_counter()
        request = read.request
        now_s = self.clock()
        self.health.refresh(now_s)
        view, decided = self._decide(read, now_s, go)
        if isinstance(decided, RefusalReason):
            self._log_decision(read, None, view, 0, 0.0)
            return self._refuse(asked.request_id, decided, workload_class=request.workload_class)
        lease = self._open(read, decided, view, owner, 0.0 if go is None else now_s - go.arrived_s)
        reply = self._placed(asked.request_id, read, lease)
        if go is not None:
            reply.queued_s = now_s - go.asked_s
        lease.reply = reply
        if not request.block_hashes:
            self.credit.blind(read.api_kind)
        elif not lease.hit_tokens and asked.token_ids:
            self.credit.sent(lease.endpoint, read.api_kind, asked.token_ids)
        site = self.core.table.specs[lease.endpoint].site
        self._listener.placed(lease, site, tuple(reply.degraded), time.perf_counter() - started)
        return reply

    def _decide(
        self, read: Asked, now_s: float, go: Clearance | None
    ) -> tuple[FleetView, Decision | RefusalReason]:
        path = self.state.paths.of(read.request.origin)
        view = FleetView(now_s, self.core.table, self.credit.view(read.api_kind), path.rtt_s)
        if go is None:
            request = read.request
            rows = self.core.candidates(request, path.reachable)
            if read.avoid:
                rows = self.without(rows, read.avoid)
        else:
            request = with_time_left(read.request, now_s - go.arrived_s)
            rows = go.rows
        if not len(rows):
            return view, self.core.refusal_reason(request)
        rows, stale = self.fresh(rows, now_s)
        rows = self.health.prefer_heard(rows)
        decided = self.core.decide(request, view, rows=rows)
        self._stale = isinstance(decided, Decision) and self.core.table.specs[decided.endpoint].site in stale
        return view, decided

    def fresh(self, rows: IntArray, now_s: float) -> tuple[IntArray, frozenset[str]]:
        """The endpoints to choose from, and the sites where nothing better than old load reports was left.

        Fresh reports come first at each site by itself where the site is chosen by a rule: reports that stop
        crossing a link must not empty the site behind it.
        """
        if self.core.sites is None:
            kept, degraded = self.states.prefer_fresh(rows, now_s)
            return kept, frozenset(
                self.core.table.specs[row].site for row in kept.tolist()
            ) if degraded else NOWHERE
        sites = self.core.table.sites[rows]
        found, stale = [], set()
        for site in dict.fromkeys(sites.tolist()):
            kept, degraded = self.states.prefer_fresh(rows[sites == site], now_s)
            found.append(kept)
            if degraded:
                stale.add(site)
        return np.sort(np.concatenate(found)), frozenset(stale)

    def without(self, rows: IntArray, names: Sequence[str]) -> IntArray:
        """``rows`` less the named endpoints; all of them if nothing would be left."""
        avoided = [row for name in names if (row := self.rows.row(name)) is not None]
        left = rows[~np.isin(rows, avoided)]
        return left if len(left) else rows

    def _open(self, read: Asked, decided: Decision, view: FleetView, owner: str, queued_s: float) -> OpenLease:
        request, row = read.request, decided.endpoint
        self._log_decision(read, row, view, decided.candidates, decided.hit_tokens)
        number = self.core.dispatch(request, decided)
        self.index.sent(row, request.block_hashes)
        spec = self.core.table.specs[row]
        length_s = self.state.lease_s[request.workload_class]
        last = self._last(request.request_id, row)
        lease = OpenLease(
            wire_id=self.leases.base + number,
            lease=number,
            request=request,
            endpoint=row,
            endpoint_id=spec.endpoint_id,
            gpu_type=spec.gpu_type,
            owner=owner,
            decided_s=view.now_s,
            rtt_s=float(view.rtt_s[row]),
            hit_tokens=decided.hit_tokens,
            lease_s=length_s,
            expires_s=view.now_s + length_s,
            predicted=(math.nan, math.nan) if last is None else (last.ttft_p50_s, last.tpot_p50_s),
            ttft_p90_s=math.nan if last is None or last.ttft_p90_s is None else last.ttft_p90_s,
            queued_s=queued_s,
        )
        self.leases.add(lease)
        if owner not in self.tellers:
            self.reports.unobserved(lease, view.now_s)
        return lease

    def _log_decision(
        self, read: Asked, row: int | None, view: FleetView, candidates: int, hit_tokens: float
    ) -> None:
        if self._sink is not None:
            self._sink.decision(decision_row(read.request, row, view, self.core.policy, candidates, hit_tokens))

    def _placed(self, request_id: str, read: Asked, lease: OpenLease) -> pb.RouteReply:
        last = self._last(lease.request.request_id, lease.endpoint)
        row = lease.endpoint
        return pb.RouteReply(
            request_id=request_id,
            placement=placement(
                lease, self.rows.addresses[row], self.core.table.specs[row].site, read.cache_salt, last
            ),
            workload_class=lease.request.workload_class,
            model_version=self.serving.model_version if last is None else last.model_version,
            plan_id=self.serving.plan_id,
            degraded=self.flags(last),
        )

    def flags(self, last: LastDecision | None) -> list[str]:
        """What the latest decision had to do without."""
        flags = ["stale_metrics"] if self._stale else []
        if last is not None and last.degraded is not None and last.degraded not in flags:
            flags.append(last.degraded)
        if last is not None and self.guard.fell_back:
            flags.append("fallback")
        return flags

    def _last(self, request_id: int, row: int) -> LastDecision | None:
        last: LastDecision | None = getattr(self.core.policy, "last_decision", None)
        return last if last is not None and last.request_id == request_id and last.endpoint == row else None

    def refused(self, asked: pb.RouteRequest, read: Asked, refused: Refused, queued_s: float) -> pb.RouteReply:
        """The answer to a request that the flow control turns away, after it waited ``queued_s``."""
        request = read.request
        path = self.state.paths.of(request.origin)
        view = FleetView(self.clock(), self.core.table, self.index, path.rtt_s)
        self._log_decision(read, None, view, 0, 0.0)
        reply = self._refuse(asked.request_id, refused.reason, workload_class=request.workload_class)
        reply.queued_s = queued_s
        if reply.refusal.HasField("retry_after_s"):
            reply.refusal.retry_after_s = refused.retry_after_s
        return reply

    def _refuse(
        self, request_id: str, reason: RefusalReason, message: str = "", workload_class: str = ""
    ) -> pb.RouteReply:
        self._listener.refused(reason)
        return pb.RouteReply(
            request_id=request_id,
            refusal=refusal(reason, float(self._rng.random()), message),
            workload_class=workload_class,
            model_version=self.serving.model_version,
            plan_id=self.serving.plan_id,
        )

    def full(self, request_id: str) -> pb.RouteReply:
        """The answer to one of several requests for which no more may wait."""
        return self._refuse(request_id, RefusalReason.QUEUE_FULL)

    def invalid(self, request_id: str, error: InvalidRequestError) -> pb.RouteReply:
        """The answer to a wrong request among others that are right."""
        return self._refuse(request_id, RefusalReason.INVALID_REQUEST, str(error))


def _same_request(lease: OpenLease, read: Asked) -> bool:
    known, asked = lease.request, read.request
    return (
        read.named
        and lease.endpoint != GONE
        and known.model == asked.model
        and known.input_tokens == asked.input_tokens
        and known.block_hashes == asked.block_hashes
    )
