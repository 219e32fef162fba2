"""What the command line makes of missing folders, unusable files and a full disk: a message, never a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from planner.cli.main import main

FULL = Path("/dev/full")
SYNTH = ["trace", "synth", "conversation", "--rate", "20", "--duration", "600"]
SIMULATE = ["simulate", "--fleet", "one-pool", "--synth", "chat:30:60", "--policy", "least_request"]


def run(argv: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    try:
        main(argv)
        code = 0
    except SystemExit as left:
        code = int(left.code or 0)
    seen = capsys.readouterr()
    return code, seen.out, seen.err


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["models", "list", "--store", "misspelt"], "misspelt: no such folder"),
        (["models", "show", "--store", "file"], "file: no such folder"),
        (["models", "drift", "--log", "log", "--store", "misspelt"], "misspelt: no such folder"),
        (["train", "--log", "log", "--store", "file"], "--store: not a folder"),
        (["train", "--log", "log", "--store", "new", "--since", "nan"], "--since: no window"),
        (["train", "--log", "log", "--store", "new", "--since", "9", "--until", "9"], "--since: no window"),
        (["demo", "--out", "file"], "--out: not a folder"),
        (["demo", "--out", "file/below"], "file/below: Not a directory"),
        (["demo", "--duration", "inf"], "at most 86400"),
        (["demo", "--rate", "1e99"], "at most 10000"),
        (["plan", "--fleet", "one-pool", "--demand", "none.yaml", "--out", "no/plan.json"], "no such folder"),
        (["plan", "--fleet", "one-pool", "--demand", "none.yaml", "--out", "pipe"], "device stands there"),
        (
            ["trace", "synth", "chat", "pipe", "--to", "native", "--rate", "2", "--duration", "60"],
            "pipe: cannot be",
        ),
    ],
)
def test_a_path_that_cannot_serve_is_bad_input(
    argv: list[str],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("kept")
    os.mkfifo("pipe")
    code, out, err = run(argv, capsys)
    assert (code, out) == (2, "")
    assert words in err
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["file", "pipe"]
    assert Path("file").read_text() == "kept"
    assert Path("pipe").is_fifo()


PLAN = ["plan", "--fleet", "one-pool", "--trace", "t.parquet"]
SYNTH_CHAT = ["trace", "synth", "chat", "u.parquet", "--rate", "5", "--duration", "20"]
RUN_CHAT = ["simulate", "--fleet", "one-pool", "--synth", "chat:5:20", "--policy", "random"]


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ([*PLAN, "--end", "inf"], "--end"),
        ([*PLAN, "--end", "1e11"], "--bin: too narrow for this window"),
        ([*PLAN, "--start", "-inf"], "--start"),
        ([*PLAN, "--start", "nan"], "no demand found"),
        ([*PLAN, "--bin", "1e-320"], "--bin"),
        ([*PLAN, "--scale", "inf"], "--scale"),
        ([*PLAN, "--time-limit", "1e308"], "--time-limit"),
        ([*SYNTH_CHAT, "--zipf", "nan"], "exponent of 0 to 100"),
        ([*SYNTH_CHAT, "--zipf", "inf"], "exponent of 0 to 100"),
        ([*SYNTH_CHAT, "--origin", "A:1e308"], "at most 1e+09"),
        ([*SYNTH_CHAT, "--origin", "A:nan"], "at most 1e+09"),
        ([*RUN_CHAT, "--speed", "1e-320"], "expected 1e-9 to 1e9"),
        ([*RUN_CHAT, "--failure", "slow:0:1:5:1e-320"], "expected 0.001 to 1000"),
    ],
)
def test_numbers_beyond_all_use_are_bad_input(
    argv: list[str],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    labels = ["--model", "chat@v1", "--class", "interactive", "--tenant", "people"]
    run(["trace", "synth", "chat", "t.parquet", "--rate", "2", "--duration", "30", *labels], capsys)
    code, out, err = run(argv, capsys)
    assert (code, out) == (2, "")
    assert words in err


@pytest.mark.parametrize("store", ["misspelt", "file"])
def test_a_store_that_is_none_is_told_before_the_run(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("kept")
    argv = ["simulate", "--fleet", "one-pool", "--synth", "chat:5:20", "--policy", "tokenpilot"]
    code, out, err = run([*argv, "--model-store", store], capsys)
    assert (code, out) == (2, "")
    assert f"{store}: no such folder" in err


def test_check_tells_of_a_file_that_cannot_be_read_and_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    name = "n" * 300  # longer than a file system takes: reading it fails for root as well
    code, out, _ = run(["check", name, "one-pool"], capsys)
    assert code == 2
    assert "cannot be read: File name too long" in out
    assert "one-pool: ok" in out


@pytest.mark.skipif(not FULL.exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("argv", [["schema", "fleet"], ["check", "one-pool", "--json"]])
def test_a_full_disk_under_stdout_is_a_failure_without_a_traceback(argv: list[str]) -> None:
    with FULL.open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "planner.cli.main", *argv], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode == 1
    assert done.stderr == "error: No space left on device\n"


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        ([*SYNTH, "t.parquet"], 2, "t.parquet: cannot be written: "),
        ([*SYNTH, "t.jsonl"], 2, "t.jsonl: cannot be written: File too large"),
        ([*SIMULATE, "--html", "r.html"], 1, "r.html: File too large"),
        ([*SIMULATE, "--log", "log"], 2, "cannot write the log: "),
    ],
)
def test_a_disk_that_fills_up_leaves_no_part_of_a_file(
    argv: list[str], code: int, message: str, tmp_path: Path
) -> None:
    limited = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (8_000, 8_000));"
    script = f"{limited} from planner.cli.main import main; main(sys.argv[1:])"
    done = subprocess.run(
        [sys.executable, "-B", "-c", script, *argv], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == code
    assert message in done.stderr
    assert "File too large" in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []
