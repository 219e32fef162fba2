"""A router with probes beside engines over real HTTP: listed is not ready (F105)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from benchmarks.fakes.router_site import Running, Site, question, quick_knobs, router_site, running, until
from data.errors import InputError
from router.feeds.probe_settings import ProbeSettings
from router.observe.metric_catalog import PREFIX
from router.pb.v1 import router_pb2 as pb
from router.serving.service import RouterService
from router.serving.service_settings import ServiceSettings

pytestmark = pytest.mark.asyncio
QUICK = ProbeSettings(deadline_s=0.5, first_pause_s=0.05, longest_pause_s=0.05)


@pytest_asyncio.fixture(name="site")
async def _site(tmp_path: Path) -> AsyncIterator[Site]:
    async with router_site(tmp_path) as site:
        yield site


def settings(site: Site, **probe: Any) -> ServiceSettings:
    return ServiceSettings(site.fleet, probe=True, knobs=quick_knobs(probe=replace(QUICK, **probe)))


async def chosen(router: Running, times: int = 12) -> set[str]:
    replies = [await router.stub.Route(question(input_tokens=700)) for _ in range(times)]
    return {reply.placement.endpoint_id or reply.refusal.reason for reply in replies}


def ready(router: Running, name: str) -> bool:
    row = router.service.live.rows.row(name)
    return row is not None and bool(router.service.live.core.table.ready[row])


async def test_an_engine_that_lists_its_model_but_fails_completions_is_never_chosen_f105(site: Site) -> None:
    """F105: its metrics are fresh all the while; once completions come it is chosen."""
    site.engines[0].serve_mode = "error"
    async with running(settings(site)) as router:
        live = router.service.live
        await until(lambda: ready(router, "e1"))
        await until(lambda: live.metrics_state(live.rows.row("e0") or 0, live.clock()) == "fresh")
        assert await chosen(router, 40) == {"e1"}
        explained = await router.stub.Explain(pb.ExplainRequest(request=question()))
        assert {(each.endpoint_id, each.reason) for each in explained.rejected} >= {("e0", "not_ready")}
        status = {each["id"]: each for each in (await router.status())["endpoints"]}
        assert (status["e0"]["stage"], status["e0"]["probe_failed"]) == ("warming", "status")
        assert status["e1"]["stage"] == "ready"
        page = await router.get("/metrics")
        for line in (
            'endpoint_stage{endpoint="e0",stage="warming"} 1.0',
            'endpoint_stage{endpoint="e0",stage="ready"} 0.0',
            'endpoint_stage{endpoint="e1",stage="ready"} 1.0',
            'endpoint_stage_seconds{endpoint="e0",stage="warming"}',
            'probes_total{endpoint="e0",result="status"}',
            'probes_total{endpoint="e1",result="passed"} 1.0',
            'endpoint_up{endpoint="e0",model="assistant@v1",site="main"} 0.0',
        ):
            assert PREFIX + line in page, line
        site.engines[0].serve_mode = "ok"
        await until(lambda: ready(router, "e0"))
        assert "e0" in await chosen(router, 40)


async def test_engines_that_serve_are_ready_before_the_first_caller_comes_f105(site: Site) -> None:
    """F105: a router that starts beside a running fleet refuses nobody."""
    async with running(settings(site)) as router:
        assert await chosen(router, 1) <= {"e0", "e1"}


async def test_another_process_behind_the_address_is_probed_again_f105(site: Site) -> None:
    """F105: a restart shows on the metrics page; its first completion fails, so it gets nothing."""
    async with running(settings(site)) as router:
        await until(lambda: ready(router, "e0") and ready(router, "e1"))
        row = router.service.live.rows.row("e0")
        assert row is not None
        await until(lambda: router.service.live.states.started_at_s(row) > 0)
        before = site.engines[0].served
        site.engines[0].serve_mode = "error"
        site.engines[0].load.started_at_s += 60.0
        await until(lambda: not ready(router, "e0"))
        assert await chosen(router) == {"e1"}
        assert router.service.live.stages.lives["e0"].stage.value in ("planned", "warming")
        site.engines[0].serve_mode = "ok"
        await until(lambda: ready(router, "e0"))
        assert site.engines[0].served == before + 1


async def test_a_new_endpoint_of_the_list_waits_for_its_probe_and_a_hung_one_delays_nobody_f105(
    site: Site,
) -> None:
    """F105: the hung engine holds its own probe alone; an endpoint that left is remembered with its times."""
    site.engines[0].serve_mode = "hang"
    async with running(settings(site, deadline_s=15.0)) as router:
        await until(lambda: ready(router, "e1"))
        site.engines[2].serve_mode = "error"
        site.document["endpoints"] = site.endpoints(0, 2)
        assert site.fleet.exists()
        await until(lambda: router.service.live.rows.row("e2") is not None)
        assert await chosen(router) == {"no_endpoint"}
        site.engines[2].serve_mode = "ok"
        await until(lambda: ready(router, "e2"))
        assert await chosen(router) == {"e2"}
        (gone,) = (await router.status())["gone"]
        assert (gone["id"], gone["stage"]) == ("e1", "gone")
        assert gone["seconds"]["ready"] > 0


async def test_a_changed_fleet_that_resets_rows_probes_them_again_f105(site: Site) -> None:
    """F105: the list of engines is the same, what runs there is described anew."""
    async with running(settings(site)) as router:
        await until(lambda: ready(router, "e0") and ready(router, "e1"))
        passed = router.service.engines.prober.counts["e1"]["passed"]  # type: ignore[union-attr]
        site.document["models"][0]["context_limit_tokens"] //= 2
        assert site.fleet.exists()
        counts = router.service.engines.prober.counts  # type: ignore[union-attr]
        await until(lambda: counts["e1"]["passed"] == passed + 1)
        await until(lambda: ready(router, "e0") and ready(router, "e1"))


async def test_without_probes_nothing_is_sent_and_all_is_as_before(site: Site) -> None:
    site.engines[0].serve_mode = "error"
    async with running(ServiceSettings(site.fleet, knobs=quick_knobs())) as router:
        assert ready(router, "e0")
        assert ready(router, "e1")
        await until(lambda: site.engines[0].scrapes > 2 and site.engines[1].scrapes > 2)
        assert await chosen(router, 16) == {"e0", "e1"}
        assert site.engines[1].served == 0


async def test_a_kind_without_such_completions_is_not_probed(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    site.document["endpoints"][1]["engine"] = "triton"
    site.engines[1].serve_mode = "error"
    async with running(settings(site)) as router:
        assert ready(router, "e1")
        assert "not probed" in caplog.text
        await until(lambda: ready(router, "e0"))
        assert site.engines[1].served == 0


async def test_a_served_name_is_what_the_engine_is_asked_for_f105(site: Site) -> None:
    """F105: exactly this model, under the name that the engine knows it by."""
    site.document["endpoints"][0]["served_model"] = "meta/assistant"
    async with running(settings(site)) as router:
        targets = router.service.engines.prober.targets  # type: ignore[union-attr]
        assert targets["e0"].model == "meta/assistant"
        assert targets["e1"].model == "assistant@v1"


async def test_a_bad_key_file_is_told_before_anything_starts(site: Site) -> None:
    key = site.folder / "key"
    for content in (b"", b"two\nlines", "schlüssel".encode()):
        key.write_bytes(content)
        with pytest.raises(InputError, match="not a key") as told:
            RouterService(settings(site, key_file=str(key)))
        assert "schl" not in str(told.value)
    with pytest.raises(InputError, match="key_file"):
        RouterService(settings(site, key_file=str(site.folder / "none")))
    key.write_text("secret-of-engines\n")
    async with running(settings(site, key_file=str(key))) as router:
        assert "secret-of-engines" not in str(await router.status())
        await asyncio.wait_for(until(lambda: ready(router, "e0")), 20)
