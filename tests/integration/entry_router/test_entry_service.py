"""The service around an entry router: files that it follows, what it says of itself, how it starts and ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
import yaml

from data.fleet.reference import reference_path
from data.plan import PlanDocument, PlanStatus, TrafficShare
from data.plan_io import write_plan
from router.entry.entry_service import EntryService
from router.entry.entry_service_settings import EntryKnobs, EntryServiceSettings
from router.entry.settings import EntrySettings
from router.pb.v1 import router_pb2 as pb
from router.pb.v1 import router_pb2_grpc as rpc
from router.serving.server_settings import ListenSettings, ServerLimits

pytestmark = pytest.mark.asyncio
KNOBS = EntryKnobs(entry=EntrySettings(period_s=0.05, stale_s=0.5, gone_s=2.0), server=ServerLimits(drain_s=0.2))


def plan(name: str, shares: dict[str, float], fleet: str = "four-sites") -> PlanDocument:
    return PlanDocument(
        plan_id=name,
        parent_id=None,
        made_at="2026-01-01T00:00:00Z",
        valid_from="2026-01-01T00:00:00Z",
        valid_until="2026-01-01T01:00:00Z",
        fleet=fleet,
        input_digests={},
        status=PlanStatus.OPTIMAL,
        objective=1.0,
        goodput_tokens_per_s=1.0,
        bound=1.0,
        bound_name="lp",
        replicas=(),
        shares=tuple(
            TrafficShare("assistant@v1", "interactive", "shop", "A", site, share) for site, share in shares.items()
        ),
    )


class Site(rpc.RouterServicer):
    """A site's router that places everything at once; only what it tells matters here."""

    def __init__(self, site: str) -> None:
        self.site = site
        self.placed = 0

    async def Route(self, request: pb.RouteRequest, context: Any) -> pb.RouteReply:  # noqa: N802
        self.placed += 1
        placement = pb.Placement(endpoint_id="e", site=self.site, lease_id=(ord(self.site) << 40) + self.placed)
        return pb.RouteReply(request_id=request.request_id, placement=placement, workload_class="interactive")

    async def Capacity(  # noqa: N802
        self, request: pb.CapacityRequest, context: Any
    ) -> AsyncIterator[pb.CapacityReport]:
        for sequence in range(1, 10_000):
            pool = pb.SiteCapacity(
                site=self.site, model="assistant@v1", ready=2, idle=2, free_slots=50, tpot_s=0.01
            )
            yield pb.CapacityReport(sequence=sequence, lease_base=ord(self.site) << 40, sites=[pool])
            await asyncio.sleep(request.period_s)


@contextlib.asynccontextmanager
async def serving(folder: Path, **given: Any) -> AsyncIterator[SimpleNamespace]:
    servers, routers = [], {}
    for name in "BC":
        server = grpc.aio.server()
        rpc.add_RouterServicer_to_server(Site(name), server)
        routers[name] = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        await server.start()
        servers.append(server)
    told: asyncio.Future[tuple[str, str | None]] = asyncio.get_running_loop().create_future()
    settings = EntryServiceSettings(
        fleet=folder / "fleet.yaml",
        routers=routers,
        listen=ListenSettings("127.0.0.1:0"),
        metrics_listen="127.0.0.1:0",
        knobs=KNOBS,
        follow_s=0.02,
        **given,
    )
    service = EntryService(settings, lambda address, page: told.set_result((address, page)))
    running = asyncio.create_task(service.run())
    address, page = await asyncio.wait_for(told, 10)
    async with grpc.aio.insecure_channel(address) as channel:
        yield SimpleNamespace(service=service, page=page, stub=rpc.RouterStub(channel), entry=service.entry)
    service.stop()
    await asyncio.wait_for(running, 10)
    for server in servers:
        await server.stop(0)


async def until(ready: Callable[[], Any]) -> None:
    async with asyncio.timeout(10):
        while not ready():
            await asyncio.sleep(0.02)


@pytest.fixture(name="folder")
def _folder(tmp_path: Path) -> Path:
    (tmp_path / "fleet.yaml").write_text(reference_path("four-sites").read_text())
    return tmp_path


async def test_a_new_plan_s_shares_are_followed_and_a_wrong_one_changes_nothing(folder: Path) -> None:
    path = folder / "plan.json"
    write_plan(plan("p1", {"B": 0.2, "C": 0.8}), path)
    asked = pb.RouteRequest(model="assistant@v1", tenant="shop", input_tokens=500, output_budget=50)

    async def shares(world: Any, count: int) -> Counter[str]:
        replies = [await world.stub.Route(asked, timeout=5) for _ in range(count)]
        return Counter(reply.placement.site for reply in replies)

    async with serving(folder, plan=path, sites="shares_only") as world:
        await until(lambda: all(link.reachable() for link in world.entry.links.values()))
        assert await shares(world, 20) == {"B": pytest.approx(4, abs=1), "C": pytest.approx(16, abs=1)}
        write_plan(replace(plan("p2", {"B": 1.0}), fleet="another"), path)
        await until(lambda: world.service.followed[-1].status.errors)
        assert world.entry.serving.plan_id == "p1"
        write_plan(plan("p3", {"B": 0.9, "C": 0.1}), path)
        await until(lambda: world.entry.serving.plan_id == "p3")
        assert (await shares(world, 20))["B"] >= 18


async def test_a_fleet_file_is_swapped_in_and_permissions_count_at_once(folder: Path) -> None:
    asked = pb.RouteRequest(model="assistant@v1", tenant="shop", input_tokens=500, output_budget=50)
    async with serving(folder) as world:
        await until(lambda: all(link.reachable() for link in world.entry.links.values()))
        first = await world.stub.Route(asked, timeout=5)
        assert first.placement.site in ("B", "C")
        before = world.entry.fleet.digest
        document = yaml.safe_load((folder / "fleet.yaml").read_text())
        for tenant in document["tenants"]:
            if tenant["name"] == "shop":
                tenant["sites"] = ["D"]
        (folder / "fleet.yaml").write_text(yaml.safe_dump(document))
        await until(lambda: world.entry.fleet.digest != before)
        assert (await world.stub.Route(asked, timeout=5)).refusal.reason == "no_permitted_site"
        assert len(world.entry.leases) == 1, "what is under way stays"
        (folder / "fleet.yaml").write_text("sites: 7\n")
        await until(lambda: world.service.followed[0].status.errors)
        assert world.entry.safe()
        page = await asyncio.to_thread(urllib.request.urlopen, world.page.replace("/metrics", "/status"), None, 5)
        told = json.loads(page.read())
        assert told["files"][0]["errors"]
        assert [(one["site"], one["reports"], one["ready"]) for one in told["sites"]] == [
            ("B", "fresh", {"assistant@v1": 2}),
            ("C", "fresh", {"assistant@v1": 2}),
        ]
