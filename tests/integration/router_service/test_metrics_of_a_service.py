"""The metrics page and the status of a router as it is started, beside real fake engines."""

from __future__ import annotations

import urllib.error
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.fakes.router_site import (
    TOKENS,
    Running,
    Site,
    question,
    quick_knobs,
    router_site,
    running,
    tell_of,
    until,
)
from data.log.reader import LogReader
from router.feeds.discovery import live_endpoints
from router.observe.metric_catalog import BY_NAME, METRICS, PREFIX
from router.pb.v1 import router_pb2 as pb
from router.serving.service_settings import ServiceSettings

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture(name="site")
async def _site(tmp_path: Path) -> AsyncIterator[Site]:
    async with router_site(tmp_path) as site:
        yield site


async def traffic(router: Running, site: Site) -> None:
    """Every way that a request may go, so that every metric has something to tell."""
    stub = router.stub
    first = await stub.Route(question(request_id="a"))
    await tell_of(router, site.publisher, first.placement.cache_salt)
    lengths = await stub.Route(question(input_tokens=700))
    retry = await stub.Route(question(request_id="b", attempt=1))
    assert (await stub.Route(question(model="unknown@v1"))).refusal.reason == "unknown_model"
    finished = pb.Finished(output_tokens=5, ttft_s=0.1, e2e_s=0.5, cached_tokens=64)
    events = [
        pb.ReportEvent(lease_id=first.placement.lease_id, first_token=pb.FirstToken(ttft_s=0.1)),
        pb.ReportEvent(lease_id=first.placement.lease_id, finished=finished),
        pb.ReportEvent(lease_id=retry.placement.lease_id, cancelled=pb.Cancelled(output_tokens=3)),
        pb.ReportEvent(lease_id=1, cancelled=pb.Cancelled()),
    ]
    summary = await stub.Report(iter(events))
    assert (summary.accepted, summary.unknown_lease) == (3, 1)
    assert lengths.HasField("placement")


NOT_HERE = {
    "parity_mismatch": "has a sample only while an engine sees other tokens than the router",
    **dict.fromkeys(
        ("tenant_budget_left", "tenant_reserved_tokens", "tenant_requests_in_flight"),
        "no tenant of this fleet has a budget",
    ),
    "probes": "this router does not probe",
    "tenant_debt_factor": "no tenant of this fleet is promised a rate",
    **{name: "there is one site" for name in BY_NAME if name.startswith("site_")},
}
"""Metrics without a sample after ordinary traffic, and why."""


async def test_every_metric_of_the_catalog_is_on_the_page_of_a_running_router(site: Site) -> None:
    site.engines[1].metrics_mode = "error"
    settings = ServiceSettings(site.fleet, log=site.folder / "log", knobs=quick_knobs())
    async with running(settings) as router:
        await traffic(router, site)
        site.document["x-note"] = 1
        assert site.fleet.exists()
        counted = router.service.metrics.counter("reloads")
        await until(lambda: bool(counted.values))
        text = await router.get("/metrics")
    with_samples = {
        family.name.removeprefix(PREFIX) for family in text_string_to_metric_families(text) if family.samples
    }
    assert {metric.name for metric in METRICS} - with_samples == set(NOT_HERE)
    assert router.service.metrics.undeclared == set()
    for line in (
        'kv_event_batches_total{endpoint="e0"}',
        'endpoint_metrics_state{endpoint="e0",state="fresh"} 1.0',
        'endpoint_metrics_state{endpoint="e1",state="never_seen"} 1.0',
        'scrape_errors_total{endpoint="e1",reason="status"}',
        "endpoints_never_scraped 1.0",
        'requests_without_blocks_total{api_kind="unnamed"} 1.0',
        'log_rows_total{table="decisions"} 3.0',
        'refusals_total{reason="unknown_model"} 1.0',
        "unknown_leases_total 1.0",
        'rpcs_total{code="OK",method="Route"} 4.0',
        'reload_failed{what="fleet"} 0.0',
    ):
        assert PREFIX + line in text, line


async def test_the_predicted_hits_of_metrics_and_log_are_one_number_f138(site: Site) -> None:
    """F138: any length and block size: hits lie within the prompt, and page and log agree on their sum."""
    log, rng = site.folder / "log", np.random.default_rng(2)
    async with running(ServiceSettings(site.fleet, log=log, knobs=quick_knobs())) as router:
        await tell_of(router, site.publisher, (await router.stub.Route(question())).placement.cache_salt)
        for _ in range(60):
            length, size = int(rng.integers(1, 500)), int(rng.choice([0, 1, 7, 16, 64]))
            hashes = np.arange(1, length // (size or 16) + 1, dtype=np.uint64).tobytes()
            tokens = np.array((TOKENS * 2)[:length], dtype=np.uint32).tobytes()
            asked = [question(token_ids=tokens, block_tokens=size)]
            asked.append(question(input_tokens=length, block_hashes=hashes, block_tokens=size))
            for each in asked:
                reply = await router.stub.Route(each)
                assert 0 <= reply.placement.predicted_hit_tokens <= length - 1
        text = await router.get("/metrics")
    (line,) = [row for row in text.splitlines() if row.startswith(PREFIX + "predicted_hit_tokens_total{")]
    rows = LogReader(log).window(0.0, 1e12)
    assert float(line.split()[-1]) == sum(rows.column("hit_tokens").to_pylist()) > 0


async def test_the_status_tells_files_and_options_f129_f134(site: Site) -> None:
    """F129, F134: versions that serve and were tried, faults with their paths; value and source of all options."""
    settings = ServiceSettings(site.fleet, knobs=quick_knobs())
    async with running(settings) as router:
        before = (await router.status())["serving"]["fleet"]
        site.document["classes"][0]["slo"]["ttft_s"] = -4
        site.document["classes"][1]["nmae"] = "x"
        assert site.fleet.exists()
        await until(lambda: bool(router.service.followed[0].status.errors))
        status = await router.status()
        (fleet,) = status["files"]
        assert fleet["active"] == status["serving"]["fleet"] == before
        assert len(fleet["errors"]) >= 2
        assert any("classes[0].slo.ttft_s" in error and "-4" in error for error in fleet["errors"])
        assert PREFIX + 'reload_failed{what="fleet"} 1.0' in await router.get("/metrics")
        options = {option["name"]: option for option in status["settings"]}
        assert options["scrape.period_s"] == {"name": "scrape.period_s", "value": 0.03, "source": "default"}
        with pytest.raises(urllib.error.HTTPError, match="404"):
            await router.get("/elsewhere")


async def test_ten_thousand_endpoints_and_five_thousand_tenants_leave_a_bounded_page_f136(site: Site) -> None:
    """F136: what left is gone with the next scrape; tenants beyond the bound share one series."""
    site.document["tenants"] = [{"name": f"t{number}"} for number in range(5000)]
    async with running(ServiceSettings(site.fleet, knobs=quick_knobs())) as router:
        live, parts = router.service.live, router.service.parts
        few = len(await router.get("/metrics"))
        (template,) = live.state.fleet.endpoints[1:]
        for batch in range(50):
            engines = [replace(template, id=f"x{batch}-{number}", kv_events=None) for number in range(200)]
            live.apply_endpoints(live_endpoints(engines, live.state.fleet, parts.catalog))
            reply = await router.stub.Route(question(tenant=f"t{batch}"))
            done = pb.ReportEvent(lease_id=reply.placement.lease_id, finished=pb.Finished(output_tokens=1))
            await router.stub.Report(iter([done]))
        for number in range(5000):
            router.service.metrics.tenant(f"t{number}")
        many = await router.get("/metrics")
        assert many.count(PREFIX + "endpoint_up{") == 200
        assert 'endpoint="x48-' not in many
        live.apply_endpoints(live_endpoints(live.state.fleet.endpoints, live.state.fleet, parts.catalog))
        reply = await router.stub.Route(question(tenant="t4999"))
        done = pb.ReportEvent(lease_id=reply.placement.lease_id, finished=pb.Finished(output_tokens=1))
        await router.stub.Report(iter([done]))
        last = await router.get("/metrics")
        assert 'tenant="other"' in last
        assert last.count('tenant="') <= 51 * 2
        assert len(last) < 2 * few + 20_000
        assert len(live.core.table) <= 400
