"""Rows of the decision and outcome log: one function each, used by the service and by the simulator.

A decision row holds the signals of ``models.signals`` for the chosen endpoint at the moment of the decision, so
that what a latency model trains on is what it is asked about. Build it before the dispatch is charged.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from data.types import Outcome, Status
from models.signals import SignalSettings, observe
from router.types import FleetView, Policy, RouteRequest

_SIGNALS = SignalSettings()


def decision_row(
    request: RouteRequest,
    endpoint: int | None,
    view: FleetView,
    policy: Policy,
    candidates: int,
    hit_tokens: float,
) -> dict[str, Any]:
    """The decision on one attempt, keyed by the columns of ``data.log.schema.DECISIONS``.

    Args:
        request: What was routed.
        endpoint: Row that was chosen; ``None`` = refused, and everything about an endpoint stays null.
        view: What the router knew, before this dispatch was charged.
        policy: Its name and, if it keeps a ``last_decision``, what was predicted.
        candidates: Endpoints that passed the hard filters.
        hit_tokens: Predicted prefix-hit tokens on the chosen endpoint.
    """
    row: dict[str, Any] = {
        "request_id": request.request_id,
        "attempt": request.attempt,
        "decided_s": view.now_s,
        "policy": policy.name,
        "model": request.model,
        "tenant": request.tenant,
        "workload_class": request.workload_class,
        "origin": request.origin or None,
        "input_tokens": request.input_tokens,
        "output_budget": request.output_budget,
        "expected_output_tokens": request.expected_output_tokens,
        "candidates": candidates,
    }
    if endpoint is not None:
        row["hit_tokens"] = round(hit_tokens)
        row.update(_endpoint_columns(endpoint, view))
        row.update(_predicted(policy, request, endpoint))
    return row


def outcome_row(outcome: Outcome, ttft_s: float, e2e_s: float, scheduled: bool = True) -> dict[str, Any]:
    """How one attempt ended, keyed by the columns of ``data.log.schema.OUTCOMES``.

    Args:
        outcome: The attempt; its own times count from the request's first arrival and are not used.
        ttft_s: From this attempt's decision to its first token, without the network; NaN = none came.
        e2e_s: The same to its end; a lower bound unless it completed; NaN = unknown.
        scheduled: Whether an engine looked its prefix up; if not, the hit is unknown.
    """
    completed = outcome.status is Status.COMPLETED
    tokens = outcome.output_tokens
    has_tpot = completed and tokens >= 2
    return {
        "request_id": outcome.request_id,
        "attempt": outcome.attempt,
        "finished_s": outcome.finished_s,
        "status": int(outcome.status),
        "ttft_s": _or_null(ttft_s),
        "tpot_s": _or_null((e2e_s - ttft_s) / (tokens - 1)) if has_tpot else None,
        "e2e_s": _or_null(e2e_s),
        "cached_tokens": outcome.cached_tokens if scheduled else None,
        "output_tokens": tokens,
        "preemptions": outcome.preemptions,
        "reason": outcome.reason or None,
    }


def _endpoint_columns(endpoint: int, view: FleetView) -> dict[str, Any]:
    table = view.endpoints
    spec = table.specs[endpoint]
    signals = observe(table, np.array([endpoint]), view.now_s, _SIGNALS)
    return {
        "endpoint": spec.endpoint_id,
        "site": spec.site,
        "gpu_type": spec.gpu_type,
        "gpus": spec.gpus,
        "queue_depth": float(signals.queue_depth[0]),
        "running": float(signals.running[0]),
        "waiting_prefill_tokens": float(signals.waiting_prefill_tokens[0]),
        "waiting_prefill_s": _or_null(float(signals.waiting_prefill_s[0])),
        "prefill_elapsed_s": float(signals.prefill_elapsed_s[0]),
        "inflight_tokens": float(signals.inflight_tokens[0]),
        "kv_use": float(signals.kv_use[0]),
        "kv_tokens": float(signals.kv_tokens[0]),
        "prefill_load": None if signals.prefill_load is None else float(signals.prefill_load[0]),
        "batch_token_budget": spec.batch_token_budget,
        "metrics_age_s": float(signals.metrics_age_s[0]),
        "rtt_s": float(view.rtt_s[endpoint]),
    }


def _predicted(policy: Policy, request: RouteRequest, endpoint: int) -> dict[str, Any]:
    last = getattr(policy, "last_decision", None)
    if last is None or last.request_id != request.request_id or last.endpoint != endpoint:
        return {}
    return {
        "predicted_ttft_p50_s": last.ttft_p50_s,
        "predicted_ttft_p90_s": last.ttft_p90_s,
        "predicted_tpot_p50_s": last.tpot_p50_s,
        "predicted_tpot_p90_s": last.tpot_p90_s,
        "model_version": last.model_version,
        "degraded": last.degraded,
    }


def _or_null(value: float) -> float | None:
    return None if math.isnan(value) else value
