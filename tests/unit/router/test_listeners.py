"""What metrics, spans and log lines show of an attempt, and what they never show."""

import io
import json
import logging

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from data.errors import SettingError
from data.types import RefusalReason, Slo, Status
from router.observe.json_log import LOGGER, log_to
from router.observe.metrics import RouterMetrics
from router.observe.metrics_listener import MetricsListener
from router.observe.spans import SpanListener
from router.serving.attempt_end import EXPIRED, AttemptEnd
from router.serving.open_leases import OpenLease
from router.types import RouteRequest


def lease(ttft_s: float = 0.4, attempt: int = 0) -> OpenLease:
    request = RouteRequest(
        request_id=7, model="m@1", tenant="shop", workload_class="interactive", origin="a", input_tokens=100,
        output_budget=50, expected_output_tokens=20.0, block_hashes=(123456789,), block_tokens=16, session_id="s",
        slo=Slo(ttft_s=1.0, tpot_s=0.1), attempt=attempt,
    )  # fmt: skip
    return OpenLease(
        wire_id=1, lease=1, request=request, endpoint=0, endpoint_id="b/c/0", gpu_type="H100", owner="o",
        decided_s=100.0, rtt_s=0.1, hit_tokens=32.0, lease_s=60.0, expires_s=160.0, ttft_s=ttft_s,
        predicted=(0.2, 0.05),
    )  # fmt: skip


def test_completed_tokens_are_goodput_or_late_never_both() -> None:
    metrics = RouterMetrics()
    listener = MetricsListener(metrics, "tokenpilot")
    end = AttemptEnd(Status.COMPLETED, "", 11, cached_tokens=64, e2e_s=1.5)
    listener.placed(lease(attempt=1), "b", ("drift",), 0.0002)
    listener.first_token(lease(), 100.5)
    listener.ended(lease(), end, 101.5)
    listener.ended(lease(ttft_s=2.0), AttemptEnd(Status.COMPLETED, "", 5, e2e_s=3.0), 103.0)
    listener.ended(lease(), AttemptEnd(Status.FAILED, EXPIRED, 3), 200.0)
    assert metrics.counter("output_tokens").values == {
        ("interactive", "shop", "yes"): 11.0,
        ("interactive", "shop", "no"): 5.0,
    }
    assert metrics.counter("leases_expired").values == {(): 1.0}
    assert metrics.counter("retries").values == {("interactive",): 1.0}
    assert metrics.counter("degraded_decisions").values == {("drift",): 1.0}
    assert metrics.counter("observed_hit_tokens").values == {("m@1",): 64.0}
    ratio = metrics.histogram("ttft_ratio").series[("H100",)]
    assert ratio[-1] == pytest.approx(0.4 / 0.2)
    tpot = metrics.histogram("tpot_seconds").series[("interactive",)]
    assert tpot[-1] == pytest.approx((1.5 - 0.5) / 10 + (3.0 - 2.1) / 4)


def test_refusals_are_counted_by_their_reason_f135() -> None:
    metrics = RouterMetrics()
    listener = MetricsListener(metrics, "tokenpilot")
    for reason in RefusalReason:
        listener.refused(reason)
    assert metrics.counter("refusals").values == {(reason.value,): 1.0 for reason in RefusalReason}


def test_a_span_tells_the_way_of_an_attempt_without_its_content_f150() -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    listener = SpanListener(provider.get_tracer("test"), 1.0, seed=0)
    listener.placed(lease(), "b", (), 0.0002)
    listener.first_token(lease(), 100.5)
    listener.ended(lease(), AttemptEnd(Status.CANCELLED, "client_cancel", 3), 101.0)
    (span,) = exporter.get_finished_spans()
    assert span.attributes is not None
    assert span.attributes["tokenfleet.endpoint"] == "b/c/0"
    assert span.attributes["tokenfleet.reason"] == "client_cancel"
    assert span.end_time == int(101e9)
    assert "123456789" not in span.to_json()


def test_a_share_of_attempts_gets_a_span() -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    listener = SpanListener(provider.get_tracer("test"), 0.25, seed=1)
    for _ in range(400):
        listener.placed(lease(), "b", (), 0.0)
        listener.ended(lease(), AttemptEnd(Status.COMPLETED, "", 1), 101.0)
    assert 70 <= len(exporter.get_finished_spans()) <= 130
    with pytest.raises(SettingError):
        SpanListener(provider.get_tracer("test"), 0.0, seed=1)


def test_any_message_is_a_whole_json_line_f127() -> None:
    stream = io.StringIO()
    handler = log_to(stream)
    try:
        logger = logging.getLogger(f"{LOGGER}.router")
        logger.info('tenant "a"\nüñ\t%s', "}", extra={"endpoint": 'x"y'})
        try:
            raise ValueError("CANARY-7f3a")
        except ValueError:
            logger.exception("decision failed")
    finally:
        logging.getLogger(LOGGER).removeHandler(handler)
        logging.getLogger(LOGGER).propagate = True
    first, second = (json.loads(line) for line in stream.getvalue().splitlines())
    assert first["message"] == 'tenant "a"\nüñ\t}'
    assert first["endpoint"] == 'x"y'
    assert second["exception"] == "ValueError"
    assert "CANARY" not in stream.getvalue()
