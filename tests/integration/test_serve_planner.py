"""The planner as a process: it starts, plans, tells, survives a kill, and ends when told to."""

from __future__ import annotations

import http.client
import json
import queue
import signal
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from data.errors import InputError
from planner.cli.main import cli
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
        self.trust: ssl.SSLContext | None = None

    def get(self, path: str, token: str = "", body: bytes | None = None) -> Any:
        """A GET request, or a POST where there is a body."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        asked = urllib.request.Request(self.address + path, body, headers)
        with urllib.request.urlopen(asked, timeout=30, context=self.trust) as answer:
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


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that signs itself, and its key."""
    certificate, key = folder / "api.pem", folder / "api.key"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-keyout", str(key), "-out", str(certificate), "-days", "2", "-subj", "/CN=planner"),
            *("-addext", "subjectAltName=IP:127.0.0.1"),
        ],
        check=True,
        capture_output=True,
        timeout=60,
    )
    return certificate, key


def test_the_api_over_tls_with_both_roles(folder: Path, receiver: Receiver) -> None:
    """Who trusts the certificate gets in, and then what the role allows; plain text and strangers do not."""
    certificate, key = make_certificate(folder)
    tokens = folder / "tokens.yaml"
    tokens.write_text(
        f"tokens:\n  - {{name: eyes, token_sha256: {token_digest('look')}, role: read}}\n"
        f"  - {{name: hands, token_sha256: {token_digest('turn')}, role: operate}}\n"
    )
    tls = ("--tls-certificate", str(certificate), "--tls-key", str(key), "--tokens", str(tokens))
    planner = Planner(folder, receiver, "--every", "1d", *tls)
    try:
        assert planner.address.startswith("https://127.0.0.1:")
        with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
            planner.get("/livez")
        planner.trust = ssl.create_default_context(cafile=str(certificate))
        assert planner.get("/livez") == {"status": "up"}
        for token, status in (("", 401), ("nobody", 401), ("look", 200), ("turn", 200)):
            assert _status(planner, "/v1/status", token) == status
        for token, status in (("", 401), ("look", 403), ("turn", 202)):
            assert _status(planner, "/v1/step", token, b"") == status
        planner.address = planner.address.replace("https:", "http:")
        with pytest.raises((urllib.error.URLError, ConnectionError, http.client.HTTPException)):
            planner.get("/livez")
    finally:
        assert planner.end(signal.SIGTERM) == 0


def _status(planner: Planner, path: str, token: str, body: bytes | None = None) -> int:
    try:
        planner.get(path, token, body)
    except urllib.error.HTTPError as error:
        return error.code
    return 200 if body is None else 202


def test_a_certificate_that_cannot_be_used_is_told_before_anything_starts(folder: Path) -> None:
    _, key = make_certificate(folder)
    command = [
        *("serve", "planner", "--fleet", str(folder / "fleet.yaml"), "--demand", str(folder / "demand.yaml")),
        *("--plans", str(folder / "plans"), "--listen", "127.0.0.1:0", "--tls-key", str(key), "--tls-certificate"),
    ]
    for certificate in (folder / "none.pem", folder / "demand.yaml"):
        ended = CliRunner().invoke(cli, [*command, str(certificate)])
        assert isinstance(ended.exception, InputError)
        assert str(ended.exception).startswith(f"{certificate}, {key}: cannot be used")
        assert not (folder / "plans" / "CURRENT").exists()


@pytest.mark.slow
def test_planners_killed_in_the_middle_of_their_steps_leave_the_last_plan(
    folder: Path, receiver: Receiver
) -> None:
    """Each is killed at another moment after its start: while it observes, solves, simulates or publishes."""
    began = time.monotonic()
    planner = Planner(folder, receiver, "--every", "1s")
    try:
        receiver.got.get(timeout=LONGEST_S)
    finally:
        planner.end(signal.SIGKILL)
    # A kill falls anywhere between the start and a little after the first version of this very machine.
    whole_s, versions = time.monotonic() - began, [1]
    for number in range(8):
        (folder / "demand.yaml").write_text(DEMAND % (9000 if number % 2 else 26_000))
        planner = Planner(folder, receiver, "--every", "1s")
        try:
            planner.process.communicate(timeout=whole_s * (number + 1) / 7)
        except subprocess.TimeoutExpired:
            pass
        finally:
            planner.end(signal.SIGKILL)
        found = StoreFolder(folder / "plans").current()
        versions.append(0 if found is None else found.entry.version)
    assert versions == sorted(versions)
    assert versions[-1] > 1
