"""Plans, models and clients swapped in while requests run; what is wrong stays out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data.errors import SettingError
from data.fleet.reference import reference_path
from data.plan import PlanDocument, PlannedReplicas, PlanStatus
from data.plan_io import write_plan
from models.base import CategoryCodes, FeatureMatrix, Prediction
from router.pb.v1 import router_pb2 as pb
from router.serving.auth import token_digest
from router.serving.reload import reload_now
from router.serving.service import RouterService
from router.serving.service_settings import Knobs, ServiceSettings

pytestmark = pytest.mark.asyncio


class Model:
    """A latency model that says one second for everything."""

    version = "v7"
    codes = CategoryCodes()

    def predict(self, features: FeatureMatrix) -> Prediction:
        times = np.ones((len(features), 2))
        return Prediction((0.5, 0.9), times, 2 * times, self.version)


def plan(replicas: int, name: str = "p1", fleet: str = "one-pool") -> PlanDocument:
    planned = (PlannedReplicas("main", "assistant-h100", "assistant@v1", "H100", 1, replicas),)
    moment = "2026-01-01T00:00:00Z"
    return PlanDocument(
        name,
        None,
        moment,
        moment,
        "2027-01-01T00:00:00Z",
        fleet,
        {},
        PlanStatus.OPTIMAL,
        0.0,
        0.0,
        0.0,
        "none",
        planned,
    )


def service(folder: Path, **given: Any) -> RouterService:
    path = folder / "fleet.yaml"
    path.write_text(reference_path("one-pool").read_text())
    return RouterService(ServiceSettings(fleet=path, **given))


def question(made: RouterService) -> pb.RouteRequest:
    tenants = made.live.state.fleet.tenants
    return pb.RouteRequest(
        model="assistant@v1", tenant=tenants[0].name if tenants else "", input_tokens=500, output_budget=50
    )


async def reload(made: RouterService, what: str) -> bool:
    (file,) = [file for file in made.followed if file.what == what]
    return await reload_now(file, lambda *_: None)


async def test_a_plan_drains_and_another_one_brings_back(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    write_plan(plan(3), path)
    made = service(tmp_path, plan=path)
    table = made.live.core.table
    assert int(table.draining.sum()) == 5
    reply = made.live.route(question(made))
    assert (reply.plan_id, reply.HasField("placement")) == ("p1", True)
    write_plan(plan(8, "p2"), path)
    assert await reload(made, "plan")
    assert int(table.draining.sum()) == 0
    assert made.live.serving.plan_id == "p2"
    assert table.inflight.sum() == 1


async def test_a_plan_of_another_fleet_or_a_broken_one_stays_out_f129(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    write_plan(plan(3), path)
    made = service(tmp_path, plan=path)
    write_plan(plan(8, "p2", fleet="other"), path)
    assert not await reload(made, "plan")
    path.write_text("{")
    assert not await reload(made, "plan")
    assert made.live.serving.plan_id == "p1"
    assert int(made.live.core.table.draining.sum()) == 5


async def test_a_model_is_swapped_between_two_decisions(tmp_path: Path) -> None:
    made = service(tmp_path)
    before = made.live.route(question(made))
    made.parts.apply_model(Model())
    after = made.live.route(question(made))
    assert (before.model_version, after.model_version) == ("prior", "v7")
    assert (after.placement.ttft.p50_s, after.placement.tpot.p90_s) == (1.0, 2.0)
    assert made.live.serving.cause == "model"


async def test_spans_are_made_only_when_asked_for(tmp_path: Path) -> None:
    made = service(tmp_path, knobs=Knobs(span_share=1.0))
    assert made.live.route(question(made)).HasField("placement")
    with pytest.raises(SettingError, match="span_share"):
        service(tmp_path, knobs=Knobs(span_share=2.0))


async def test_a_store_without_a_model_serves_the_prior(tmp_path: Path) -> None:
    made = service(tmp_path, models=tmp_path / "models")
    assert made.live.route(question(made)).model_version == "prior"
    assert not await reload(made, "model")
    assert made.live.route(question(made)).model_version == "prior"


async def test_a_damaged_fleet_file_names_every_fault_and_changes_nothing_f129(tmp_path: Path) -> None:
    made = service(tmp_path)
    path = made.settings.fleet
    path.write_text(path.read_text().replace("main", "mian", 1) + "\nunknown_key: 1\n")
    assert not await reload(made, "fleet")
    status = next(file.status for file in made.followed if file.what == "fleet")
    assert len(status.errors) >= 2
    assert status.active == made.live.state.digest
    assert made.live.route(question(made)).HasField("placement")


async def test_clients_are_known_as_soon_as_their_file_says_so(tmp_path: Path) -> None:
    path = tmp_path / "clients.yaml"
    path.write_text(f"clients: [{{name: a, token_sha256: {token_digest('one')}}}]\n")
    made = service(tmp_path, clients=path)
    assert not made.server.servicer.authenticator.open
    path.write_text(f"clients: [{{name: b, token_sha256: {token_digest('two')}}}]\n")
    assert await reload(made, "clients")
    found = made.server.servicer.authenticator.identify("Route", [("authorization", "Bearer two")])
    assert found.name == "b"


async def test_nothing_of_a_prompt_is_written_anywhere_f150(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = tmp_path / "log"
    made = service(tmp_path, log=log)
    canary = np.array([1953785165, 1684234849] * 32, dtype=np.uint32).tobytes()  # four letters each
    asked = question(made)
    asked.ClearField("input_tokens")
    asked.token_ids = canary
    with caplog.at_level("DEBUG"):
        reply = made.live.route(asked)
        made.live.reports.take(
            pb.ReportEvent(lease_id=reply.placement.lease_id, error=pb.Error(http_status=500)),
            "",
            made.live.clock(),
        )
    assert made.log is not None
    made.log.close()
    written = b"".join(path.read_bytes() for path in log.rglob("*") if path.is_file())
    for text in (canary[:8], b"1953785165", b"1684234849"):
        assert text not in written
        assert text not in caplog.text.encode()
        assert text not in reply.SerializeToString()
