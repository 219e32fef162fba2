"""The API over a real loop and store, called as an ASGI application without a socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI

from data.plan import Move, PlanDocument, PlannedReplicas, PlanStatus, TrafficShare, UnmetDemand
from planner.api.access import Access, ApiToken
from planner.api.app import create_app
from planner.api.desk import Desk, DeskSettings
from planner.demand import DemandRow, demand_table, spread_quantiles
from planner.loop.loop_parts import LoopParts
from planner.loop.runner import PlannerLoop
from planner.loop.schedule import Schedule
from planner.loop.service_level import ServiceLevel
from planner.loop.settings import LoopSettings
from planner.loop.shadow import Shadow
from planner.loop.sources import FileSource
from planner.loop.step import StepResult, run_step
from planner.loop.what_if import WhatIf, what_if
from planner.outlets.gauges import PlannerMetrics
from planner.plan_store.store import PlanStore
from planner.settings import PlannerSettings
from router.serving.auth import token_digest
from solver.settings import PlacementSettings

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


@dataclass
class Answer:
    """One answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        """Its body."""
        return json.loads(self.body)


def call(
    app: FastAPI,
    method: str,
    path: str,
    body: object = None,
    headers: Mapping[str, str] | None = None,
    query: str = "",
) -> Answer:
    """One request through the application; ``body`` is bytes, or becomes JSON."""
    content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    sent = [(b"host", b"test")]
    if body is not None:
        sent.append((b"content-type", b"application/json"))
    sent += [(name.lower().encode(), value.encode("latin-1")) for name, value in (headers or {}).items()]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode("latin-1"),
        "root_path": "",
        "headers": sent,
        "client": ("127.0.0.1", 1),
        "server": ("test", 80),
    }
    got: list[dict[str, Any]] = []
    parts = [content[i : i + 65536] for i in range(0, len(content), 65536)] or [b""]

    async def receive() -> dict[str, Any]:
        if parts:
            return {"type": "http.request", "body": parts.pop(0), "more_body": bool(parts)}
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        got.append(message)

    async def once() -> None:
        # What the application raised after it answered belongs into a log, not to the caller.
        try:
            await app(scope, receive, send)
        except Exception:
            if not got:
                raise

    asyncio.run(once())
    first = {name.decode(): value.decode("latin-1") for name, value in got[0]["headers"]}
    return Answer(got[0]["status"], first, b"".join(message.get("body", b"") for message in got[1:]))


class Bench:
    """A loop with three published versions, its API, and a clock that stands still."""

    def __init__(self, folder: Path, settings: DeskSettings | None = None, access: Access | None = None) -> None:
        self.now_s = 1_800_000_000.0
        fleet = folder / "small.yaml"
        fleet.write_text(TEXT)
        self.store = PlanStore(folder / "plans")
        planner = PlannerSettings(placement=PlacementSettings(time_limit_s=4.0))
        loop = LoopSettings(shadow_requests=40, shadow_seeds=1, window_s=30.0, shadow_policy="least_request")
        source = FileSource(folder / "demand.yaml")
        parts = LoopParts(
            fleet, self.store, (source,), Schedule(900.0), planner, loop, given=frozenset({"shadow_requests"})
        )
        self.replicas = 1
        self.real = False
        self.loop = PlannerLoop(parts, lambda: self.now_s, self.apart)
        self.desk = Desk(self.loop, settings or DeskSettings(), self.apart, lambda: self.now_s)
        self.app = create_app(
            self.desk, access or Access(None), PlannerMetrics(self.store.current, self.loop.status)
        )

    def apart(self, function: Callable[..., Any], *arguments: Any, **limits: Any) -> Any:
        """Plans by hand; a question is answered for real only where a test wants it."""
        if function is what_if and self.real:
            return what_if(*arguments)
        if function is what_if:
            return WhatIf(a_plan(5), Shadow(10.0, 12.0, 40, 30.0, 1, "test"), ("note",))
        if function is run_step:
            demand = demand_table([DemandRow(*KEY, spread_quantiles(1000.0, 0.2))])
            level = ServiceLevel(900.0, 1000.0, 500.0, self.now_s - 900.0, self.now_s)
            return StepResult(a_plan(self.replicas), demand, level, None, ("a note",), {"plan": 0.5})
        return None

    def step(self, replicas: int) -> None:
        """Take a step whose plan has so many replicas."""
        self.replicas = replicas
        self.now_s = max(self.now_s, self.loop.status().next_step_s)
        self.loop.tick()

    def get(self, path: str, query: str = "", headers: Mapping[str, str] | None = None) -> Answer:
        """A GET request."""
        return call(self.app, "GET", path, None, headers, query)

    def post(self, path: str, body: object = None, headers: Mapping[str, str] | None = None) -> Answer:
        """A POST request."""
        return call(self.app, "POST", path, body, headers)


def a_plan(replicas: int) -> PlanDocument:
    """A plan with something of everything."""
    return PlanDocument(
        plan_id=f"plan-{replicas}",
        parent_id=None,
        made_at="2026-01-01T00:00:00Z",
        valid_from="2026-01-01T00:00:00Z",
        valid_until="2026-01-01T00:15:00Z",
        fleet="small",
        input_digests={"fleet": "abc"},
        status=PlanStatus.OPTIMAL,
        objective=100.0 * replicas,
        goodput_tokens_per_s=50.0 * replicas,
        bound=101.0 * replicas,
        bound_name="linked LP",
        replicas=(PlannedReplicas("eu-1", "chat-h100", "chat@v1", "H100", 1, replicas),),
        shares=(TrafficShare(*KEY, "eu-1", 0.9),),
        unmet=(UnmetDemand("demand", "chat@v1", "interactive", "acme", 5.0, "tokens/s", 'full: "H100"\n'),),
        moves=(Move("eu-1", "chat-h100", 1, 12.0, "carries interactive 5 tokens/s"),),
    )


@pytest.fixture
def make_bench(tmp_path: Path) -> Callable[..., Bench]:
    """Makes a bench with three versions."""

    def made(settings: DeskSettings | None = None, access: Access | None = None, versions: int = 3) -> Bench:
        bench = Bench(tmp_path, settings, access)
        for replicas in range(1, versions + 1):
            bench.step(replicas)
        return bench

    return made


@pytest.fixture
def bench(make_bench: Callable[..., Bench]) -> Bench:
    """A bench with three versions, open to all."""
    return make_bench()


@pytest.fixture
def tokens() -> Access:
    """One token of each role: ``reader`` and ``operator``."""
    return Access(
        [
            ApiToken("dashboards", token_digest("reader"), "read"),
            ApiToken("on-call", token_digest("operator"), "operate"),
        ]
    )
