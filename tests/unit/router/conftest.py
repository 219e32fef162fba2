"""Builders of endpoint tables, requests and views for the router's unit tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from data.catalog.types import ServiceTimes
from data.types import Outcome, Slo, Status
from router.endpoints import EndpointSpec, EndpointTable
from router.prefix import EventPrefixIndex
from router.types import FleetView, RouteRequest

TIMES = ServiceTimes(p0=0.01, p1=1e-4, p2=0.0, d0=0.01, d1=1e-4, d2=1e-8)


def _table(n: int, model: str = "m@1", sites: tuple[str, ...] = ("B",), **changes: Any) -> EndpointTable:
    values: dict[str, Any] = {
        "model": model,
        "config": "c",
        "gpu_type": "H100",
        "gpus": 1,
        "times": TIMES,
        "kv_capacity_tokens": 100_000,
        "batch_token_budget": 8192,
        "max_seqs": 256,
        "context_limit_tokens": 131_072,
    }
    values.update(changes)
    return EndpointTable(
        [
            EndpointSpec(endpoint_id=f"{sites[i % len(sites)]}/c/{i}", site=sites[i % len(sites)], **values)
            for i in range(n)
        ]
    )


def _request(request_id: int = 0, **changes: Any) -> RouteRequest:
    values: dict[str, Any] = {
        "request_id": request_id,
        "model": "m@1",
        "tenant": "t",
        "workload_class": "interactive",
        "origin": "A",
        "input_tokens": 1000,
        "output_budget": 400,
        "expected_output_tokens": 200.0,
        "block_hashes": (),
        "block_tokens": 100,
        "session_id": "",
        "slo": Slo(ttft_s=2.0, tpot_s=0.05),
    }
    values.update(changes)
    return RouteRequest(**values)


def _view(
    table: EndpointTable,
    now_s: float = 0.0,
    prefixes: EventPrefixIndex | None = None,
    rtt_s: list[float] | None = None,
) -> FleetView:
    rtt = np.zeros(len(table)) if rtt_s is None else np.array(rtt_s)
    return FleetView(now_s, table, prefixes or EventPrefixIndex(len(table)), rtt)


def _outcome(request: RouteRequest, endpoint: int, status: Status = Status.COMPLETED, **changes: Any) -> Outcome:
    values: dict[str, Any] = {
        "finished_s": 2.0,
        "ttft_s": 1.0,
        "e2e_s": 2.0,
        "cached_tokens": 0,
        "output_tokens": 100,
    }
    values.update(changes)
    return Outcome(
        request_id=request.request_id,
        attempt=request.attempt,
        status=status,
        workload_class=request.workload_class,
        tenant=request.tenant,
        endpoint=endpoint,
        arrival_s=0.0,
        input_tokens=request.input_tokens,
        **values,
    )


@pytest.fixture
def make_table() -> Callable[..., EndpointTable]:
    return _table


@pytest.fixture
def make_request() -> Callable[..., RouteRequest]:
    return _request


@pytest.fixture
def make_view() -> Callable[..., FleetView]:
    return _view


@pytest.fixture
def make_outcome() -> Callable[..., Outcome]:
    return _outcome
