"""Rows of the log: what is known stands there, what is not known is null."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from data.catalog.types import ServiceTimes
from data.log.schema import DECISIONS, OUTCOMES
from data.types import Outcome, Slo, Status
from models.signals import SignalSettings, observe
from router.endpoints import EndpointSpec, EndpointTable
from router.leases import LeaseBook
from router.log_rows import decision_row, outcome_row
from router.prefix import EventPrefixIndex
from router.types import FleetView, RouteRequest

TIMES = ServiceTimes(0.01, 1e-4, 0.0, 0.01, 1e-4, 1e-8)
REQUEST = RouteRequest(7, "m@1", "t", "chat", "A", 900, 256, 100.0, (1, 2), 512, "", Slo(ttft_s=1.0), attempt=1)


def view_of(table: EndpointTable, now_s: float = 10.0) -> FleetView:
    return FleetView(now_s, table, EventPrefixIndex(len(table)), np.array([0.02, 0.04]))


@pytest.fixture
def table() -> EndpointTable:
    return EndpointTable(
        [EndpointSpec(f"B/c/{i}", "B", "m@1", "c", "H100", 2, TIMES, 100_000, 8192, 256, 131_072) for i in (0, 1)]
    )


def policy(**last: Any) -> Any:
    return SimpleNamespace(name="p", last_decision=SimpleNamespace(**last) if last else None)


def test_a_decision_holds_the_signals_of_the_latency_models(table: EndpointTable) -> None:
    book = LeaseBook(table)
    for _ in range(3):
        book.open(REQUEST, 1, 400.0, 9.0)
    table.reported_at_s[:] = 9.5
    table.running[:], table.waiting[:], table.kv_use[:] = 5.0, 2.0, 0.25
    view = view_of(table)
    row = decision_row(REQUEST, 1, view, policy(), 2, 511.6)
    signals = observe(table, np.array([1]), 10.0, SignalSettings())
    assert set(row) <= set(DECISIONS.names)
    for name in ("queue_depth", "running", "waiting_prefill_tokens", "inflight_tokens", "kv_use", "kv_tokens"):
        assert row[name] == float(getattr(signals, name)[0]), name
    assert row["metrics_age_s"] == 0.5
    assert (row["hit_tokens"], row["candidates"], row["rtt_s"], row["gpus"]) == (512, 2, 0.04, 2)
    assert (row["request_id"], row["attempt"], row["decided_s"], row["endpoint"]) == (7, 1, 10.0, "B/c/1")
    assert "predicted_ttft_p50_s" not in row
    assert row["origin"] == "A"
    assert decision_row(replace(REQUEST, origin=""), 1, view, policy(), 2, 0.0)["origin"] is None


def test_a_refusal_has_no_endpoint(table: EndpointTable) -> None:
    row = decision_row(REQUEST, None, view_of(table), policy(), 0, 0.0)
    assert "endpoint" not in row
    assert "queue_depth" not in row
    assert "hit_tokens" not in row
    assert row["input_tokens"] == 900


def test_predictions_are_logged_only_for_the_decision_they_were_made_for(table: EndpointTable) -> None:
    said = {
        "request_id": 7, "endpoint": 1, "ttft_p50_s": 0.2, "ttft_p90_s": 0.3, "tpot_p50_s": 0.02,
        "tpot_p90_s": None, "model_version": "v3", "degraded": "stale_metrics",
    }  # fmt: skip
    row = decision_row(REQUEST, 1, view_of(table), policy(**said), 2, 0.0)
    assert set(row) <= set(DECISIONS.names)
    assert (row["predicted_ttft_p50_s"], row["predicted_tpot_p90_s"]) == (0.2, None)
    assert (row["model_version"], row["degraded"]) == ("v3", "stale_metrics")
    for other in ({"endpoint": 0}, {"request_id": 8}):
        row = decision_row(REQUEST, 1, view_of(table), policy(**{**said, **other}), 2, 0.0)
        assert "model_version" not in row


def outcome(status: Status, tokens: int, reason: str = "") -> Outcome:
    return Outcome(7, 1, status, "chat", "t", 1, 5.0, 12.0, 3.0, 7.0, 900, 512, tokens, 2, reason)


def test_outcome_times_are_those_of_the_attempt() -> None:
    row = outcome_row(outcome(Status.COMPLETED, 11), 0.5, 2.5)
    assert set(row) == set(OUTCOMES.names)
    assert (row["ttft_s"], row["e2e_s"], row["tpot_s"]) == (0.5, 2.5, pytest.approx(0.2))
    assert (row["status"], row["cached_tokens"], row["preemptions"], row["reason"]) == (0, 512, 2, None)


def test_what_is_unknown_is_null_and_never_zero() -> None:
    row = outcome_row(outcome(Status.CANCELLED, 0, "client_timeout"), math.nan, 1.5, scheduled=False)
    assert row["ttft_s"] is None
    assert row["cached_tokens"] is None
    assert row["tpot_s"] is None
    assert row["e2e_s"] == 1.5
    assert row["reason"] == "client_timeout"
    one_token = outcome_row(outcome(Status.COMPLETED, 1), 0.5, 0.5)
    assert one_token["tpot_s"] is None
