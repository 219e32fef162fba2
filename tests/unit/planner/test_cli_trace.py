"""``tokenfleet trace``: what it prints, what it writes, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import planner.cli.trace as trace_group
from data.traces.registry import open_trace
from planner.cli.main import main

GOOD = "".join(
    f'{{"timestamp": {row // 4 * 3000}, "input_length": 600, "output_length": 5, "hash_ids": [0, {row + 1}]}}\n'
    for row in range(400)
)


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = 0
    try:
        main(["trace", *argv])
    except SystemExit as exit_:
        code = int(exit_.code or 0)
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def answer(capsys: pytest.CaptureFixture[str], *argv: str) -> Any:
    code, out, err = run(capsys, *argv, "--json")
    assert code == 0, err
    return json.loads(out)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "in.jsonl"
    path.write_text(GOOD + "not json\n" + GOOD.splitlines()[0].replace("600", "9999") + "\n")
    return path


def test_stats_show_figures_and_every_reason(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "stats", str(source))
    assert code == 0
    for text in ("bad_json", "block_count", "401", "ideal prefix hit", "gap CV", "read as ms", "spread inside"):
        assert text in out


def test_stats_as_json(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "stats", str(source))
    assert found["stats"]["rows"] == 400
    assert found["stats"]["ideal_hit_share"] == pytest.approx(399 * 512 / (400 * 600))
    assert found["report"]["rejected"]["bad_json"]["first_lines"] == [401]


def test_convert_there_and_back(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own, back = tmp_path / "own.parquet", tmp_path / "back.jsonl"
    found = answer(capsys, "convert", str(source), str(own), "--assign", "tenant=a:3,b")
    assert (found["rows"], found["format"], found["lost"]) == (400, "native", [])
    found = answer(capsys, "convert", str(own), str(back))
    assert (found["rows"], found["format"], found["lost"]) == (400, "mooncake", ["tenant"])
    rows = [row for batch in open_trace(own).batches() for row in batch.rows()]
    again = [row for batch in open_trace(back).batches() for row in batch.rows()]
    assert [row.block_hashes for row in rows] == [row.block_hashes for row in again]
    assert {row.tenant for row in rows} == {"a", "b"}
    assert rows[0].arrival_s != 0, "the first row lies inside its tick"


def test_changes_on_the_way(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.parquet"
    options = ["--window", "30:150", "--speed", "2", "--sample-sessions", "0.5", "--seed", "3"]
    found = answer(capsys, "convert", str(source), str(out), *options)
    rows = [row for batch in open_trace(out).batches() for row in batch.rows()]
    assert 50 <= found["rows"] == len(rows) <= 110
    assert rows[-1].arrival_s <= 60


def test_the_text_output_names_what_is_lost(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.trace"
    code, text, _ = run(capsys, "convert", str(source), str(out), "--to", "mooncake", "--assign", "model=m")
    assert code == 0
    assert "400 requests written" in text
    assert "no place for it: model" in text


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["out.txt"], "--to FORMAT"),
        (["out.parquet", "--window", "5"], "START:END"),
        (["out.parquet", "--window", "9:5"], "empty window"),
        (["out.parquet", "--speed", "0"], "speed"),
        (["out.parquet", "--assign", "colour=a"], "COLUMN=NAME"),
        (["out.parquet", "--assign", "tenant=a:x"], "no weight"),
        (["out.parquet", "--block-tokens", "0"], "block_tokens"),
        (["out.parquet", "--from", "azure"], "CSV header"),
        (["out.parquet", "--window", "1e6:"], "no usable row"),
        (["no/out.parquet"], "cannot be written"),
    ],
)
def test_wrong_use_is_code_2_and_leaves_nothing(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], argv: list[str], message: str
) -> None:
    code, _, err = run(capsys, "convert", str(source), str(tmp_path / argv[0]), *argv[1:])
    assert code == 2
    assert message in err
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]


def test_a_trace_without_usable_rows_is_an_error_that_still_shows_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"timestamp": 0, "input_length": 0, "output_length": 8, "hash_ids": []}\n')
    code, out, err = run(capsys, "stats", str(path))
    assert code == 2
    assert "no_input" in out
    assert "no usable row" in err


def test_a_missing_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "stats", str(tmp_path / "none"))
    assert code == 2
    assert "cannot be opened" in err


def test_a_command_that_is_not_installed_does_not_break_the_group(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(trace_group.COMMANDS, "gone", "planner.cli.no_such_module:gone")
    code, out, _ = run(capsys, "--help")
    assert code == 0
    assert "convert" in out
    assert "gone" not in out
    code, _, err = run(capsys, "gone")
    assert code == 2
    assert "No such command" in err


def test_progress_is_a_line_on_stderr_where_there_is_no_terminal(
    source: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("planner.cli.trace_report.LINE_EVERY_S", 0.0)
    code, out, err = run(capsys, "stats", str(source), "--json")
    assert code == 0
    assert json.loads(out)["stats"]["rows"] == 400
    assert "reading: 100%, 400 rows accepted" in err


def test_closed_loops_are_described(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.jsonl"
    call = {"type": "n", "in": 64, "out": 5, "hash_ids": [1], "api_time": 1.0, "think_time": 17.0}
    head = {"id": "s", "block_size": 64, "hash_id_scope": "local", "tool_tokens": 0, "system_tokens": 0}
    path.write_text(json.dumps({**head, "requests": [{**call, "t": 0}, {**call, "t": 18}]}) + "\n")
    code, out, _ = run(capsys, "stats", str(path))
    assert code == 0
    for text in ("closed-loop turns", "think time p50", "17", "sessions", "gap CV of session starts"):
        assert text in out
