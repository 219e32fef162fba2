"""Optional OpenTelemetry spans: one for each sampled attempt, from its decision to its end.

Off unless asked for; the library comes with the extra ``otel``. A span holds names, counts and times: no prompt,
no hash, no token id, no credential.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from data.errors import InputError, SettingError
from data.types import RefusalReason, Status
from router.serving.attempt_end import AttemptEnd
from router.serving.open_leases import OpenLease

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

MOST_OPEN = 10_000
"""Spans that may be open; further attempts are not sampled until some have ended."""
_NS = 1e9


class SpanListener:
    """A ``LiveListener`` that makes spans of a share of the attempts.

    Args:
        tracer: Makes spans.
        share: Share of attempts that get one (above 0, at most 1).
        seed: Of the draw.

    Raises:
        SettingError: The share is out of range.
    """

    def __init__(self, tracer: Tracer, share: float, seed: int) -> None:
        if not 0.0 < share <= 1.0:
            raise SettingError(
                "setting out of range", field="span_share", value=share, expected="above 0, at most 1"
            )
        self._tracer = tracer
        self._share = share
        self._random = np.random.default_rng(seed)
        self._open: dict[int, Span] = {}

    def placed(self, lease: OpenLease, site: str, degraded: tuple[str, ...], seconds: float) -> None:
        """Begin a span, if this attempt is drawn."""
        if len(self._open) >= MOST_OPEN or self._random.random() >= self._share:
            return
        request = lease.request
        span = self._tracer.start_span(
            "tokenfleet.route",
            start_time=int(lease.decided_s * _NS),
            attributes={
                "tokenfleet.model": request.model,
                "tokenfleet.tenant": request.tenant,
                "tokenfleet.class": request.workload_class,
                "tokenfleet.endpoint": lease.endpoint_id,
                "tokenfleet.site": site,
                "tokenfleet.attempt": request.attempt,
                "tokenfleet.input_tokens": request.input_tokens,
                "tokenfleet.predicted_hit_tokens": int(lease.hit_tokens),
                "tokenfleet.degraded": list(degraded),
                "tokenfleet.decision_seconds": seconds,
            },
        )
        self._open[lease.wire_id] = span

    def refused(self, reason: RefusalReason) -> None:
        """Refusals are counted in the metrics; they make no span."""

    def first_token(self, lease: OpenLease, now_s: float) -> None:
        """Mark the first token."""
        span = self._open.get(lease.wire_id)
        if span is not None:
            span.add_event("first_token", timestamp=int(now_s * _NS))

    def ended(self, lease: OpenLease, end: AttemptEnd, now_s: float) -> None:
        """End the span."""
        span = self._open.pop(lease.wire_id, None)
        if span is None:
            return
        span.set_attribute("tokenfleet.status", end.status.name.lower())
        span.set_attribute("tokenfleet.output_tokens", end.output_tokens)
        if not math.isnan(lease.ttft_s):
            span.set_attribute("tokenfleet.ttft_seconds", lease.ttft_s)
        if end.status is not Status.COMPLETED:
            span.set_attribute("tokenfleet.reason", end.reason)
        span.end(end_time=int(now_s * _NS))

    def unknown_lease(self) -> None:
        """Nothing to mark."""


def span_listener(share: float, seed: int = 0) -> SpanListener:
    """A listener on the process's own tracer, as the environment configures OpenTelemetry.

    Raises:
        InputError: The extra ``otel`` is not installed.
        SettingError: The share is out of range.
    """
    try:
        from opentelemetry import trace
    except ImportError as error:
        raise InputError("OpenTelemetry is not installed", expected="pip install tokenfleet[otel]") from error
    return SpanListener(trace.get_tracer("tokenfleet.router"), share, seed)
