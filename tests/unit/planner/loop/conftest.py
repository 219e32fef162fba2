"""A tiny fleet, plans for it, and a loop that is driven by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from data.fleet.load import parse_fleet
from data.fleet.types import Fleet
from data.plan import PlanDocument, PlannedReplicas, PlanStatus
from planner.demand import DemandRow, DemandTable, demand_table, spread_quantiles

TEXT = """
name: small
sites:
  - {name: eu-1, role: compute, zone: eu}
gpu_pools:
  - {site: eu-1, gpu_type: H100, count: 6}
models:
  - {name: chat, version: v1, catalog: llama-3.1-8b, context_limit_tokens: 32768}
configs:
  - {name: chat-h100, model: chat@v1, gpu_type: H100, tensor_parallel: 1}
classes:
  - {name: interactive, slo: {ttft_s: 1.0, tpot_s: 0.06}, expected_input_tokens: 1500, expected_output_tokens: 250}
tenants:
  - {name: acme}
placement:
  - {site: eu-1, config: chat-h100, replicas: 2}
"""
KEY = ("chat@v1", "interactive", "acme", "eu-1")
MakePlan = Callable[..., PlanDocument]
MakeDemand = Callable[..., DemandTable]


@pytest.fixture(scope="session")
def fleet() -> Fleet:
    """One site, one model, one class, one tenant."""
    return parse_fleet(TEXT, "small.yaml")


@pytest.fixture
def fleet_path(tmp_path: Path) -> Path:
    """The same as a file."""
    path = tmp_path / "small.yaml"
    path.write_text(TEXT)
    return path


@pytest.fixture
def plan() -> MakePlan:
    """A plan with so many replicas."""

    def made(replicas: int, status: PlanStatus = PlanStatus.OPTIMAL) -> PlanDocument:
        return PlanDocument(
            plan_id=f"plan-{replicas}",
            parent_id=None,
            made_at="2026-01-01T00:00:00Z",
            valid_from="2026-01-01T00:00:00Z",
            valid_until="2026-01-01T00:15:00Z",
            fleet="small",
            input_digests={},
            status=status,
            objective=1.0,
            goodput_tokens_per_s=1.0,
            bound=1.0,
            bound_name="test",
            replicas=(PlannedReplicas("eu-1", "chat-h100", "chat@v1", "H100", 1, replicas),),
        )

    return made


@pytest.fixture
def need() -> MakeDemand:
    """A demand of one commodity; ``None`` = unknown."""

    def made(rate: float | None, key: tuple[str, str, str, str] = KEY) -> DemandTable:
        if rate is None:
            return demand_table([], [key])
        return demand_table([DemandRow(*key, spread_quantiles(rate, 0.2))])

    return made
