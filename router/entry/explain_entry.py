"""Why a request would go to a site, and what that site's router would do with it. Nothing is charged."""

from __future__ import annotations

from data.types import RefusalReason
from router.entry.entry_router import EntryRouter
from router.entry.site_link import SiteCallError
from router.flow.flow_desk import LAST_WORD_S
from router.pb.v1 import router_pb2 as pb
from router.serving.replies import MESSAGES, refusal
from router.serving.site_choice import site_choice
from router.serving.wire_request import RefusedError
from router.types import RouteRequest


async def explain_entry(
    entry: EntryRouter, asked: pb.RouteRequest, tenant: str, owner: str, left_s: float | None
) -> pb.ExplainReply:
    """The choice of the site with every permitted option, and the explanation of the chosen site's router.

    Raises:
        InvalidRequestError: The request itself is wrong.
    """
    try:
        read = entry.fleet.reader.read(asked, tenant)
    except RefusedError as error:
        return pb.ExplainReply(decision=_refused(asked.request_id, error.reason, str(error)))
    request, now_s, pools = read.request, entry.clock(), entry.fleet.pools
    pools.refresh(entry.states, now_s, entry.settings)
    sites = pools.candidates(request)
    options = pools.options(request, sites, entry.states, entry.rule.reach)
    if not options:
        reason = pools.refusal_reason(request)
        return pb.ExplainReply(
            decision=_refused(asked.request_id, reason, ""),
            class_rule=read.class_rule,
            rejected=_kept_out(entry, request, sites),
        )
    choice = site_choice(entry.rule.name, options, entry.rule.explain(request, options, now_s), now_s)
    asked.tenant, asked.origin = request.tenant, request.origin
    limit_s = entry.settings.call_s if left_s is None else min(left_s, entry.settings.call_s)
    try:
        message = pb.ExplainRequest(request=asked)
        timeout_s = max(limit_s - LAST_WORD_S, 0.001)
        reply: pb.ExplainReply = await entry.links[choice.chosen].ask("Explain", message, timeout_s, owner)
    except SiteCallError as error:
        text = f"site {choice.chosen} did not answer: {error}"
        reply = pb.ExplainReply(decision=_refused(asked.request_id, RefusalReason.NO_ENDPOINT, text))
    reply.class_rule = read.class_rule
    reply.site_choice.CopyFrom(choice)
    reply.rejected.extend(_kept_out(entry, request, sites))
    return reply


def _kept_out(entry: EntryRouter, request: RouteRequest, sites: list[str]) -> list[pb.Rejected]:
    """The sites that are no option, each with the first reason."""
    permitted = entry.fleet.pools.permitted(request.tenant, request.model)
    linked = entry.fleet.pools.paths.to(request.origin)
    found = []
    for site, state in entry.states.items():
        pool = state.pools.get(request.model)
        checks = (
            ("not_permitted", site in permitted),
            ("no_path", site in linked),
            ("not_heard_of", state.usable(entry.clock(), entry.settings) or state.draining),
            ("draining", not state.draining),
            ("not_ready", pool is not None and pool.ready > 0),
            ("in_trouble", not state.trouble),
            ("prompt_too_long", site in sites),
        )
        reason = next((name for name, passed in checks if not passed), None)
        if reason is not None:
            found.append(pb.Rejected(endpoint_id=site, reason=reason))
    return found


def _refused(request_id: str, reason: RefusalReason, message: str) -> pb.RouteReply:
    return pb.RouteReply(request_id=request_id, refusal=refusal(reason, 0.0, message or MESSAGES[reason]))
