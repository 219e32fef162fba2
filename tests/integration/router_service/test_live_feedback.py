"""The feedback in the service: what callers report changes what is let in, and a restart goes on with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.fakes.router_site import Running, Site, question, quick_knobs, router_site, running, until
from data.errors import SettingError
from data.fleet.types import Fleet, Reservation, Tenant
from data.plan import PlanDocument, PlanStatus, PoolSplit
from router.flow.flow_desk import FlowDesk
from router.flow.flow_metrics import flow_samples
from router.observe.metric_catalog import PREFIX
from router.pb.v1 import router_pb2 as pb
from router.serving.attempt_end import EXPIRED, STOPPED
from router.serving.fleet_state import FleetSettings
from router.serving.live_build import next_fleet_state
from router.serving.service_settings import Knobs, ServiceSettings
from router.slomax.corrected import Corrected
from router.slomax.corrections import NEUTRAL, Corrections
from router.slomax.evidence import UNTOLD
from router.slomax.feedback_settings import FeedbackSettings
from router.slomax.feedback_state import load_feedback
from router.slomax.registry import flow_factory

QUICK = FeedbackSettings(step_s=0.05, settle_s=0.05, capacity_tau_s=0.1)
KEY = ("m@1", "interactive")
LATE = pb.Finished(output_tokens=40, ttft_s=9.0, e2e_s=10.0)
GOOD = pb.Finished(output_tokens=40, ttft_s=0.1, e2e_s=1.0)


@pytest_asyncio.fixture(name="site")
async def _site(tmp_path: Path) -> AsyncIterator[Site]:
    async with router_site(tmp_path) as site:
        yield site


def corrected_of(live: Any) -> Corrected:
    assert isinstance(live.desk, FlowDesk)
    assert live.desk.corrected is not None
    return live.desk.corrected


async def miss_targets(router: Running, requests: int = 40) -> None:
    """So many requests, all of them late."""
    for number in range(requests):
        lease = (await router.stub.Route(question(request_id=str(number)))).placement.lease_id
        if lease:
            await router.stub.Report(iter([pb.ReportEvent(lease_id=lease, finished=LATE)]))


def share_of(router: Running) -> float:
    found = corrected_of(router.service.live).corrections.admission
    return next(iter(found.values()), 1.0)


@pytest.mark.asyncio
async def test_a_restarted_service_goes_on_with_the_same_limits(site: Site) -> None:
    """Bumpless: what callers have reported thins out what arrives, and it does so after a restart as before."""
    path = site.folder / "feedback.json"
    settings = ServiceSettings(site.fleet, feedback_state=path, knobs=quick_knobs(feedback=QUICK))
    async with running(settings) as router:
        await until(lambda: router.service.live.safe())
        await miss_targets(router)
        await until(lambda: share_of(router) < 1.0)
        before = share_of(router)
        await until(path.exists)  # while it runs, not only at its end
    saved = load_feedback(path)
    assert saved is not None
    assert saved.settings == QUICK
    async with running(settings) as router:
        assert share_of(router) == pytest.approx(before, abs=2e-3)
        await until(lambda: router.service.live.safe())
        replies = [await router.stub.Route(question(request_id=f"r{n}")) for n in range(50)]
        refused = [reply.refusal for reply in replies if reply.HasField("refusal")]
        assert abs(len(refused) - 50 * (1 - before)) <= 1
        assert {one.reason for one in refused} == {"overloaded"}
        assert all(one.retry_after_s >= 1.0 for one in refused)
        await told_everywhere(router, before)
    path.write_text("{}")
    async with running(settings) as router:
        assert corrected_of(router.service.live).corrections == NEUTRAL


async def told_everywhere(router: Running, share: float) -> None:
    """Metrics, status and ``Explain`` say the same."""
    text = await router.get("/metrics")
    values = {
        (sample.name, sample.labels.get("workload_class")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    told = (await router.status())["feedback"]["admission"]
    kind = told[0]["workload_class"]
    assert told[0]["factor"] == pytest.approx(share, abs=2e-3)
    assert values[PREFIX + "admitted_share", kind] == told[0]["factor"]
    assert values[PREFIX + "admitted_repeats_share", kind] == 1.0
    explained = (await router.stub.Explain(pb.ExplainRequest(request=question()))).corrections
    assert explained.admitted_share == told[0]["factor"]
    assert (explained.repeats_share, explained.capacity, explained.debt) == (1.0, 1.0, 1.0)


@pytest.mark.asyncio
async def test_without_feedback_nothing_is_thinned_out_or_told(site: Site) -> None:
    settings = ServiceSettings(site.fleet, feedback=False, knobs=quick_knobs(feedback=QUICK))
    async with running(settings) as router:
        await until(lambda: router.service.live.safe())
        await miss_targets(router)
        await asyncio.sleep(0.2)
        replies = [await router.stub.Route(question(request_id=f"r{n}")) for n in range(20)]
        assert all(reply.HasField("placement") for reply in replies)
        assert "feedback" not in await router.status()
        assert PREFIX + "admitted_share{" not in await router.get("/metrics")
        assert not (await router.stub.Explain(pb.ExplainRequest(request=question()))).HasField("corrections")


@pytest.mark.parametrize("off", [{"feedback": False}, {"flow": "none"}])
def test_a_state_file_without_feedback_is_refused(tmp_path: Path, off: dict[str, Any]) -> None:
    settings = ServiceSettings(tmp_path / "fleet.yaml", feedback_state=tmp_path / "f.json", **off)
    with pytest.raises(SettingError, match="feedback_state"):
        settings.make_flow()
    assert Knobs().feedback == FeedbackSettings()


@pytest.fixture(name="fed")
def _fed(make_world: Any, endpoint: Any, fleet: Fleet) -> Any:
    def make(budget_share: float = 1.0, **settings: Any) -> Any:
        promised = Tenant("bank", reservations=(Reservation("m@1", tokens_per_s=1000.0),))
        tenants = tuple(promised if one.name == "bank" else one for one in fleet.tenants)
        flow = flow_factory("slomax", {"budget_share": budget_share}, FeedbackSettings(**settings))
        return make_world([endpoint(0), endpoint(1)], fleet=replace(fleet, tenants=tenants), flow=flow)

    return make


def serve_some(world: Any, end: pb.Finished, count: int = 40, seconds: float = 5.0, **asked: Any) -> None:
    """Requests that end as told, then the next step of the feedback."""
    for number in range(count):
        reply = world.ask(request_id=f"{world.clock.now_s}-{number}", **asked)
        if reply.HasField("placement"):
            assert world.tell(reply.placement.lease_id, finished=end) == "accepted"
    world.clock.now_s += seconds
    world.live.tick()


def plan_of(rate: float, correction: float) -> PlanDocument:
    splits = (PoolSplit("B", "m@1", "H100", "interactive", 1, rate, {}, correction),)
    return PlanDocument(
        "p1", None, "2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z", "test", {},
        PlanStatus.GREEDY, 0.0, 0.0, 0.0, "none", (), splits=splits,
    )  # fmt: skip


def test_a_plan_tells_what_to_expect_with_its_correction_taken_out(fed: Any, fleet: Fleet) -> None:
    """Without a plan nothing is expected of a pool; another fleet file changes nothing in what is."""
    world = fed(capacity_tau_s=5.0)
    serve_some(world, LATE)
    assert corrected_of(world.live).corrections.capacity == {}
    world.live.desk.plan_changed(plan_of(80.0, 0.8))
    assert corrected_of(world.live).feedback.expected.planned == {KEY: pytest.approx(100.0)}
    serve_some(world, LATE)
    first = corrected_of(world.live).corrections.capacity[KEY]
    assert first < 1.0
    state = next_fleet_state(world.live, fleet, "f2", FleetSettings())
    world.live.apply_fleet(state, list(world.live.rows.endpoints()))
    assert corrected_of(world.live).feedback.expected.planned == {KEY: pytest.approx(100.0)}
    assert corrected_of(world.live).feedback.expected.guarantees == {}  # the new file promises nothing
    serve_some(world, LATE)
    assert corrected_of(world.live).corrections.capacity[KEY] < first


def test_one_of_several_routers_expects_its_share(fed: Any) -> None:
    world = fed(budget_share=0.25)
    world.live.desk.plan_changed(plan_of(80.0, 1.0))
    expected = corrected_of(world.live).feedback.expected
    assert expected.planned == {KEY: pytest.approx(20.0)}
    assert expected.guarantees == {("*", "bank"): 250.0}


def test_what_was_lost_while_it_waited_here_is_not_held_against_the_engines(fed: Any) -> None:
    """Its lease carries all of its targets; the feedback counts what was left of them when it was sent."""
    for waited_s, cut in ((0.0, True), (1.9, False)):
        world = fed()
        table = world.live.core.table
        for number in range(40):
            table.inflight[:] = table.max_seqs
            got: list[Any] = []
            asked = question(
                model="m@1", tenant="shop", input_tokens=100, output_budget=50, request_id=str(number)
            )
            assert isinstance(world.live.desk.ask(asked, "", "", None, got.append), int)
            world.clock.now_s += waited_s
            table.inflight[:] = 0
            world.live.desk.pump()
            assert world.tell(got[0].placement.lease_id, finished=LATE) == "accepted"
        world.clock.now_s += 5.0
        world.live.tick()
        assert bool(corrected_of(world.live).corrections.admission) is cut


def test_ends_that_nobody_told_say_nothing_of_a_pool_f061(fed: Any) -> None:
    """Leases that ran out, and answers whose first token nobody told of, must not cut what is let in."""
    assert UNTOLD == (EXPIRED, STOPPED)
    world = fed()
    untold = pb.Finished(output_tokens=40, e2e_s=10.0)
    serve_some(world, untold)
    assert corrected_of(world.live).corrections.admission == {}
    for number in range(40):
        world.ask(request_id=f"lost-{number}")
    world.clock.now_s += 10_000.0
    world.live.tick()
    assert not len(world.live.leases)
    serve_some(world, GOOD, count=1)
    assert corrected_of(world.live).corrections.admission == {}
    serve_some(world, LATE)
    assert corrected_of(world.live).corrections.admission


def test_what_is_owed_is_told_and_weighs_in_the_queue(fed: Any) -> None:
    world = fed()
    for _ in range(4):
        serve_some(world, LATE, tenant="bank")
    factor = corrected_of(world.live).corrections.debt["*", "bank"]
    assert factor > 1.3
    behind = world.live.desk.flow.flow
    assert behind._queues.debt_factor("interactive", "bank") == factor
    assert behind._queues.debt_factor("interactive", "shop") == 1.0
    samples = flow_samples(world.live.desk, world.live.state.fleet, lambda name: name)
    told = {sample.labels: sample.value for sample in samples if sample.name == "tenant_debt_factor"}
    assert told == {("*", "bank"): factor}


def test_a_request_that_is_held_counts_once(fed: Any) -> None:
    """It is offered again when an engine is up: no second arrival, and not thinned out after all."""
    world = fed()
    table, desk = world.live.core.table, world.live.desk
    seen: list[bool] = []
    offer = desk.flow.offer

    def watched(arrival: Any, now_s: float) -> Any:
        seen.append(arrival.again)
        return offer(arrival, now_s)

    desk.flow.offer = watched
    table.healthy[:] = False
    got: list[Any] = []
    asked = question(model="m@1", tenant="shop", input_tokens=100, output_budget=50, queue_ttl_s=30.0)
    assert isinstance(desk.ask(asked, "", "", None, got.append), int)
    assert desk.held == 1
    table.healthy[:] = True
    corrected_of(world.live).feedback.corrections = Corrections(admission={KEY: 0.1})
    desk.pump()
    assert seen == [False, True]
    assert got[0].HasField("placement")


def test_a_class_that_is_gone_ends_in_peace(fed: Any, fleet: Fleet) -> None:
    world = fed()
    lease = world.ask().placement.lease_id
    kinds = tuple(replace(kind, name="other") for kind in fleet.classes)
    state = next_fleet_state(world.live, replace(fleet, classes=kinds), "f2", FleetSettings())
    world.live.apply_fleet(state, list(world.live.rows.endpoints()))
    assert world.tell(lease, finished=LATE) == "accepted"
