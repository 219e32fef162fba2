"""A small fleet of two zones, its demand, and plans for it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from data.catalog.load import Catalog, load_catalog
from data.fleet.load import parse_fleet
from data.fleet.types import Fleet
from planner.demand import DemandRow, DemandTable, demand_table, spread_quantiles

TEXT = """
name: two-zones
sites:
  - {name: door, role: entry, zone: eu}
  - {name: eu-1, role: compute, zone: eu, power_kw: 30, host_memory_gb: 200, start_budget_gpus: 8}
  - {name: us-1, role: compute, zone: us, ingress_tokens_per_s: 40000}
links:
  - {a: door, b: eu-1, rtt_s: 0.003, bandwidth_gbps: 100}
  - {a: door, b: us-1, rtt_s: 0.09, bandwidth_gbps: 20}
  - {a: eu-1, b: us-1, rtt_s: 0.09, bandwidth_gbps: 20}
gpu_pools:
  - {site: eu-1, gpu_type: H100, count: 9, reserved_gpus: 1}
  - {site: us-1, gpu_type: H100, count: 16}
  - {site: us-1, gpu_type: L40S, count: 8}
models:
  - {name: chat, version: v1, catalog: llama-3.1-8b, context_limit_tokens: 32768}
  - {name: big, version: v1, catalog: llama-3.3-70b, context_limit_tokens: 16384}
configs:
  - {name: chat-h100, model: chat@v1, gpu_type: H100, tensor_parallel: 1}
  - {name: chat-l40s, model: chat@v1, gpu_type: L40S, tensor_parallel: 1}
  - {name: big-h100, model: big@v1, gpu_type: H100, tensor_parallel: 4}
classes:
  - {name: interactive, slo: {ttft_s: 1.0, tpot_s: 0.06}, expected_input_tokens: 1500, expected_output_tokens: 250}
  - {name: batch, slo: {deadline_s: 600}, weight: 0.4, expected_input_tokens: 3000, expected_output_tokens: 500}
tenants:
  - name: acme
    tier: guaranteed
    weight: 2
    residency_zones: [eu]
    reservations:
      - {model: chat@v1, workload_class: interactive, tokens_per_s: 1000}
      - {model: chat@v1, replicas: 1}
  - {name: beta}
  - {name: gamma}
  - {name: night, tier: best_effort, weight: 0.5, models: [chat@v1], tokens_per_s_budget: 3000}
placement:
  - {site: eu-1, config: chat-h100, replicas: 2}
  - {site: us-1, config: chat-l40s, replicas: 2, prewarmed: 0}
"""


class FixedClock:
    """Stands still."""

    def now(self) -> datetime:
        """The same moment always."""
        return datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)

    def seconds(self) -> float:
        """The same reading always."""
        return 100.0


def _row(model: str, kind: str, tenant: str, rate: float) -> DemandRow:
    return DemandRow(model, kind, tenant, "door", spread_quantiles(rate, 0.25))


@pytest.fixture(scope="session")
def fleet() -> Fleet:
    """Two compute sites in two zones and an entry."""
    return parse_fleet(TEXT, "two-zones.yaml")


@pytest.fixture(scope="session")
def fleet_text() -> str:
    """The same as text, for files and for changes."""
    return TEXT


@pytest.fixture(scope="session")
def catalog() -> Catalog:
    """The shipped catalog."""
    return load_catalog()


@pytest.fixture(scope="session")
def clock() -> FixedClock:
    """A clock that stands still."""
    return FixedClock()


@pytest.fixture(scope="session")
def demand() -> DemandTable:
    """More than the running replicas carry, within what the fleet can."""
    return demand_table(
        [
            _row("chat@v1", "interactive", "acme", 9000.0),
            _row("chat@v1", "interactive", "beta", 20000.0),
            _row("chat@v1", "batch", "night", 2500.0),
            _row("big@v1", "interactive", "gamma", 900.0),
            _row("big@v1", "interactive", "acme", 300.0),
        ]
    )
