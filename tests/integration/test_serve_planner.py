"""The planner as a process: it starts, plans, tells, survives a kill, and ends when told to."""

from __future__ import annotations

import json
import queue
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from planner.plan_store.layout import StoreFolder
from router.serving.auth import token_digest

FLEET = """
name: small
sites:
  - {name: eu-1, role: compute, zone: eu}
gpu_pools:
  - {site: eu-1, gpu_type: H100, count: 4}
models:
  - {name: chat, version: v1, catalog: llama-3.1-8b, context_limit_tokens: 32768}
configs:
  - {name: chat-h100, model: chat@v1, gpu_type: H100, tensor_parallel: 1}
classes:
  - {name: interactive, slo: {ttft_s: 1.0, tpot_s: 0.06}, expected_input_tokens: 1500, expected_output_tokens: 250}
tenants:
  - {name: acme}
placement:
  - {site: eu-1, config: chat-h100, replicas: 1}
"""
DEMAND = """
demand:
  - {model: chat@v1, workload_class: interactive, tenant: acme, origin: eu-1, tokens_per_s: %d}
"""
LONGEST_S = 120.0


class Receiver(ThreadingHTTPServer):
    """Takes the webhook's calls: tells a test when there is a new version."""

    got: queue.Queue[dict[str, Any]]


class Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(204)
        self.end_headers()
        self.server.got.put(json.loads(body))

    def log_message(self, format: str, *arguments: object) -> None:
        """Quiet."""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver(("127.0.0.1", 0), Handler)
    made.got = queue.Queue()
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.shutdown()
    made.server_close()
    thread.join()


class Planner:
    """A running ``tokenfleet serve planner``."""

    def __init__(self, folder: Path, receiver: Receiver, *more: str) -> None:
        command = [
            *(sys.executable, "-m", "planner.cli.main", "serve", "planner", "--json"),
            *("--fleet", str(folder / "fleet.yaml"), "--demand", str(folder / "demand.yaml")),
            *("--plans", str(folder / "plans"), "--listen", "127.0.0.1:0", "--time-limit", "3"),
            *("--set", "shadow_requests=50", "--set", "shadow_seeds=1", "--set", "shadow_policy=least_request"),
            *("--webhook", f"http://127.0.0.1:{receiver.server_port}/", *more),
        ]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        self.address = json.loads(line)["address"]

    def get(self, path: str, token: str = "") -> Any:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        asked = urllib.request.Request(self.address + path, None, headers)
        with urllib.request.urlopen(asked, timeout=30) as answer:
            return json.loads(answer.read())

    def end(self, number: int) -> int:
        self.process.send_signal(number)
        code = self.process.wait(LONGEST_S)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "fleet.yaml").write_text(FLEET)
    (tmp_path / "demand.yaml").write_text(DEMAND % 9000)
    return tmp_path


def test_a_planner_plans_tells_and_goes_on_after_a_kill(folder: Path, receiver: Receiver) -> None:
    digest = token_digest("open sesame")
    tokens = folder / "tokens.yaml"
    tokens.write_text(f"tokens: [{{name: ops, token_sha256: {digest}, role: operate}}]")
    first = Planner(folder, receiver, "--every", "1d", "--tokens", str(tokens))
    try:
        told = receiver.got.get(timeout=LONGEST_S)
        assert (told["event"], told["entry"]["version"]) == ("published", 1)
        assert first.get("/readyz") == {"status": "ready"}
        with pytest.raises(urllib.error.HTTPError, match="401"):
            first.get("/v1/plan")
        assert first.get("/v1/plan", "open sesame")["plan"] == told["plan"]
    finally:
        assert first.end(signal.SIGKILL) == -signal.SIGKILL
    (folder / "demand.yaml").write_text(DEMAND % 26_000)
    second = Planner(folder, receiver, "--every", "1d")
    try:
        told = receiver.got.get(timeout=LONGEST_S)
        assert (told["entry"]["version"], told["entry"]["epoch"]) == (2, 2)
        assert told["plan"]["parent_id"] == StoreFolder(folder / "plans").version(1).plan.plan_id
    finally:
        assert second.end(signal.SIGTERM) == 0
    assert StoreFolder(folder / "plans").current() is not None


@pytest.mark.slow
def test_planners_killed_in_the_middle_of_their_steps_leave_the_last_plan(
    folder: Path, receiver: Receiver
) -> None:
    """Each is killed at another moment after its start: while it observes, solves, simulates or publishes."""
    versions = [0]
    for number in range(12):
        (folder / "demand.yaml").write_text(DEMAND % (9000 if number % 2 else 26_000))
        planner = Planner(folder, receiver, "--every", "1s")
        try:
            planner.process.communicate(timeout=0.5 * number)
        except subprocess.TimeoutExpired:
            pass
        finally:
            planner.end(signal.SIGKILL)
        found = StoreFolder(folder / "plans").current()
        versions.append(0 if found is None else found.entry.version)
    assert versions == sorted(versions)
    assert versions[-1] > 1
