"""Traces of sessions: Bailian chats and agentic coding sessions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from data.traces.agentic_session import shared_ids
from data.traces.options import TraceOptions
from data.traces.registry import TraceReader, open_trace
from data.traces.sessions import Turn, TurnMemory
from data.types import NO_PARENT, Request


def read(path: Path, rows: list[dict[str, Any]], **options: object) -> tuple[TraceReader, list[Request]]:
    path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    reader = open_trace(path, options=TraceOptions(**options))  # type: ignore[arg-type]
    return reader, [row for batch in reader.batches() for row in batch.rows()]


def refused(reader: TraceReader) -> dict[str, list[int]]:
    return {str(reason): tally.lines for reason, tally in reader.report.rejected.items()}


def chat(number: int, parent: int, at: float, ids: list[int], n_out: int = 10, turn: int = 1) -> dict[str, Any]:
    return {
        "chat_id": number,
        "parent_chat_id": parent,
        "timestamp": at,
        "input_length": 16 * len(ids),
        "output_length": n_out,
        "type": "text",
        "turn": turn,
        "hash_ids": ids,
    }


CHATS = [
    chat(159, -1, 0.0, [1, 2, 3]),
    chat(7, -1, 1.5, [9, 2, 3]),
    chat(160, 159, 61.114, [1, 2, 3, 4], n_out=100, turn=2),
    chat(161, 160, 61.5, [1, 2, 3, 4, 5], turn=3),
    chat(500, 499, 70.0, [6]),
]


def test_bailian_chats_become_sessions_with_prefix_ids(tmp_path: Path) -> None:
    reader, rows = read(tmp_path / "b.jsonl", CHATS)
    assert reader.format.name == "bailian"
    assert [row.request_id for row in rows] == [159, 7, 160, 161, 500]
    assert [row.session_id for row in rows] == ["159", "7", "159", "159", "500"]
    assert all(row.parent_id == NO_PARENT for row in rows)
    assert rows[0].block_tokens == 16
    assert rows[2].block_hashes[:3] == rows[0].block_hashes
    assert not set(rows[0].block_hashes) & set(rows[1].block_hashes), "equal contents behind other contents"
    assert rows[0].workload_class == "text"
    assert reader.report.repaired["parent_unknown"].lines == [5]  # type: ignore[index]


def test_bailian_closed_loop_derives_think_times(tmp_path: Path) -> None:
    _, rows = read(tmp_path / "b.jsonl", CHATS, closed_loop=True, assumed_tpot_s=0.02)
    assert [row.parent_id for row in rows] == [NO_PARENT, NO_PARENT, 159, 160, NO_PARENT]
    assert [row.think_time_s for row in rows] == pytest.approx([0, 0, 60.914, 0, 0])


def test_bailian_repeated_and_contradicting_ids(tmp_path: Path) -> None:
    reader, rows = read(tmp_path / "b.jsonl", [*CHATS, CHATS[1], {**CHATS[1], "output_length": 99}])
    assert len(rows) == 5
    assert refused(reader) == {"duplicate": [6], "id_conflict": [7]}


def test_a_turn_whose_parent_was_refused_starts_a_session(tmp_path: Path) -> None:
    broken = {**CHATS[0], "hash_ids": [1]}
    reader, rows = read(tmp_path / "b.jsonl", [broken, *CHATS[1:4]], closed_loop=True)
    assert [row.parent_id for row in rows] == [NO_PARENT, NO_PARENT, 160]
    assert refused(reader) == {"block_count": [1]}


def test_turn_memory_forgets_the_oldest() -> None:
    memory = TurnMemory(kept=2)
    for key in (1, 2, 1, 3):
        memory.remember(key, Turn(key, "", 0.0))
    assert [memory.find(key) is not None for key in (1, 2, 3)] == [True, False, True]


def call(at: float, blocks: list[int], **more: Any) -> dict[str, Any]:
    return {"t": at, "type": "n", "model": "m", "in": 64 * len(blocks) + 3, "out": 10, "hash_ids": blocks, **more}


def session(name: str, requests: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    head = {"id": name, "models": ["m"], "block_size": 64, "hash_id_scope": "local", "tool_tokens": 100}
    return {**head, "system_tokens": 40, "requests": requests, **more}


def test_agentic_calls_follow_each_other_with_think_times(tmp_path: Path) -> None:
    calls = [call(0, [1, 2, 3], api_time=4.0, think_time=0.0), call(9, [1, 2, 3, 4], api_time=2.0, think_time=5.0)]
    calls.append(call(20, [1, 2, 3, 4, 5]))
    reader, rows = read(tmp_path / "a.jsonl", [session("x", calls), session("y", calls[:1])])
    assert reader.format.name == "agentic"
    assert [row.parent_id for row in rows] == [NO_PARENT, 0, 1, NO_PARENT]
    assert [row.think_time_s for row in rows] == pytest.approx([0, 5, 9, 0])
    assert [row.session_id for row in rows] == ["x", "x", "x", "y"]
    assert [row.arrival_s for row in rows[:3]] == pytest.approx([0, 9, 20])
    assert reader.report.repaired["think_time_derived"].count == 1  # type: ignore[index]


def test_agentic_sessions_share_tool_and_system_blocks_only(tmp_path: Path) -> None:
    other = session("z", [call(0, [1, 2, 3])], system_tokens=50)
    _, rows = read(
        tmp_path / "a.jsonl", [session("x", [call(0, [1, 2, 3])]), session("y", [call(0, [1, 2, 3])]), other]
    )
    x, y, z = (row.block_hashes for row in rows)
    # 140 tokens: one whole block of tools, one of tools and system; the third block is the session's own.
    assert x[:2] == y[:2]
    assert x[2] != y[2]
    assert x[0] == z[0]
    assert x[1] != z[1]
    assert x[:2] == tuple(shared_ids(100, 40, 64).tolist())


def test_a_call_with_another_prompt_head_does_not_share_it(tmp_path: Path) -> None:
    _, rows = read(tmp_path / "a.jsonl", [session("x", [call(0, [1, 2, 3]), call(5, [8, 9])])])
    assert not set(rows[0].block_hashes) & set(rows[1].block_hashes)


def test_subagents_hang_on_the_call_that_had_begun_before_them(tmp_path: Path) -> None:
    nested = [call(0, [50, 51], think_time=0.0, api_time=1.0), call(4, [50, 51, 52], think_time=3.0)]
    agent = {"t": 30, "type": "subagent", "duration_ms": 18_000, "tool_tokens": 64, "system_tokens": 0}
    calls = [call(0, [1], api_time=2.0), call(10, [1, 2], api_time=1.0, think_time=8.0)]
    calls += [{**agent, "requests": nested}, call(40, [1, 2, 3], think_time=29.0)]
    _, rows = read(tmp_path / "a.jsonl", [session("x", calls)])
    assert [row.arrival_s for row in rows] == pytest.approx([0, 10, 12, 16, 40])
    assert [row.parent_id for row in rows] == [NO_PARENT, 0, 1, 2, 1]
    assert [row.think_time_s for row in rows] == pytest.approx([0, 8, 1, 3, 29])


def test_agentic_bad_calls_are_counted_and_bridged(tmp_path: Path) -> None:
    calls = [
        call(0, [1], api_time=1.0),
        {**call(5, [1, 2]), "out": 0},
        {**call(6, [1, 2]), "in": 5},
        {**call(7, [1, 2]), "out": -1},
        call(10, [1, 2], think_time=99.0),
    ]
    reader, rows = read(tmp_path / "a.jsonl", [session("x", calls)])
    assert refused(reader) == {"zero_output": [1], "block_count": [1], "failed": [1]}
    assert rows[1].parent_id == 0
    assert rows[1].think_time_s == pytest.approx(9.0), "the gap since the last usable call, not the recorded one"


def test_agentic_repeated_sessions(tmp_path: Path) -> None:
    one = session("x", [call(0, [1]), call(5, [1, 2])])
    reader, rows = read(tmp_path / "a.jsonl", [one, one, {**one, "id": "new"}, session("x", [call(0, [3])])])
    assert refused(reader) == {"duplicate": [2, 2], "id_conflict": [4]}
    assert len(rows) == 4
    assert reader.report.repaired["equal_rows"].lines == [3, 3]  # type: ignore[index]
    reader, rows = read(tmp_path / "a.jsonl", [one, {**one, "id": "new"}], drop_equal_rows=True)
    assert len(rows) == 2


def test_agentic_open_loop_is_in_order_of_arrival(tmp_path: Path) -> None:
    sessions = [session(f"s{row}", [call(0, [1]), call(300, [1, 2])]) for row in range(50)]
    options: dict[str, Any] = {"closed_loop": False, "session_rate_per_s": 1.0, "batch_rows": 8}
    _, rows = read(tmp_path / "a.jsonl", sessions, **options)
    arrivals = [row.arrival_s for row in rows]
    assert arrivals == sorted(arrivals)
    assert [row.request_id for row in rows] == list(range(100))
    assert all(row.parent_id == NO_PARENT for row in rows)


def test_agentic_starts_are_poisson_and_seeded(tmp_path: Path) -> None:
    sessions = [session(f"s{row}", [call(0, [1])]) for row in range(2000)]
    _, rows = read(tmp_path / "a.jsonl", sessions, session_rate_per_s=2.0)
    gaps = np.diff([row.arrival_s for row in rows])
    assert gaps.mean() == pytest.approx(0.5, rel=0.1)
    assert gaps.std() / gaps.mean() == pytest.approx(1.0, rel=0.1)
    _, again = read(tmp_path / "a.jsonl", sessions, session_rate_per_s=2.0)
    assert again == rows
    _, other = read(tmp_path / "a.jsonl", sessions, session_rate_per_s=2.0, seed=1)
    assert other != rows


def test_global_ids_stay_as_they_are(tmp_path: Path) -> None:
    _, rows = read(tmp_path / "a.jsonl", [session("x", [call(0, [5, 6])], hash_id_scope="global")])
    assert rows[0].block_hashes == (5, 6)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"t": -1.0}, "bad_stamp"),
        ({"t": 1e12}, "bad_stamp"),
        ({"in": -5}, "negative_tokens"),
        ({"in": 0}, "no_input"),
        ({"out": 2**33}, "tokens_out_of_range"),
        ({"in": -1}, "failed"),
        ({"hash_ids": [1, 2, 3, 4]}, "block_count"),
    ],
)
def test_agentic_calls_that_cannot_be(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    reader, rows = read(tmp_path / "a.jsonl", [session("x", [call(0, [1, 2]), {**call(1, [1, 2]), **change}])])
    assert len(rows) == 1
    assert refused(reader) == {reason: [1]}
    assert reader.report.rows == 2


def test_agentic_calls_that_are_kept_under_a_rule(tmp_path: Path) -> None:
    calls = [
        call(5, [1, 2]),
        {**call(3, [1, 2]), "out": 0},
        {**call(9, []), "hash_ids": None, "in": 700},
        {**call(12, [1]), "hash_ids": [-1]},
    ]
    reader, rows = read(tmp_path / "a.jsonl", [session("x", calls)], zero_output="one")
    assert [row.output_tokens for row in rows] == [10, 1, 10, 10]
    assert [row.arrival_s for row in rows] == [0, 0, 4, 7]
    assert rows[2].block_hashes == ()
    found = {str(rule): tally.count for rule, tally in reader.report.repaired.items()}
    rules = {"zero_output_as_one": 1, "turn_before_parent": 1, "no_block_ids": 1, "block_ids_hashed": 1}
    assert found == {**rules, "think_time_derived": 3}


def test_an_agentic_session_has_one_root_at_its_start(tmp_path: Path) -> None:
    """A subagent that began before any recorded call of its caller must not start a loop of its own."""
    nested = {"t": 50.0, "type": "subagent", "duration_ms": 20_000.0, "requests": [call(0, [7]), call(4, [7, 8])]}
    calls = [call(40, [1, 2]), nested]
    _, rows = read(tmp_path / "a.jsonl", [session("x", calls), session("y", [call(90, [1])])])
    mine = [row for row in rows if row.session_id == "x"]
    assert [row.parent_id for row in mine] == [NO_PARENT, 0, 0]
    assert [row.arrival_s for row in mine] == pytest.approx([0, 4, 10])
    assert mine[2].think_time_s == pytest.approx(10 - 10 * 0.02)
    roots = [row.arrival_s for row in rows if row.parent_id == NO_PARENT]
    assert roots == sorted(roots)


def test_agentic_block_sizes_must_agree(tmp_path: Path) -> None:
    small = session("y", [{**call(0, [1, 2]), "in": 64}], block_size=32)
    reader, rows = read(tmp_path / "a.jsonl", [session("x", [call(0, [1])]), small])
    assert len(rows) == 1
    assert refused(reader) == {"block_size_differs": [2]}


def test_agentic_subagents_of_endless_depth_are_refused(tmp_path: Path) -> None:
    agent = {"t": 1, "type": "subagent", "requests": [call(0, [1])]}
    for _ in range(30):
        agent = {"t": 1, "type": "subagent", "requests": [agent]}
    reader, rows = read(tmp_path / "a.jsonl", [session("x", [call(0, [1]), agent])])
    assert len(rows) == 1
    assert refused(reader) == {"bad_field": [1]}


def test_bailian_ids_out_of_range(tmp_path: Path) -> None:
    reader, rows = read(tmp_path / "b.jsonl", [*CHATS, chat(-3, -1, 80.0, [1]), chat(2**63, -1, 81.0, [1])])
    assert len(rows) == 5
    assert refused(reader) == {"bad_field": [6, 7]}
