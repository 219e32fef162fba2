"""``tokenfleet serve router`` as a process: starts, follows its files, drains on SIGTERM, loads no solver."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml

from data.errors import DocumentError
from data.fleet.reference import reference_path
from data.log.reader import LogReader
from planner.cli.main import main
from router.pb.v1 import router_pb2 as pb
from router.pb.v1 import router_pb2_grpc as rpc
from router.serving.service_settings import read_knobs

MAIN = "import sys; from planner.cli.main import main; main(sys.argv[1:])"
HEAVY = ("ortools", "pulp", "lightgbm", "pandas", "sklearn", "ray", "fastapi", "plotly")
ASKED = {"model": "assistant@v1", "input_tokens": 500, "output_budget": 50}


class Page(BaseHTTPRequestHandler):
    """The metrics page of a busy engine."""

    tokens = 0

    def do_GET(self) -> None:
        Page.tokens += 10
        body = (
            "vllm:num_requests_running 1\nvllm:num_requests_waiting 0\nvllm:kv_cache_usage_perc 0.1\n"
            f"vllm:generation_tokens_total {Page.tokens}\n"
        ).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        pass


@pytest.fixture(name="engines")
def _engines() -> Iterator[list[str]]:
    servers = [HTTPServer(("127.0.0.1", 0), Page) for _ in range(2)]
    for server in servers:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    yield [f"http://127.0.0.1:{server.server_port}" for server in servers]
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture(name="fleet_file")
def _fleet_file(tmp_path: Path, engines: list[str]) -> Path:
    document = yaml.safe_load(reference_path("one-pool").read_text())
    document["endpoints"] = [
        {"id": f"e{i}", "site": "main", "config": "assistant-h100", "address": engine}
        for i, engine in enumerate(engines)
    ]
    path = tmp_path / "fleet.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


@pytest.fixture(name="start")
def _start(tmp_path: Path) -> Iterator[Callable[..., tuple[subprocess.Popen[str], dict[str, Any]]]]:
    running: list[subprocess.Popen[str]] = []

    def start(*arguments: str, code: str = MAIN) -> tuple[subprocess.Popen[str], dict[str, Any]]:
        command = [sys.executable, "-c", code, "serve", "router", "--listen", "127.0.0.1:0", "--json", *arguments]
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": "."},
        )
        running.append(process)
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.communicate(timeout=30)[1]
        return process, json.loads(line)

    yield start
    for process in running:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=30)


def page(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        text: str = answer.read().decode()
    return text


def until(true: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.02)


def test_a_process_routes_reloads_and_drains(fleet_file: Path, tmp_path: Path, start: Any) -> None:
    log, settings = tmp_path / "log", tmp_path / "router.yaml"
    settings.write_text("server: {drain_s: 0.5}\n")
    process, told = start(
        "--fleet",
        str(fleet_file),
        "--log",
        str(log),
        "--metrics-listen",
        "127.0.0.1:0",
        "--settings",
        str(settings),
    )
    with grpc.insecure_channel(told["address"]) as channel:
        stub = rpc.RouterStub(channel)
        tenant = yaml.safe_load(fleet_file.read_text()).get("tenants", [{"name": ""}])[0]["name"]
        asked = pb.RouteRequest(**ASKED, tenant=tenant)
        # Scraped reports come in: decisions are no longer degraded.
        until(lambda: {s.metrics for s in next(stub.Watch(pb.WatchRequest())).endpoints} == {"fresh"})
        assert not stub.Route(asked).degraded
        placed = stub.Route(asked).placement
        assert placed.endpoint_id in ("e0", "e1")
        watch = stub.Watch(pb.WatchRequest())
        assert len(next(watch).endpoints) == 2
        document = yaml.safe_load(fleet_file.read_text())
        document["endpoints"] = document["endpoints"][:1]
        fleet_file.write_text(yaml.safe_dump(document))
        process.send_signal(signal.SIGHUP)
        until(lambda: len(next(watch).endpoints) == 1)
        assert stub.Route(asked).placement.endpoint_id == "e0"
        # A broken file changes nothing.
        fleet_file.write_text("name: [")
        process.send_signal(signal.SIGHUP)
        until(lambda: 'result="refused",what="fleet"' in page(told["metrics"]))
        assert stub.Route(asked).placement.endpoint_id == "e0"
        shown = page(told["metrics"])
        assert 'tokenfleet_router_endpoint_up{endpoint="e0",model="assistant@v1",site="main"} 1.0' in shown
        assert 'tokenfleet_router_endpoint_metrics_state{endpoint="e0",state="fresh"} 1.0' in shown
        assert 'tokenfleet_router_rpcs_total{code="OK",method="Route"}' in shown
        assert "tokenfleet_router_event_loop_lag_seconds_count" in shown
        ended = pb.ReportEvent(lease_id=placed.lease_id, finished=pb.Finished(output_tokens=5))
        assert stub.Report(iter([ended])).accepted == 1
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert "fleet refused" in errors
    rows = LogReader(log).window(0.0, 1e12)
    assert len(rows) >= 3
    assert rows.column("status").to_pylist().count(0) == 1
    assert "Traceback" not in errors


def test_the_router_process_loads_no_solver_and_no_training(fleet_file: Path, start: Any) -> None:
    code = (
        "import sys, atexit; from planner.cli.main import main\n"
        f"atexit.register(lambda: print('heavy:', [m for m in {HEAVY!r} if m in sys.modules], file=sys.stderr))\n"
        "main(sys.argv[1:])"
    )
    process, _ = start("--fleet", str(fleet_file), code=code)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert "heavy: []" in errors


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (["--fleet", "no-such-fleet"], 2, "no-such-fleet"),
        (["--fleet", "one-pool", "--policy", "magic"], 2, "unknown policy"),
        (["--fleet", "one-pool", "--listen", "0.0.0.0:0"], 2, "beyond this machine"),
        (["--fleet", "one-pool", "--client-ca", "ca.pem"], 2, "needs TLS"),
        (["--fleet", "one-pool", "--set", "delay_price=-1"], 2, "delay_price"),
    ],
)
def test_wrong_starts_end_with_a_reason(
    arguments: list[str], code: int, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["serve", "router", *arguments])
    assert ended.value.code == code
    assert word in capsys.readouterr().err


def test_a_settings_file_is_strict_f130(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "router.yaml"
    path.write_text("server: {drain_s: 5, concurent_calls: 3}\nscrape: {period_s: 0.1}\n")
    with pytest.raises(SystemExit) as ended:
        main(["serve", "router", "--fleet", "one-pool", "--settings", str(path)])
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert "router.yaml:1" in told
    assert "'concurrent_calls'?" in told


def test_a_setting_out_of_range_is_named(tmp_path: Path) -> None:
    path = tmp_path / "router.yaml"
    path.write_text("predictor: {limit_s: -1}\n")
    with pytest.raises(DocumentError, match="limit_s"):
        read_knobs(path)
