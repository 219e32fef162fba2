"""``tokenfleet serve entry`` and routers of two sites as processes: kill -9, restart, drain, bad options."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pyarrow.parquet as pq
import pytest
from prometheus_client.parser import text_string_to_metric_families

from planner.cli.main import main
from router.observe.metric_catalog import BY_NAME, PREFIX
from router.pb.v1 import router_pb2 as pb
from router.pb.v1 import router_pb2_grpc as rpc

MAIN = "import sys; from planner.cli.main import main; main(sys.argv[1:])"
ASKED = {"model": "assistant@v1", "input_tokens": 500, "output_budget": 50}
QUICK = "entry: {period_s: 0.1, stale_s: 0.5, gone_s: 1.5}\nserver: {drain_s: 1.0}\n"


@pytest.fixture(name="start")
def _start() -> Iterator[Callable[..., tuple[subprocess.Popen[str], dict[str, Any]]]]:
    running: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> tuple[subprocess.Popen[str], dict[str, Any]]:
        command = [sys.executable, "-c", MAIN, "serve", *arguments, "--fleet", "four-sites", "--json"]
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "PYTHONPATH": "."},
        )
        running.append(process)
        assert process.stdout is not None
        return process, json.loads(process.stdout.readline())

    yield start
    for process in running:
        process.kill()
        process.wait(10)


def tenants_in(folder: Path) -> list[str]:
    """Tenants of all decisions in a router's log."""
    files = [str(file) for file in (folder / "decisions").rglob("*.parquet")]
    return [tenant for file in files for tenant in pq.read_table(file, columns=["tenant"])["tenant"].to_pylist()]


def until(ready: Callable[[], Any], limit_s: float = 20.0) -> Any:
    end_s = time.monotonic() + limit_s
    while not (found := ready()):
        assert time.monotonic() < end_s, "in vain"
        time.sleep(0.05)
    return found


def test_a_killed_site_and_a_restarted_entry(start: Any, tmp_path: Path) -> None:
    """``bank`` must stay in the zone of B, which is killed; no log of D ever holds its name."""
    settings, quick = tmp_path / "entry.yaml", tmp_path / "router.yaml"
    settings.write_text(QUICK)
    quick.write_text("server: {drain_s: 0.2}\n")
    sites = {
        name: start(
            *f"router --only-site {name} --listen 127.0.0.1:0 --log {tmp_path / name} --settings {quick}".split()
        )
        for name in ("B", "D")
    }
    given = [f"--site={name}={told['address']}" for name, (_, told) in sites.items()]
    given += ["--settings", str(settings), "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0"]
    entry, told = start("entry", *given)

    def ask(address: str, **fields: Any) -> pb.RouteReply:
        with grpc.insecure_channel(address) as channel:
            reply: pb.RouteReply = rpc.RouterStub(channel).Route(pb.RouteRequest(**ASKED, **fields), timeout=5)
            return reply

    def placed(address: str, **fields: Any) -> pb.RouteReply | None:
        reply = ask(address, **fields)
        return reply if reply.HasField("placement") else None

    def site(name: str) -> Any:
        page = json.loads(urllib.request.urlopen(told["metrics"].replace("/metrics", "/status"), timeout=5).read())
        return next(one for one in page["sites"] if one["site"] == name)

    until(lambda: all(site(name)["reports"] == "fresh" for name in sites))
    first = until(lambda: placed(told["address"], tenant="bank"))
    assert first.placement.site == "B"
    entry.send_signal(signal.SIGKILL)
    entry.wait(10)
    entry, told = start("entry", *given)
    until(lambda: all(site(name)["reports"] == "fresh" for name in sites))
    with grpc.insecure_channel(told["address"]) as channel:
        event = pb.ReportEvent(lease_id=first.placement.lease_id, finished=pb.Finished(output_tokens=5))
        assert rpc.RouterStub(channel).Report(iter([event]), timeout=5).accepted == 1
    assert placed(told["address"], tenant="clinic").placement.site == "D"
    sites["B"][0].send_signal(signal.SIGKILL)
    refused = until(lambda: (reply := ask(told["address"], tenant="bank")).HasField("refusal") and reply)
    assert (refused.refusal.http_status, refused.refusal.retry_after_s > 0) == (503, True)
    until(lambda: site("B")["trouble"])
    page = urllib.request.urlopen(told["metrics"], timeout=5).read().decode()
    families = {f.name.removeprefix(PREFIX): f for f in text_string_to_metric_families(page)}
    assert all(families[name].samples for name in BY_NAME if name.startswith("site_"))
    down = {s.labels["site"]: s.value for s in families["site_up"].samples}
    assert down == {"B": 0.0, "D": 1.0}
    entry.send_signal(signal.SIGTERM)
    assert entry.wait(20) == 0
    sites["D"][0].send_signal(signal.SIGTERM)
    sites["D"][0].wait(40)
    assert set(tenants_in(tmp_path / "D")) == {"clinic"}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--site", "B"], "NAME=HOST:PORT"),
        (["--site", "B=127.0.0.1:1", "--site", "B=127.0.0.1:2"], "twice"),
        (["--site", "A=127.0.0.1:1"], "compute sites"),
        (["--site", "B=10.0.0.1:1"], "without TLS"),
        (["--site", "B=127.0.0.1:1", "--site-cert", "x"], "belong together"),
        (["--site", "B=127.0.0.1:1", "--sites", "nearest"], "unknown rule"),
        (["--site", "B=127.0.0.1:1", "--listen", "0.0.0.0:0"], "without TLS"),
    ],
)
def test_wrong_options_are_refused_by_name(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(["serve", "entry", "--fleet", "four-sites", *arguments])
    assert end.value.code == 2
    assert says in capsys.readouterr().err


def test_settings_out_of_order_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = tmp_path / "entry.yaml"
    wrong.write_text("entry: {gone_s: 0.5}\n")
    with pytest.raises(SystemExit) as end:
        main(["serve", "entry", "--fleet", "four-sites", "--site", "B=127.0.0.1:1", "--settings", str(wrong)])
    assert end.value.code == 2
    assert "each above the one before" in capsys.readouterr().err
    wrong.write_text("entry: {stale_aftr_s: 1}\n")
    with pytest.raises(SystemExit):
        main(["serve", "entry", "--fleet", "four-sites", "--site", "B=127.0.0.1:1", "--settings", str(wrong)])
    assert "stale_aftr_s" in capsys.readouterr().err


def test_a_router_of_an_unknown_site_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["serve", "router", "--fleet", "four-sites", "--only-site", "Z"])
    assert end.value.code == 2
    assert "compute sites" in capsys.readouterr().err
