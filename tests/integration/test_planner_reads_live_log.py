"""The log of a router that is at work, read by ``tokenfleet serve planner`` while it is being written."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from data.catalog.load import load_catalog
from data.log.reader import LogReader
from data.log.settings import LogSettings
from data.log.writer import LogWriter
from planner.plan_store.layout import StoreFolder
from router.pb.v1 import router_pb2 as pb
from router.serving.fleet_file import read_fleet
from router.serving.live import LiveRouter
from router.serving.live_build import LiveSettings, build_live

FLEET = """
name: two-doors
sites:
  - {name: east, role: entry, zone: eu}
  - {name: west, role: entry, zone: eu}
  - {name: hall, role: compute, zone: eu}
links:
  - {a: east, b: hall, rtt_s: 0.004, bandwidth_gbps: 100}
  - {a: west, b: hall, rtt_s: 0.030, bandwidth_gbps: 100}
gpu_pools:
  - {site: hall, gpu_type: H100, count: 4}
models:
  - {name: chat, version: v1, catalog: llama-3.1-8b, context_limit_tokens: 32768}
configs:
  - {name: chat-h100, model: chat@v1, gpu_type: H100, tensor_parallel: 1}
classes:
  - {name: interactive, slo: {ttft_s: 1.0, tpot_s: 0.06}, expected_input_tokens: 900, expected_output_tokens: 100}
tenants:
  - {name: acme}
placement:
  - {site: hall, config: chat-h100, replicas: 1}
endpoints:
  - {id: e0, site: hall, config: chat-h100, address: "http://127.0.0.1:1"}
"""
STEP_S = 60.0
EARLIER_S = 700.0
LONGEST_S = 90.0


class BusyRouter:
    """A router that has been at work for some minutes and goes on: three of four requests come from the west.

    Router and log writer are the real ones; only the clock is moved by hand, through those minutes at once.
    """

    def __init__(self, fleet_path: Path, log: Path) -> None:
        self.now_s = time.time() - EARLIER_S
        self.writer = LogWriter(log, LogSettings(rotate_rows=40, rotate_age_s=0.2, background=True))
        read = read_fleet(fleet_path, load_catalog(), None)
        self.router: LiveRouter = build_live(
            read.fleet, read.endpoints.rows, LiveSettings(), clock=lambda: self.now_s, sink=self.writer
        )
        self.served = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work)

    def __enter__(self) -> BusyRouter:
        while self.now_s < time.time():
            self._serve()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self.writer.close()

    def _work(self) -> None:
        while not self._stop.wait(max(self.now_s - time.time(), 0.0)):
            self._serve()

    def _serve(self) -> None:
        """One request; two a second of its own time."""
        self.now_s += 0.48
        origin = "east" if self.served % 4 == 0 else "west"
        asked = pb.RouteRequest(model="chat@v1", tenant="acme", input_tokens=900, output_budget=200, origin=origin)
        reply = self.router.route(asked, owner="")
        assert reply.placement.endpoint_id == "e0"
        lease = reply.placement.lease_id
        for event in ({"first_token": pb.FirstToken()}, {"finished": pb.Finished(output_tokens=100)}):
            self.now_s += 0.01
            self.router.reports.take(pb.ReportEvent(lease_id=lease, **event), "", self.now_s)
        self.served += 1


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "fleet.yaml").write_text(FLEET)
    return tmp_path


@contextmanager
def serving(files: Path) -> Iterator[subprocess.Popen[bytes]]:
    """``tokenfleet serve planner`` on these files."""
    command = [
        *(sys.executable, "-m", "planner.cli.main", "serve", "planner", "--json", "--log-format", "json"),
        *("--fleet", str(files / "fleet.yaml"), "--log", str(files / "log"), "--plans", str(files / "plans")),
        *("--listen", "127.0.0.1:0", "--every", "2s", "--period", "60s", "--bin", str(STEP_S)),
        *("--time-limit", "3", "--set", "shadow_requests=50", "--set", "shadow_seeds=1"),
        *("--set", "shadow_policy=least_request"),
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=LONGEST_S)


@pytest.mark.slow
def test_a_planner_reads_the_log_of_a_router_that_is_writing_it(files: Path) -> None:
    with BusyRouter(files / "fleet.yaml", files / "log") as router, serving(files) as planner:
        assert planner.stdout is not None
        assert json.loads(planner.stdout.readline())["address"]
        until_s = time.monotonic() + LONGEST_S
        while time.monotonic() < until_s and not (files / "plans" / "plan.json").exists():
            assert planner.poll() is None
            threading.Event().wait(0.1)
    found = StoreFolder(files / "plans").current()
    assert found is not None
    assert {share.origin for share in found.plan.shares} == {"east", "west"}
    assert found.plan.goodput_tokens_per_s == pytest.approx(200.0, rel=0.3), "two answers of 100 tokens a second"
    reader = LogReader(files / "log")
    rows = reader.window(0.0, 1e12)
    assert reader.report.skipped == {}
    origins = rows.column("origin").to_pylist()
    assert len(origins) == router.served
    assert origins.count("west") / origins.count("east") == pytest.approx(3.0, rel=0.01)
