"""A busy router over equal endpoints, and questions for it: shared by the benchmarks of the service."""

from __future__ import annotations

import numpy as np

from data.catalog.types import ServiceTimes
from data.fleet.types import EngineSettings, Fleet, Model, Site, Tenant, WorkloadClass
from data.types import Slo
from models.base import LatencyPredictor
from router.endpoints import EndpointSpec
from router.engines.aliases import KV_USE, RUNNING, WAITING, Reading
from router.pb.v1 import router_pb2 as pb
from router.prompts.prefix_scope import ScopeKeys
from router.prompts.prompt_hashes import ScopedHashes
from router.serving.fleet_rows import LiveEndpoint
from router.serving.guarded_predictor import GuardSettings
from router.serving.lease_reports import ReportResult
from router.serving.live import LiveRouter
from router.serving.live_build import LiveSettings, build_live
from router.slomax.registry import flow_factory

TIMES = ServiceTimes(p0=0.01, p1=5e-5, p2=1e-9, d0=0.008, d1=1e-5, d2=1e-8)
PROMPT_TOKENS, SHARED_TOKENS, SYSTEM_PROMPTS = 2048, 1536, 200
MODEL = "m@1"
PATIENT = GuardSettings(limit_s=60.0)
"""On a busy machine a slow call would put the prior in the place of the model that is measured."""


def fleet() -> Fleet:
    """One model at one site, one tenant, one class."""
    return Fleet(
        "bench",
        (Site("B", "compute", "z"),),
        (),
        (),
        (Model("m", "1", "x", 131_072, EngineSettings(block_tokens=16)),),
        (),
        (WorkloadClass("interactive", Slo(ttft_s=2.0, tpot_s=0.05)),),
        (Tenant("t"),),
    )


def endpoints(n: int) -> list[LiveEndpoint]:
    """Equal engines."""
    return [
        LiveEndpoint(
            EndpointSpec(f"B/c/{i}", "B", MODEL, "c", "H100", 1, TIMES, 400_000, 8192, 256, 131_072),
            f"http://10.0.{i // 256}.{i % 256}:8000",
            kv_events=True,
        )
        for i in range(n)
    ]


def questions(count: int, seed: int = 1) -> list[pb.RouteRequest]:
    """Prompts of 2,048 token ids that begin with one of 200 system prompts."""
    rng = np.random.default_rng(seed)
    systems = rng.integers(0, 100_000, (SYSTEM_PROMPTS, SHARED_TOKENS), dtype=np.uint32)
    return [
        pb.RouteRequest(
            model=MODEL,
            tenant="t",
            output_budget=500,
            token_ids=systems[int(rng.integers(SYSTEM_PROMPTS))].tobytes()
            + rng.integers(0, 100_000, PROMPT_TOKENS - SHARED_TOKENS, dtype=np.uint32).tobytes(),
        )
        for _ in range(count)
    ]


def busy_router(
    n: int,
    predictor: LatencyPredictor | None = None,
    policy: str = "tokenpilot",
    held: int | None = None,
    flow: str = "none",
) -> LiveRouter:
    """A router with reports, cached prefixes and work in flight at every endpoint.

    Args:
        n: Endpoints.
        predictor: Latency model; ``None`` = the closed-form prior.
        policy: Name in the registry.
        held: Prompts that are cached and being served; ``None`` = two for each endpoint, at least 256.
        flow: Flow control in front of it.
    """
    live = build_live(
        fleet(),
        endpoints(n),
        LiveSettings(
            policy=policy,
            guard=PATIENT,
            flow=None if flow == "none" else flow_factory(flow, {}),
            seed=1,
            lease_base=1 << 40,
        ),
        predictor=predictor,
        hasher=ScopedHashes(ScopeKeys(b"0123456789abcdef")),
    )
    refresh(live)
    for i, question in enumerate(questions(max(2 * n, 256) if held is None else held, seed=2)):
        read = live.state.reader.read(question)
        live.index.stored(i % n, read.request.block_hashes)
        live.core.book.open(read.request, i % n, 0.0, live.clock())
    refresh(live)
    return live


def refresh(live: LiveRouter) -> None:
    """Fresh load reports of all endpoints."""
    now_s = live.clock()
    for row, load in enumerate(np.random.default_rng(3).integers(0, 9, len(live.rows)).tolist()):
        live.states.page(row, Reading({RUNNING: load, WAITING: load, KV_USE: load / 10}, (), 0), now_s)


def finish(live: LiveRouter, lease_id: int, owner: str = "") -> None:
    """The request is done.

    Raises:
        RuntimeError: The lease is not open, or not the owner's: then nothing would be measured as it is.
    """
    event = pb.ReportEvent(lease_id=lease_id, finished=pb.Finished(output_tokens=50))
    if live.reports.take(event, owner, live.clock()) is not ReportResult.ACCEPTED:
        raise RuntimeError(f"lease {lease_id} could not be ended")
