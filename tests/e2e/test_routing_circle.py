"""The full circle on line: route, report, log, train, promote, served."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from data.fleet.reference import reference_path
from planner.cli.main import cli
from router.pb.v1 import router_pb2 as pb
from router.serving.reload import reload_now
from router.serving.service import RouterService
from router.serving.service_settings import ServiceSettings

REQUESTS = 2500
SLOWNESS = 2.0
"""The engines of this test take this much longer than the closed-form prior says."""


@dataclass
class Clock:
    now_s: float = 1.7e9

    def __call__(self) -> float:
        return self.now_s


def drive(service: RouterService, clock: Clock) -> None:
    """Requests one after another, a few at a time, on engines that are slower than the catalog says."""
    rng = np.random.default_rng(3)
    tenants = service.live.state.fleet.tenants
    under_way: list[tuple[float, pb.RouteReply]] = []
    for _ in range(REQUESTS):
        clock.now_s += float(rng.exponential(0.2))
        while under_way and under_way[0][0] <= clock.now_s:
            finish(service, clock, under_way.pop(0)[1], rng)
        reply = service.live.route(
            pb.RouteRequest(
                model="assistant@v1",
                tenant=tenants[0].name if tenants else "",
                input_tokens=int(rng.integers(100, 6000)),
                output_budget=200,
            )
        )
        under_way.append((clock.now_s + 1.0, reply))
    for _, reply in under_way:
        finish(service, clock, reply, rng)


def finish(service: RouterService, clock: Clock, reply: pb.RouteReply, rng: np.random.Generator) -> None:
    placed, tokens = reply.placement, 50
    ttft_s = placed.ttft.p50_s * SLOWNESS * float(rng.lognormal(0.0, 0.05))
    tpot_s = placed.tpot.p50_s * SLOWNESS * float(rng.lognormal(0.0, 0.05))
    done = pb.Finished(output_tokens=tokens, ttft_s=ttft_s, e2e_s=ttft_s + (tokens - 1) * tpot_s)
    event = pb.ReportEvent(lease_id=placed.lease_id, finished=done)
    assert service.live.reports.take(event, "", clock()).value == "accepted"


@pytest.mark.asyncio
async def test_what_was_routed_trains_the_model_that_routes_next(tmp_path: Path) -> None:
    fleet, log, store = tmp_path / "fleet.yaml", tmp_path / "log", tmp_path / "models"
    fleet.write_text(reference_path("one-pool").read_text())
    service = RouterService(ServiceSettings(fleet=fleet, log=log, models=store, flow="none"))
    clock = service.live.clock = Clock()
    question = pb.RouteRequest(model="assistant@v1", input_tokens=1000, output_budget=200)
    if service.live.state.fleet.tenants:
        question.tenant = service.live.state.fleet.tenants[0].name
    before = service.live.route(question)
    drive(service, clock)
    assert service.log is not None
    service.log.flush()
    arguments = ["train", "--log", str(log), "--store", str(store), "--fleet", str(fleet), "--json"]
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["promoted"]
    (model,) = [file for file in service.followed if file.what == "model"]
    assert await reload_now(model, lambda *_: None)
    after = service.live.route(question)
    assert before.model_version == "prior"
    assert after.model_version == "v0001"
    assert service.live.serving.model_version == "v0001"
    ratio = after.placement.tpot.p50_s / before.placement.tpot.p50_s
    assert 0.75 * SLOWNESS < ratio < 1.3 * SLOWNESS
    service.log.close()
