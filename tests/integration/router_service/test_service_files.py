"""What a router is started with beside its fleet file, what it knew before, and what may be absent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio

from benchmarks.fakes.kv_publisher import KvPublisher
from benchmarks.fakes.router_site import TOKENS, Site, question, quick_knobs, router_site, running, tell_of, until
from data.errors import SettingError
from router.observe.metric_catalog import PREFIX
from router.pb.v1 import router_pb2 as pb
from router.prefix.index import PrefixIndexSettings
from router.serving.service import RouterService
from router.serving.service_settings import Knobs, ServiceSettings

SECRET = "0123456789abcdef"

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture(name="site")
async def _site(tmp_path: Path) -> AsyncIterator[Site]:
    async with router_site(tmp_path) as site:
        yield site


async def test_engines_come_and_go_with_the_endpoints_file(site: Site) -> None:
    path = site.folder / "endpoints.json"
    path.write_text(json.dumps({"endpoints": site.endpoints(1)}))
    async with running(ServiceSettings(site.fleet, endpoints=path, knobs=quick_knobs())) as router:
        live = router.service.live
        assert [e.endpoint_id for e in live.rows.endpoints()] == ["e1"]  # not the fleet file's list
        lease = (await router.stub.Route(question())).placement.lease_id
        path.write_text(json.dumps(site.endpoints(1, 2)))
        await until(lambda: len(live.rows) == 2)
        await until(lambda: site.engines[2].scrapes > 0)
        assert len(live.leases) == 1
        path.write_text(json.dumps([{**site.endpoints(1)[0], "site": "nowhere"}]))
        await until(lambda: any(file.status.errors for file in router.service.followed))
        assert len(live.rows) == 2
        (status,) = [file for file in (await router.status())["files"] if file["what"] == "endpoints"]
        assert "nowhere" in status["errors"][0]
        path.unlink()
        await until(lambda: "cannot be read" in str(router.service.followed[1].status.errors))
        assert len(live.rows) == 2
        ended = pb.ReportEvent(lease_id=lease, finished=pb.Finished(output_tokens=1))
        assert (await router.stub.Report(iter([ended]))).accepted == 1


async def test_fleet_and_engines_may_change_together(site: Site) -> None:
    """Each is refused beside the old other one; as soon as both are there, both serve."""
    path = site.folder / "endpoints.json"
    path.write_text(json.dumps(site.endpoints(1)))
    settings = ServiceSettings(site.fleet, endpoints=path, knobs=quick_knobs())
    async with running(settings) as router:
        fleet, engines = router.service.followed
        site.document["configs"][0]["name"] = "renamed"
        site.document["placement"][0]["config"] = "renamed"
        del site.document["endpoints"]
        assert site.fleet.exists()
        await until(lambda: bool(fleet.status.errors))
        assert router.service.live.core.table.specs[0].config == "assistant-h100"
        path.write_text(json.dumps([{**site.endpoints(1)[0], "config": "renamed"}]))
        await until(lambda: router.service.live.core.table.specs[0].config == "renamed")
        await until(lambda: not fleet.status.errors and not engines.status.errors)
        assert fleet.status.active == router.service.live.state.digest


async def test_a_router_that_is_started_again_knows_what_it_knew_f027(site: Site) -> None:
    """F027: written when it drains, taken over when the engine has shown that it is the same."""
    secret, snapshot = site.folder / "secret", site.folder / "index"
    secret.write_text(SECRET)
    settings = ServiceSettings(site.fleet, scope_secret=secret, index_snapshot=snapshot, knobs=quick_knobs())
    async with running(settings) as router:
        salt = (await router.stub.Route(question())).placement.cache_salt
        await tell_of(router, site.publisher, salt)
        assert router.service.engines is not None
        events = router.service.engines.events
        await until(lambda: bool(events.capture()))
    assert snapshot.stat().st_size > 20 * 8
    async with running(settings) as router:
        await until(lambda: router.service.live.index.resident(0) >= 20)
        assert (await router.stub.Route(question())).placement.predicted_hit_tokens == len(TOKENS) - 1
    site.engines[0].load.started_at_s += 500
    async with running(settings) as router:
        live = router.service.live
        await until(lambda: not np.isnan(live.states.started_at_s(0)))
        assert live.index.resident(0) == 0


async def test_a_snapshot_needs_a_secret_that_lasts(site: Site) -> None:
    with pytest.raises(SettingError, match="index_snapshot"):
        RouterService(ServiceSettings(site.fleet, index_snapshot=site.folder / "index"))


async def test_public_prefixes_are_shared_and_followed_f145(site: Site) -> None:
    """F145: tenants share what an operator declared, as soon as the file says so, and nothing else."""
    site.document["tenants"] = [{"name": "shop"}, {"name": "bank"}]
    site.document["endpoints"] = site.endpoints(1)
    path = site.folder / "public.yaml"
    path.write_text("public_prefixes: []\n")
    async with running(ServiceSettings(site.fleet, public_prefixes=path, knobs=quick_knobs())) as router:

        async def ask(tenant: str) -> pb.Placement:
            reply: pb.RouteReply = await router.stub.Route(question(tenant=tenant))
            return reply.placement

        await ask("shop")
        private = await ask("bank")
        assert (private.predicted_hit_tokens, private.cache_salt[:4]) == (0, "tf1-")
        declared = {"model": "assistant@v1", "token_ids": TOKENS[:160]}
        path.write_text(json.dumps({"public_prefixes": [declared, {**declared, "model": "other@v1"}]}))
        hasher = router.service.parts.hasher
        before = hasher.public
        await until(lambda: hasher.public is not before)
        await ask("shop")
        shared = await ask("bank")
        assert (shared.predicted_hit_tokens, shared.cache_salt) == (160, "")


async def test_an_index_that_could_not_fit_is_refused_at_start_f022(site: Site) -> None:
    """F022: with the estimate and the way out; with a larger limit it starts."""
    small = Knobs(prefix_index=PrefixIndexSettings(max_bytes=1 << 16))
    with pytest.raises(SettingError, match="prefix index could need"):
        RouterService(ServiceSettings(site.fleet, knobs=small))
    async with running(ServiceSettings(site.fleet, knobs=quick_knobs())) as router:
        assert router.service.live.index.max_entries > 1_000_000


async def test_it_starts_without_what_is_optional_and_takes_it_up_later_f133(site: Site) -> None:
    """F133: no metrics, no events, no model at first: degraded and said so; each is used when it appears."""
    for engine in site.engines:
        engine.metrics_mode = "error"
    silent = f"ipc://{site.folder}/nobody-publishes-here-yet"
    site.document["endpoints"][1]["kv_events"] = silent
    settings = ServiceSettings(site.fleet, models=site.folder / "models", knobs=quick_knobs())
    async with running(settings) as router, KvPublisher(site.folder, "late") as late:
        reply = await router.stub.Route(question())
        assert reply.model_version == "prior"
        assert "stale_metrics" in reply.degraded
        page = await router.get("/metrics")
        assert PREFIX + "endpoints_never_scraped 2.0" in page
        assert PREFIX + "kv_events_warming 2.0" in page
        for engine in site.engines:
            engine.metrics_mode = "ok"
        states = router.service.live.states
        await until(lambda: all(states.fresh(np.arange(2), router.service.live.clock())))
        assert "stale_metrics" not in (await router.stub.Route(question())).degraded
        late.publish_at(silent)
        index = router.service.live.index
        async with asyncio.timeout(20):
            while not index.resident(1):
                await late.stored(range(1, 21), TOKENS, 16, reply.placement.cache_salt)
                await asyncio.sleep(0.02)
