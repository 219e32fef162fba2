"""``tokenfleet simulate``: what it prints and writes, what it refuses, and what an interrupt leaves behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from planner.cli.main import main

BASE = ["simulate", "--fleet", "one-pool", "--synth", "chat:5:20", "--policy", "least_request"]


def run(argv: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    try:
        main(argv)
        code = 0
    except SystemExit as left:
        code = int(left.code or 0)
    seen = capsys.readouterr()
    return code, seen.out, seen.err


def test_prints_tables_and_the_result_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(BASE, capsys)
    assert code == 0
    assert "Goodput by policy" in out
    assert "least_request gave" in out
    assert "output tokens only" in " ".join(out.split())


def test_json_is_the_whole_run_and_the_same_every_time(capsys: pytest.CaptureFixture[str]) -> None:
    first, second = (json.loads(run([*BASE, "--seed", "4", "--json"], capsys)[1]) for _ in range(2))
    for values in (first, second):
        assert values.pop("wall_s") > 0
    assert first == second
    assert (first["policy"], first["seed"], first["fleet"]) == ("least_request", 4, "one-pool")
    assert first["total"]["offered"] == first["total"]["completed"] > 50


def test_options_reach_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--sim", "cancel_share=1", "--failure", "crash:0:5:5", "--speed", "2", "--json"]
    code, out, _ = run([*BASE, *options], capsys)
    assert code == 0
    assert json.loads(out)["total"]["cancelled"] > 0
    assert json.loads(out)["duration_s"] < 20


def test_log_and_report_appear_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, html = tmp_path / "log", tmp_path / "report.html"
    code, out, _ = run([*BASE, "--log", str(log), "--html", str(html), "--json"], capsys)
    assert code == 0
    offered = json.loads(out)["total"]["offered"]
    for table in ("decisions", "outcomes"):
        rows = sum(pq.read_metadata(part).num_rows for part in (log / table).rglob("*.parquet"))
        assert rows == offered
    assert html.read_text().rstrip().endswith("</html>")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["log", "report.html"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (["--fleet", "no-such-fleet"], "no such file or built-in fleet"),
        (["--policy", "no_such_policy"], "unknown policy"),
        (["--set", "speed=1"], "unknown setting"),
        (["--set", "speed"], "expected key=value"),
        (["--synth", "chat:5"], "PROFILE:RATE:DURATION"),
        (["--trace", "missing.jsonl"], "either --trace or --synth"),
        (["--speed", "0"], "--speed"),
        (["--sim", "hurry=1"], "unknown run setting"),
        (["--sim", "step_noise=3"], "0 to 0.5"),
        (["--failure", "crash:99:1:1"], "99"),
        (["--plan", "missing.json"], "missing.json"),
        (["--assign", "colour=red"], "--assign"),
        (["--html", "no/such/folder/r.html"], "no such folder"),
        (["--log", "/dev/null/log"], "cannot be made: "),
        (["--seed", "-1"], "--seed"),
    ],
)
def test_wrong_input_exits_2_and_says_why(
    change: list[str],
    words: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = run([*BASE, *change], capsys)
    assert code == 2
    assert out == ""
    assert words in err
    assert list(tmp_path.iterdir()) == []


def test_a_trace_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(["simulate", "--fleet", "one-pool", "--policy", "random"], capsys)
    assert (code, "either --trace or --synth" in err) == (2, True)


def test_a_log_never_mixes_with_another(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "kept.txt").write_text("mine")
    code, _, err = run([*BASE, "--log", str(tmp_path / "log")], capsys)
    assert (code, "not an empty folder" in err) == (2, True)
    assert (tmp_path / "log" / "kept.txt").read_text() == "mine"


@pytest.mark.parametrize("command", ["simulate", "compare"])
def test_an_interrupt_leaves_nothing_behind(command: str, tmp_path: Path) -> None:
    """Ctrl-C in the middle of a long run: exit code 130, no report, no log, no part of either, no worker left."""
    argv = [
        sys.executable,
        "-u",
        "-m",
        "planner.cli.main",
        command,
        "--fleet",
        "one-pool",
        "--synth",
        "chat:30:20000",
    ]
    if command == "simulate":
        argv += ["--policy", "round_robin", "--log", "log", "--html", "report.html"]
    else:
        argv += ["--policies", "round_robin,least_request", "--html", "report.html", "--markdown", "t.md"]
    process = subprocess.Popen(
        argv, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stderr is not None
    assert process.stderr.readline() != "", "the run is under way"
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert out == ""
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)
