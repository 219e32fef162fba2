"""Counts what the router decides and how it ends; ``metric_catalog`` says what each metric means."""

from __future__ import annotations

import math

from data.types import RefusalReason, Status
from router.observe.metrics import RouterMetrics
from router.serving.attempt_end import EXPIRED, AttemptEnd
from router.serving.lease_reports import attempt_outcome
from router.serving.open_leases import OpenLease


class MetricsListener:
    """A ``LiveListener`` that writes into ``RouterMetrics``.

    Args:
        metrics: Where to count.
        policy: Name of the policy that decides.
    """

    def __init__(self, metrics: RouterMetrics, policy: str) -> None:
        self._metrics = metrics
        self._policy = policy
        self._decisions = metrics.counter("decisions")
        self._refusals = metrics.counter("refusals")
        self._degraded = metrics.counter("degraded_decisions")
        self._decision_s = metrics.histogram("decision_seconds")
        self._queue_s = metrics.histogram("queue_wait_seconds")
        self._predicted_hit = metrics.counter("predicted_hit_tokens")
        self._observed_hit = metrics.counter("observed_hit_tokens")
        self._hit_error = metrics.histogram("hit_error_share")
        self._ended = metrics.counter("attempts_ended")
        self._retries = metrics.counter("retries")
        self._tokens = metrics.counter("output_tokens")
        self._expired = metrics.counter("leases_expired")
        self._unknown = metrics.counter("unknown_leases")
        self._ttft = metrics.histogram("ttft_seconds")
        self._tpot = metrics.histogram("tpot_seconds")
        self._ttft_ratio = metrics.histogram("ttft_ratio")
        self._tpot_ratio = metrics.histogram("tpot_ratio")

    def placed(self, lease: OpenLease, site: str, degraded: tuple[str, ...], seconds: float) -> None:
        """One decision more."""
        request = lease.request
        self._decisions.add((self._policy, request.model, site, request.workload_class))
        self._decision_s.observe(seconds)
        self._queue_s.observe(lease.queued_s, (request.workload_class,))
        self._predicted_hit.add((request.model,), lease.hit_tokens)
        for flag in degraded:
            self._degraded.add((flag,))
        if request.attempt:
            self._retries.add((request.workload_class,))

    def refused(self, reason: RefusalReason) -> None:
        """One refusal more."""
        self._refusals.add((reason.value,))

    def first_token(self, lease: OpenLease, now_s: float) -> None:  # noqa: ARG002
        """Observed TTFT against the median that was predicted."""
        self._ttft.observe(lease.queued_s + lease.ttft_s + lease.rtt_s, (lease.request.workload_class,))
        self._ttft_ratio.observe(lease.ttft_s / lease.predicted[0], (lease.gpu_type,))

    def ended(self, lease: OpenLease, end: AttemptEnd, now_s: float) -> None:
        """One attempt less; its tokens are Goodput or wasted."""
        request = lease.request
        kind = request.workload_class
        self._ended.add((end.status.name.lower(), kind))
        if end.reason == EXPIRED:
            self._expired.add()
        self._observe_hit(lease, end)
        if end.status is not Status.COMPLETED:
            return
        outcome = attempt_outcome(lease, end, now_s)
        self._observe_tpot(lease, end, outcome.e2e_s - outcome.ttft_s)
        met = not math.isnan(outcome.ttft_s) and request.slo.met(outcome.ttft_s, outcome.e2e_s, end.output_tokens)
        tenant = self._metrics.tenant(request.tenant)
        self._tokens.add((kind, tenant, "yes" if met else "no"), float(end.output_tokens))

    def unknown_lease(self) -> None:
        """One report more that belongs to nothing."""
        self._unknown.add()

    def _observe_hit(self, lease: OpenLease, end: AttemptEnd) -> None:
        if end.cached_tokens is None:
            return
        self._observed_hit.add((lease.request.model,), float(end.cached_tokens))
        error = (end.cached_tokens - lease.hit_tokens) / lease.request.input_tokens
        self._hit_error.observe(error, (lease.gpu_type,))

    def _observe_tpot(self, lease: OpenLease, end: AttemptEnd, decode_s: float) -> None:
        if end.output_tokens < 2 or math.isnan(decode_s):
            return
        tpot_s = decode_s / (end.output_tokens - 1)
        self._tpot.observe(tpot_s, (lease.request.workload_class,))
        self._tpot_ratio.observe(tpot_s / lease.predicted[1], (lease.gpu_type,))
