"""``tokenfleet trace synth``: files, summary, exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from data.synth.mix import synthesise
from data.synth.profiles import CONVERSATION
from data.traces.registry import open_trace
from planner.cli.main import main

SHORT = ["--rate", "2", "--duration", "300"]


def run(*argv: str) -> int:
    with pytest.raises(SystemExit) as stop:
        main(["trace", "synth", *argv])
    assert isinstance(stop.value.code, int)
    return stop.value.code


def run_json(capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, Any]:
    main(["trace", "synth", *argv, "--json"])
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


def test_native_file_holds_what_the_library_makes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "t.parquet"
    answer = run_json(capsys, "conversation", str(path), *SHORT, "--seed", "4")
    written = [row for batch in open_trace(path).batches() for row in batch.rows()]
    made = [
        row for batch in synthesise(CONVERSATION, rate_per_s=2.0, duration_s=300.0, seed=4) for row in batch.rows()
    ]
    assert answer["rows"] == len(written) == len(made)
    assert answer["stats"]["rows"] == len(made)
    assert [row.block_hashes for row in written] == [row.block_hashes for row in made]
    assert [row.session_id for row in written] == [row.session_id for row in made]


def test_same_options_same_bytes(tmp_path: Path) -> None:
    for name in ("a.jsonl", "b.jsonl"):
        main(["trace", "synth", "document", str(tmp_path / name), *SHORT])
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()
    first = json.loads((tmp_path / "a.jsonl").read_text().splitlines()[0])
    assert set(first) == {"timestamp", "input_length", "output_length", "hash_ids"}


def test_tenants_origins_and_a_hot_spell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "t.parquet"
    more = ["--tenant", "a", "--tenant", "b", "--origin", "A:3", "--origin", "B", "--hot-spell", "B:100:200:9"]
    run_json(capsys, "chat", str(path), *SHORT, *more, "--model", "m@1", "--class", "interactive")
    written = [row for batch in open_trace(path).batches() for row in batch.rows()]
    assert {row.tenant for row in written} == {"a", "b"}
    assert {row.workload_class for row in written} == {"interactive"}
    at_b = [sum(row.origin == "B" and s <= row.arrival_s < s + 100 for row in written) for s in (0, 100, 200)]
    assert at_b[1] > 3 * max(at_b[0], at_b[2])


def test_summary_for_people(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["trace", "synth", "agentic", str(tmp_path / "t.parquet"), *SHORT, "--daily-peak", "2"])
    said = capsys.readouterr().out
    assert "requests like agentic written to" in said
    assert "ideal prefix hit" in said


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["chat", "t.txt", *SHORT], "--to FORMAT"),
        (["chat", "t.parquet", "--rate", "-1", "--duration", "5"], "rate_per_s"),
        (["chat", "t.parquet", "--rate", "0.001", "--duration", "0.001"], "no request falls"),
        (["chat", "t.parquet", *SHORT, "--origin", "A:x"], "NAME:SHARE"),
        (["chat", "t.parquet", *SHORT, "--hot-spell", "A:1"], "ORIGIN:START:END:FACTOR"),
        (["chat", "t.parquet", *SHORT, "--hot-spell", "A:1:2:3"], "unknown origin"),
        (["chat", "t.parquet", *SHORT, "--tenant", "a", "--tenant", "a"], "different labels"),
        (["nonsense", "t.parquet", *SHORT], "nonsense"),
        (["chat", "t.parquet"], "--rate"),
    ],
)
def test_bad_input_is_exit_code_2_and_leaves_no_file(
    argv: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(*argv) == 2
    assert says in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
