"""The options of ``tokenfleet serve router`` as a process takes them, and what a shell gets back."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks.serve_process import ServeProcess
from data.fleet.reference import reference_path
from planner.cli.main import main


@pytest.fixture(name="router", scope="module")
def _router(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder: Path = tmp_path_factory.mktemp("options")
    names = ("endpoints.yaml", "public.yaml", "router.yaml", "secret", "index")
    endpoints, public, settings, secret, index = (folder / name for name in names)
    engine = {"id": "e1", "site": "main", "config": "assistant-h100", "address": "http://127.0.0.1:9"}
    endpoints.write_text(yaml.safe_dump([engine]))
    public.write_text("public_prefixes: []\n")
    settings.write_text("server: {drain_s: 0.2}\nprefix_index: {max_bytes: 100000000}\n")
    secret.write_text("0123456789abcdef")
    process = ServeProcess(
        *("--fleet", str(reference_path("one-pool")), "--endpoints", str(endpoints), "--settings", str(settings)),
        *("--public-prefixes", str(public), "--scope-secret", str(secret), "--index-snapshot", str(index)),
        *("--metrics-listen", "127.0.0.1:0", "--log-format", "json", "--set", "near_tie=0.02"),
    )
    with process:
        yield process
    assert process.code == 0, process.errors
    lines = [json.loads(line) for line in process.errors.splitlines()]
    assert [line["message"] for line in lines][-2:] == ["draining", "stopped"]
    assert index.exists()


def test_every_option_tells_its_value_and_source_f134(router: ServeProcess) -> None:
    """F134: by flag, by file, by `--set`, by default."""
    with urllib.request.urlopen(f"{router.page}/status", timeout=10) as answer:
        options = {o["name"]: (o["value"], o["source"]) for o in json.load(answer)["settings"]}
    assert options["endpoints"][1] == options["index_snapshot"][1] == options["settings"][1] == "flag"
    assert options["listen.address"] == ("127.0.0.1:0", "flag")
    assert options["plan"] == (None, "default")
    assert options["prefix_index.max_bytes"] == (100_000_000, "file")
    assert options["prefix_index.expected_blocks"] == (0, "default")
    assert options["policy.near_tie"] == (0.02, "flag")
    assert "0123456789abcdef" not in str(options)


def test_the_engines_of_the_endpoints_file_serve(router: ServeProcess, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["route", "--router", router.address, "--model", "assistant@v1", "--tenant", "default"]
    main([*asked, "--input-tokens", "100", "--json"])
    assert json.loads(capsys.readouterr().out)["endpoint_id"] == "e1"


def test_with_probes_an_engine_that_does_not_answer_serves_nothing_f105(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """F105: the same list as above, with `--probe`; the status tells why."""
    endpoints = tmp_path / "endpoints.yaml"
    engine = {"id": "e1", "site": "main", "config": "assistant-h100", "address": "http://127.0.0.1:9"}
    endpoints.write_text(yaml.safe_dump([engine]))
    fleet = ("--fleet", str(reference_path("one-pool")), "--endpoints", str(endpoints))
    with ServeProcess(*fleet, "--probe", "--metrics-listen", "127.0.0.1:0") as process:
        asked = ["route", "--router", process.address, "--model", "assistant@v1", "--tenant", "default"]
        with pytest.raises(SystemExit):
            main([*asked, "--input-tokens", "100", "--json"])
        with urllib.request.urlopen(f"{process.page}/status", timeout=10) as answer:
            status = json.load(answer)
    assert "no_endpoint" in capsys.readouterr().out
    ((name, stage, why),) = [(e["id"], e["stage"], e["probe_failed"]) for e in status["endpoints"]]
    assert (name, stage, why) == ("e1", "loading", "connect")
    assert ("probe", True, "flag") in [(o["name"], o["value"], o["source"]) for o in status["settings"]]
    assert "e1 at http://127.0.0.1:9 takes no requests, its probe failed (connect" in process.errors


def test_a_refusal_ends_the_command_with_one(router: ServeProcess, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["route", "--router", router.address, "--model", "other@v1", "--input-tokens", "100"])
    assert ended.value.code == 1
    assert "unknown_tenant" in capsys.readouterr().out


def test_an_explanation_in_a_pipe_is_not_cut(router: ServeProcess, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["explain", "--router", router.address, "--model", "assistant@v1", "--tenant", "default"]
    main([*asked, "--input-tokens", "100"])
    table = capsys.readouterr().out
    assert "…" not in table
    assert "completion s" in table


def test_a_snapshot_without_a_lasting_secret_is_bad_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["serve", "router", "--fleet", "one-pool", "--index-snapshot", "index"])
    assert ended.value.code == 2
    assert "a scope secret too" in capsys.readouterr().err


def test_a_fleet_whose_index_could_not_fit_is_refused_f022(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """F022: exit code 2, with the estimate and what would fit."""
    path = tmp_path / "router.yaml"
    path.write_text("prefix_index: {max_bytes: 65536}\n")
    with pytest.raises(SystemExit) as ended:
        main(["serve", "router", "--fleet", "one-pool", "--settings", str(path)])
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert "MiB" in told
    assert "block_tokens" in told
