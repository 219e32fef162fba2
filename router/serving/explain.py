"""Why a request would go where it would go: candidates with their scores, and who was taken out and why."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from data.types import IntArray, RefusalReason
from router.flow.flow_desk import FlowDesk
from router.pb.v1 import router_pb2 as pb
from router.pilot_decision import CandidateScore
from router.serving.live import LiveRouter
from router.serving.replies import MESSAGES, refusal
from router.serving.site_choice import site_choice
from router.serving.wire_request import Asked, RefusedError
from router.sites.stage import SiteStage
from router.slomax.corrections import Corrections
from router.slomax.types import FlowStatus
from router.types import BoolArray, FleetView


def explain_route(live: LiveRouter, asked: pb.RouteRequest, tenant: str = "") -> pb.ExplainReply:
    """Candidates, scores and rejections for one request. Nothing is charged, drawn, logged or remembered.

    Raises:
        InvalidRequestError: The request itself is wrong.
    """
    try:
        read = live.state.reader.read(asked, tenant)
    except RefusedError as error:
        return pb.ExplainReply(decision=_refused(asked.request_id, error.reason, str(error)))
    path = live.state.paths.of(read.request.origin)
    now_s = live.clock()
    view = FleetView(now_s, live.core.table, live.credit.view(read.api_kind), path.rtt_s)
    rows = live.core.candidates(read.request, path.reachable)
    kept = live.without(rows, read.avoid)
    fresh = live.fresh(kept, now_s)[0] if len(kept) else kept
    late = dict.fromkeys(rows.tolist(), "avoided") | dict.fromkeys(kept.tolist(), "old_metrics")
    for row in fresh.tolist():
        del late[row]
    reply = pb.ExplainReply(class_rule=read.class_rule, rejected=list(_rejected(live, read, path.reachable, late)))
    if isinstance(live.desk, FlowDesk):
        _tell_flow(reply, live.desk.status(), read)
        if live.desk.corrected is not None:
            _tell_corrections(reply, live.desk.corrected.corrections, read)
    if not len(rows):
        reason = live.core.refusal_reason(read.request)
        reply.decision.CopyFrom(_refused(asked.request_id, reason, "", read.request.workload_class))
        return reply
    if live.core.sites is not None:
        fresh = _choose_site(reply, live.core.sites, live, read, fresh, view)
    for score in _scores(live, read, fresh, view):
        reply.candidates.append(score)
        if score.chosen:
            reply.decision.CopyFrom(_would_be(live, asked.request_id, read, score))
    return reply


def _choose_site(
    reply: pb.ExplainReply, sites: SiteStage, live: LiveRouter, read: Asked, rows: IntArray, view: FleetView
) -> IntArray:
    """Tell the choice of the site, and give the rows that stand there."""
    options = sites.options(read.request, rows, view)
    costs = sites.rule.explain(read.request, options, view.now_s)
    reply.site_choice.CopyFrom(site_choice(sites.rule.name, options, costs, view.now_s))
    table, chosen = live.core.table, reply.site_choice.chosen
    at_site = np.array([table.specs[row].site == chosen for row in rows.tolist()], dtype=bool)
    for row in rows[~at_site].tolist():
        reply.rejected.append(pb.Rejected(endpoint_id=table.specs[row].endpoint_id, reason="other_site"))
    at_chosen: IntArray = rows[at_site]
    return at_chosen


def _tell_flow(reply: pb.ExplainReply, status: FlowStatus, read: Asked) -> None:
    request = read.request
    reply.queue.SetInParent()  # nobody waits
    for queue in status.queues:
        if (queue.model, queue.workload_class) == (request.model, request.workload_class):
            reply.queue.requests, reply.queue.tokens = queue.requests, queue.tokens
            reply.queue.oldest_s, reply.queue.expected_wait_s = queue.oldest_s, queue.expected_wait_s
    for budget in status.budgets:
        if budget.tenant == request.tenant:
            reply.budget.CopyFrom(
                pb.Budget(
                    tokens_left=budget.tokens_left,
                    tokens_per_s=budget.tokens_per_s,
                    requests_left=budget.requests_left,
                    requests_per_s=budget.requests_per_s,
                    concurrent=budget.concurrent,
                    reserved_tokens=budget.reserved_tokens,
                    in_flight=budget.in_flight,
                )
            )


def _tell_corrections(reply: pb.ExplainReply, corrections: Corrections, read: Asked) -> None:
    request = read.request
    key = request.model, request.workload_class
    reply.corrections.CopyFrom(
        pb.Corrections(
            admitted_share=corrections.admission.get(key, 1.0),
            repeats_share=corrections.repeats.get(key, 1.0),
            capacity=corrections.capacity.get(key, 1.0),
            debt=corrections.debt_of(request.workload_class, request.tenant),
        )
    )


def _scores(live: LiveRouter, read: Asked, rows: np.ndarray, view: FleetView) -> Iterator[pb.Candidate]:
    explain = getattr(live.core.policy, "explain", None)
    if explain is not None:
        for score in explain(read.request, rows, view):
            yield _scored(live, score)
        return
    # A policy that can't tell its reasons: candidates and their prefix hits, no choice marked.
    hits = view.hit_tokens(read.request)
    for row in rows.tolist():
        spec = live.core.table.specs[row]
        yield pb.Candidate(endpoint_id=spec.endpoint_id, site=spec.site, hit_tokens=int(hits[row]))


def _scored(live: LiveRouter, score: CandidateScore) -> pb.Candidate:
    spec = live.core.table.specs[score.endpoint]
    upper = score.upper_quantile == 0.9
    return pb.Candidate(
        endpoint_id=spec.endpoint_id,
        site=spec.site,
        chosen=score.chosen,
        ttft=pb.Quantiles(p50_s=score.ttft_p50_s, p90_s=score.ttft_upper_s if upper else None),
        tpot=pb.Quantiles(p50_s=score.tpot_p50_s, p90_s=score.tpot_upper_s if upper else None),
        source=score.source,
        hit_tokens=int(score.features.get("hit_tokens", 0.0)),
        meets_targets=score.meets_targets,
        completion_s=score.completion_s,
        harm_s=score.harm_s,
        lost_tokens=score.lost_tokens,
        value=score.value,
        price=score.price,
        score=score.score,
        features=score.features,
    )


def _would_be(live: LiveRouter, request_id: str, read: Asked, best: pb.Candidate) -> pb.RouteReply:
    row = live.rows.row(best.endpoint_id)
    return pb.RouteReply(
        request_id=request_id,
        placement=pb.Placement(
            endpoint_id=best.endpoint_id,
            address="" if row is None else live.rows.addresses[row],
            site=best.site,
            ttft=best.ttft,
            tpot=best.tpot,
            predicted_hit_tokens=best.hit_tokens,
        ),
        workload_class=read.request.workload_class,
        model_version=live.serving.model_version,
        plan_id=live.serving.plan_id,
    )


def _refused(request_id: str, reason: RefusalReason, message: str, workload_class: str = "") -> pb.RouteReply:
    return pb.RouteReply(
        request_id=request_id,
        refusal=refusal(reason, 0.0, message or MESSAGES[reason]),
        workload_class=workload_class,
    )


def _rejected(
    live: LiveRouter, read: Asked, reachable: BoolArray | None, late: dict[int, str]
) -> Iterator[pb.Rejected]:
    """The first filter that takes each endpoint of the requested model out; ``late`` = by what came after."""
    table, request = live.core.table, read.request
    permitted = live.state.rules.permitted(request.tenant, request.model).mask
    ceiling = live.state.rules.settings.load_ceiling
    for row in np.flatnonzero(live.state.rules.serving(request.model)).tolist():
        checks = (
            ("not_ready", table.ready[row]),
            ("draining", not table.draining[row]),
            ("unhealthy", table.healthy[row]),
            ("not_permitted", permitted[row]),
            ("context_too_long", request.input_tokens + request.output_budget <= table.context_limit_tokens[row]),
            ("kv_too_small", request.input_tokens <= table.kv_capacity_tokens[row]),
            ("load_ceiling", ceiling is None or table.inflight[row] < ceiling * table.max_seqs[row]),
            ("no_path", reachable is None or reachable[row]),
            (late.get(row, ""), row not in late),
        )
        reason = next((name for name, passed in checks if not passed), None)
        if reason is not None:
            yield pb.Rejected(endpoint_id=table.specs[row].endpoint_id, reason=reason)
