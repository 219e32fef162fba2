"""Mooncake traces: F141 (block counts), F142 (64-bit ids), ragged files, repeats, and writing."""

from __future__ import annotations

import gzip
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import orjson
import pytest

from data.errors import TraceError
from data.traces import mooncake
from data.traces.mooncake import write_mooncake
from data.traces.options import TraceOptions
from data.traces.registry import TraceReader, open_trace
from data.traces.report import Reject, Repair
from data.traces.stats import describe
from data.types import Request

F141 = """{"timestamp": 0,   "input_length": 655, "output_length": 52, "hash_ids": [0, 1]}
{"timestamp": 300, "input_length": 20,  "output_length": 8,  "hash_ids": [0, 1]}
{"timestamp": 900, "input_length": 0,   "output_length": 8,  "hash_ids": []}
"""
F142 = """{"timestamp":0,"input_length":512,"output_length":1,"hash_ids":[4294967297]}
{"timestamp":1,"input_length":512,"output_length":1,"hash_ids":[8589934593]}
{"timestamp":2,"input_length":512,"output_length":1,"hash_ids":[9007199254740993]}
{"timestamp":3,"input_length":512,"output_length":1,"hash_ids":[9007199254740992]}
"""


def line(at: object, n_in: object = 600, n_out: object = 5, ids: object = (0, 1)) -> bytes:
    return orjson.dumps({"timestamp": at, "input_length": n_in, "output_length": n_out, "hash_ids": ids}) + b"\n"


def read(path: Path, **options: object) -> tuple[TraceReader, list[Request]]:
    reader = open_trace(path, "mooncake", TraceOptions(**options))  # type: ignore[arg-type]
    return reader, [row for batch in reader.batches() for row in batch.rows()]


def put(path: Path, lines: Iterable[bytes] | str) -> Path:
    path.write_bytes(lines.encode() if isinstance(lines, str) else b"".join(lines))
    return path


def test_f141_rows_with_another_number_of_blocks_are_refused(tmp_path: Path) -> None:
    reader, rows = read(put(tmp_path / "t", F141))
    assert [row.input_tokens for row in rows] == [655]
    assert reader.report.block_tokens == 512
    refused = {reason: (tally.count, tally.lines) for reason, tally in reader.report.rejected.items()}
    assert refused == {Reject.BLOCK_COUNT: (1, [2]), Reject.NO_INPUT: (1, [3])}
    assert "2 block ids, 1 expected" in reader.report.rejected[Reject.BLOCK_COUNT].detail


def test_f141_the_block_size_is_inferred_and_reported_or_declared(tmp_path: Path) -> None:
    path = put(tmp_path / "t", (line(1000 * row, 100, 5, list(range(7))) for row in range(40)))
    reader, rows = read(path)
    assert (reader.report.block_tokens, len(rows), rows[0].block_tokens) == (16, 40, 16)
    assert "inferred" in reader.report.block_reason
    reader, rows = read(path, block_tokens=512)
    assert (rows, reader.report.rejected[Reject.BLOCK_COUNT].count) == ([], 40)
    assert reader.report.block_reason == "declared"


def test_f142_64_bit_ids_stay_distinct(tmp_path: Path) -> None:
    _, rows = read(put(tmp_path / "t", F142))
    assert len({row.block_hashes for row in rows}) == 4
    assert rows[2].block_hashes == (9007199254740993,)
    again = open_trace(tmp_path / "t", "mooncake")
    assert describe(again.batches()).ideal_hit_share == 0


def test_f142_ids_beyond_64_bits_and_texts_are_hashed_and_counted(tmp_path: Path) -> None:
    raw = [
        b'{"timestamp":0,"input_length":512,"output_length":1,"hash_ids":[%b]}\n' % one
        for one in (b"-1", b"18446744073709551615", b"18446744073709551616", b'"a"', b'"b"', b'"a"')
    ]
    reader, rows = read(put(tmp_path / "t", raw))
    ids = [row.block_hashes[0] for row in rows]
    assert ids[1] == 2**64 - 1
    assert len(set(ids)) == 5
    assert ids[3] == ids[5]
    assert reader.report.repaired[Repair.BLOCK_IDS_HASHED].count == 5


def test_partial_last_block_may_lack_its_id(tmp_path: Path) -> None:
    reader, rows = read(put(tmp_path / "t", [line(0, 1000, 5, [0]), line(1, 1000, 5, [0, 1])]))
    assert [len(row.block_hashes) for row in rows] == [1, 2]
    assert reader.report.repaired[Repair.PARTIAL_BLOCK_WITHOUT_ID].lines == [1]


def test_rows_without_ids_have_no_known_prefix(tmp_path: Path) -> None:
    path = put(tmp_path / "t", '{"timestamp": 0, "input_length": 9000, "output_length": 5}\n')
    reader, rows = read(path)
    assert rows[0].block_hashes == ()
    assert reader.report.accepted == 1


@pytest.mark.parametrize("ends", [b"\n", b"\r\n"])
@pytest.mark.parametrize("last", [True, False], ids=["last end", "no last end"])
@pytest.mark.parametrize("packed", [True, False], ids=["gz", "plain"])
def test_line_ends_and_packing_do_not_matter(tmp_path: Path, ends: bytes, last: bool, packed: bool) -> None:
    text = b"".join(line(1000 * row) for row in range(5)).replace(b"\n", ends)
    text = text if last else text.removesuffix(ends)
    path = tmp_path / "t"
    path.write_bytes(gzip.compress(text) if packed else text)
    reader, rows = read(path)
    assert [row.arrival_s for row in rows] == [0, 1, 2, 3, 4]
    assert reader.report.rejected_rows == 0


def test_bad_lines_are_counted_by_reason_with_their_places(tmp_path: Path) -> None:
    lines = [
        line(0),
        b"\n",
        b"no json\n",
        b"\xff\xfe\xfd\n",
        line(1, 1.5),
        line(2, -1),
        line(3, 600, -1),
        line(4, 600, 0),
        line(5, -7),
        line(6, 2**40, 5, []),
        line("x"),
        b'{"timestamp":1}\n',
        b'{"timestamp":7,"input_length":99999999999999999999,"output_length":1,"hash_ids":[]}\n',
        line(8),
    ]
    reader, rows = read(put(tmp_path / "t", lines))
    report = reader.report
    found = {str(reason): tally.lines for reason, tally in report.rejected.items()}
    assert found == {
        "bad_json": [3, 4],
        "bad_field": [5, 12, 13],
        "failed": [6, 7],
        "zero_output": [8],
        "negative_tokens": [9],
        "tokens_out_of_range": [10],
        "bad_stamp": [11],
    }
    assert len(rows) == 2
    assert report.blank_lines == 1
    assert report.rows == report.accepted + report.rejected_rows == 13


def test_zero_output_may_be_kept_as_one(tmp_path: Path) -> None:
    reader, rows = read(put(tmp_path / "t", [line(0, 600, 0)]), zero_output="one")
    assert rows[0].output_tokens == 1
    assert reader.report.repaired[Repair.ZERO_OUTPUT_AS_ONE].lines == [1]


def test_equal_rows_are_counted_and_dropped_only_on_request(tmp_path: Path) -> None:
    path = put(tmp_path / "t", [line(0), line(0), line(3000), line(0)])
    reader, rows = read(path, spread_ticks=False)
    assert len(rows) == 4
    assert reader.report.repaired[Repair.EQUAL_ROWS].lines == [2, 4]
    reader, rows = read(path, drop_equal_rows=True)
    assert len(rows) == 2
    assert reader.report.rejected[Reject.DUPLICATE].lines == [2, 4]


def test_very_long_prompts_pass(tmp_path: Path) -> None:
    _, rows = read(put(tmp_path / "t", [line(0, 894_371, 5, list(range(1747)))]))
    assert rows[0].input_tokens == 894_371
    assert len(rows[0].block_hashes) == 1747


def test_the_budget_hides_the_output_length(tmp_path: Path) -> None:
    _, rows = read(put(tmp_path / "t", [line(0, 600, 5), line(1, 600, 4096), line(2, 600, 4097)]))
    assert [row.output_budget for row in rows] == [4096, 4096, 8192]


def test_ids_that_name_contents_are_found_out_and_chained(tmp_path: Path) -> None:
    path = put(tmp_path / "t", [line(0, 1024, 5, [1, 7]), line(1, 1024, 5, [2, 7]), line(2, 1024, 5, [1, 7])])
    reader, rows = read(path)
    assert any("chained" in note for note in reader.report.notes)
    assert rows[0].block_hashes == rows[2].block_hashes
    assert rows[0].block_hashes[1] != rows[1].block_hashes[1]
    _, rows = read(path, chain_block_ids=False)
    assert rows[0].block_hashes == (1, 7)


def test_both_ways_of_decoding_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    path = put(
        tmp_path / "t",
        (
            line(float(row) / 7, int(n), 5, rng.integers(0, 2**63, -(-n // 512)).tolist())
            for row, n in enumerate(rng.integers(1, 9000, 300).tolist())
        ),
    )
    _, fast = read(path, chain_block_ids=False)
    monkeypatch.setattr(mooncake, "_fast", lambda block: None)
    _, careful = read(path, chain_block_ids=False)
    assert fast == careful
    assert len(fast) == 300


def test_written_traces_read_back(tmp_path: Path) -> None:
    source = put(tmp_path / "t", [line(row * 777, 600 + row, 5 + row, [0, row + 1]) for row in range(50)])
    again = tmp_path / "again.jsonl"
    assert write_mooncake(open_trace(source).batches(), again) == 50
    _, before = read(source)
    _, after = read(again)
    assert before == after
    assert {path.name for path in tmp_path.iterdir()} == {"t", "again.jsonl"}


def test_a_failed_write_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "cut.jsonl.gz"
    path.write_bytes(gzip.compress(b"".join(line(100 * row) for row in range(20_000)))[:-20])
    out = tmp_path / "out.jsonl"
    out.write_text("old")
    with pytest.raises(TraceError, match="cannot be read to its end"):
        write_mooncake(open_trace(path).batches(), out)
    assert out.read_text() == "old"
    assert {one.name for one in tmp_path.iterdir()} == {"cut.jsonl.gz", "out.jsonl"}


def test_batches_are_bounded_and_do_not_depend_on_their_size(tmp_path: Path) -> None:
    path = put(tmp_path / "t", [line(row // 3 * 3000) for row in range(1000)])
    _, whole = read(path)
    reader = open_trace(path, options=TraceOptions(batch_rows=7))
    parts = list(reader.batches())
    assert max(map(len, parts)) == 7
    assert [row for part in parts for row in part.rows()] == whole
