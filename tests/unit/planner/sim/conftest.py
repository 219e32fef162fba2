"""A small fleet for runs of the simulator."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from data.catalog.types import ServiceTimes
from data.fleet.types import (
    EngineSettings,
    Fleet,
    GpuPool,
    Link,
    Model,
    ReplicaConfig,
    Site,
    Tenant,
    WorkloadClass,
)
from data.types import IntArray, Outcome, Request, Slo
from planner.sim.result import RunResult
from planner.sim.run import simulate
from planner.sim.settings import SimSettings
from router.endpoints import EndpointSpec, EndpointTable
from router.types import FleetView, RouteRequest

TIMES = ServiceTimes(0.002, 0.0001, 1e-9, 0.01, 0.0002, 1e-7, 0.001)


class Spy:
    """Least in flight, first row on ties; remembers all that it was told."""

    name = "spy"

    def __init__(self) -> None:
        self.routed: list[tuple[float, RouteRequest, list[int], int]] = []
        self.views: list[dict[str, Any]] = []
        self.dispatches = 0
        self.first_tokens = 0
        self.outcomes: list[Outcome] = []
        self.resets: list[int] = []
        self.hits: list[float] = []

    def choose(self, request: RouteRequest, candidates: IntArray, view: FleetView) -> int:
        table = view.endpoints
        chosen = int(candidates[np.argmin(table.inflight[candidates])])
        self.routed.append((view.now_s, request, candidates.tolist(), chosen))
        self.views.append(
            {
                "reported_at_s": table.reported_at_s.copy(),
                "waiting": table.waiting.copy(),
                "running": table.running.copy(),
                "kv_use": table.kv_use.copy(),
                "ready": table.ready.copy(),
            }
        )
        self.hits.append(float(view.hit_tokens(request)[chosen]))
        return chosen

    def dispatched(self, request: RouteRequest, endpoint: int, view: FleetView) -> None:
        self.dispatches += 1

    def first_token(self, request: RouteRequest, endpoint: int, now_s: float, ttft_s: float) -> None:
        self.first_tokens += 1

    def finished(self, request: RouteRequest, outcome: Outcome) -> None:
        self.outcomes.append(outcome)

    def endpoint_reset(self, endpoint: int) -> None:
        self.resets.append(endpoint)


@dataclass
class Sink:
    decisions: list[dict[str, Any]] = field(default_factory=list)
    outcomes: list[dict[str, Any]] = field(default_factory=list)

    def decision(self, row: dict[str, Any]) -> None:
        self.decisions.append(row)

    def outcome(self, row: dict[str, Any]) -> None:
        self.outcomes.append(row)


@dataclass
class Ran:
    result: RunResult
    policy: Spy
    sink: Sink
    table: EndpointTable


@dataclass
class World:
    """Sites ``A`` (entry) and ``B``, ``C`` (compute, other zone); one model; classes ``chat`` and ``bulk``."""

    rtt_s: float = 0.0
    engine: EngineSettings = field(default_factory=lambda: EngineSettings(1024, 8, 16))
    slo: Slo = field(default_factory=lambda: Slo(ttft_s=1.0, tpot_s=0.1))
    timeout_s: float | None = None

    def fleet(self) -> Fleet:
        return Fleet(
            name="small",
            sites=(Site("A", "entry", "home"), Site("B", "compute", "home"), Site("C", "compute", "away")),
            links=(Link("A", "B", self.rtt_s, 10.0), Link("A", "C", self.rtt_s, 10.0)),
            pools=(GpuPool("B", "X", 8), GpuPool("C", "X", 8)),
            models=(Model("m", "1", "m", 100_000, self.engine),),
            configs=(ReplicaConfig("m-x", "m@1", "X", 1),),
            classes=(
                WorkloadClass("chat", self.slo, 1.0, 500, 20, self.timeout_s),
                WorkloadClass("bulk", Slo(deadline_s=100.0), 0.5, 500, 20),
            ),
            tenants=(Tenant("open"), Tenant("local", weight=2.0, residency_zones=("home",))),
        )

    def spec(self, number: int, site: str = "B", kv_tokens: int = 16_000, load_s: float = 5.0) -> EndpointSpec:
        engine = self.engine
        return EndpointSpec(
            f"{site}/{number}", site, "m@1", "m-x", "X", 1, TIMES, kv_tokens,
            engine.max_num_batched_tokens, engine.max_num_seqs, 100_000, engine.block_tokens, load_s,
        )  # fmt: skip

    def run(
        self,
        requests: Iterable[Request],
        settings: SimSettings | None = None,
        sites: Sequence[str] = ("B", "B"),
        policy: Spy | None = None,
        kv_tokens: int = 16_000,
        site_rule: Any = None,
        **more: Any,
    ) -> Ran:
        specs = [self.spec(row, site, kv_tokens) for row, site in enumerate(sites)]
        table = EndpointTable(specs)
        spy, sink = policy or Spy(), Sink()
        quiet = settings or SimSettings(step_noise=0.0)
        more = {"table": table, "sink": sink, "sites": site_rule, **more}
        result = simulate(self.fleet(), specs, requests, spy, quiet, **more)
        return Ran(result, spy, sink, table)


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def make_world() -> Callable[..., World]:
    return World


def steady(count: int, gap_s: float, **fields: Any) -> list[Request]:
    base = {"input_tokens": 200, "output_tokens": 20, "output_budget": 64, **fields}
    return [Request(request_id=i, arrival_s=i * gap_s, **base) for i in range(count)]


@pytest.fixture(name="steady")
def steady_fixture() -> Callable[..., list[Request]]:
    """Equal requests, evenly spaced."""
    return steady
