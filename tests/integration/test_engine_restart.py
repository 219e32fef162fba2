"""An engine restarts behind its address while the router scrapes it over real HTTP."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace

import numpy as np

from benchmarks.fakes.engine import FakeEngine
from benchmarks.router_fixture import MODEL, endpoints, fleet
from data.fleet.types import Endpoint
from router.feeds.endpoint_state import EndpointStates, ReportState, StateChange
from router.feeds.metrics_feed import MetricsFeed, log_change
from router.feeds.scrape import ScrapeSettings
from router.pb.v1 import router_pb2 as pb
from router.serving.lease_reports import ReportResult
from router.serving.live_build import LiveSettings, build_live

SETTINGS = ScrapeSettings(period_s=0.02, deadline_s=5.0, stale_after_s=5.0)


async def until(met: object) -> None:
    while not met():  # type: ignore[operator]
        await asyncio.sleep(0.005)


def test_everything_of_the_old_process_goes_and_the_endpoint_serves_on() -> None:
    """F021, F025: leases, cached blocks and reports of one incarnation are dropped together."""

    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            engines = [await stack.enter_async_context(FakeEngine()) for _ in range(2)]
            places = [replace(e, address=f.address) for e, f in zip(endpoints(2), engines, strict=True)]
            live = build_live(fleet(), places, LiveSettings(seed=1))
            table, changes = live.core.table, list[StateChange]()
            states = EndpointStates(table, live.core.book, live.health.sent, live.rows.reset, changes.append)
            feed = MetricsFeed(states, live.rows.row, SETTINGS, live.clock, np.random.default_rng(0))
            feed.apply([Endpoint(p.endpoint_id, "B", "c", p.address) for p in places])
            rows = np.arange(2)
            await until(lambda: states.fresh(rows, live.clock()).all())
            placed = live.route(
                pb.RouteRequest(model=MODEL, tenant="t", input_tokens=64, output_budget=8)
            ).placement
            row = live.rows.row(placed.endpoint_id)
            assert row is not None
            live.index.stored(row, (1, 2, 3))
            engine = engines[[p.endpoint_id for p in places].index(placed.endpoint_id)]
            before = int(table.incarnation[row])
            assert table.inflight[row] == 1
            engine.load.started_at_s += 60.0
            await until(lambda: changes)
            assert [(change.row, change.what) for change in changes] == [(row, "restarted")]
            assert table.incarnation[row] == before + 1
            assert table.inflight.tolist() == [0, 0]
            assert live.index.matched_blocks((1, 2, 3))[row] == 0
            late = pb.ReportEvent(lease_id=placed.lease_id, finished=pb.Finished(output_tokens=3))
            assert live.reports.take(late, "", live.clock()) in (ReportResult.ACCEPTED, ReportResult.UNKNOWN_LEASE)
            assert table.inflight.tolist() == [0, 0]
            assert states.state(row, live.clock()) is ReportState.FRESH
            await feed.close()

    asyncio.run(asyncio.wait_for(scenario(), 30))


def test_changes_are_logged_under_the_endpoints_name(caplog) -> None:  # type: ignore[no-untyped-def]
    """F015: one alert that names the series."""
    tell = log_change(["B/c/0", "B/c/1"].__getitem__)
    with caplog.at_level("INFO", logger="tokenfleet.metrics_feed"):
        tell(StateChange(1, "missing", "waiting"))
        tell(StateChange(1, "recovered", "missing"))
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [
        ("WARNING", "metrics of B/c/1: missing (waiting)"),
        ("INFO", "metrics of B/c/1: recovered (missing)"),
    ]
