"""Order of arrivals, spreading of ticks, hashing, and the lines of a file."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from data.errors import SettingError, TraceError
from data.traces import order, source
from data.traces.batches import with_columns
from data.traces.chunk import Chunk, ChunkBuilder
from data.traces.hashing import are_prefix_ids, chain, mix, mix_one, salted
from data.traces.options import TraceOptions
from data.traces.order import Reorder, TickSpread, find_tick
from data.traces.report import ReadReport, Reject, Repair
from data.traces.source import TextSource


def chunk(arrivals: list[float], first_line: int = 1) -> Chunk:
    builder = ChunkBuilder()
    for place, _ in enumerate(arrivals):
        builder.add(first_line + place, place, 10, 5, request_id=first_line + place)
    return builder.build().with_rows(arrival_s=np.array(arrivals))


def through(stage: Reorder | TickSpread, parts: list[list[float]]) -> tuple[list[float], list[int]]:
    found: list[Chunk] = []
    line = 1
    for part in parts:
        found.extend(stage.push(chunk(part, line)))
        line += len(part)
    found.extend(stage.flush())
    arrivals = [value for one in found for value in one.rows.arrival_s.tolist()]
    return arrivals, [value for one in found for value in one.lines.tolist()]


def test_late_rows_are_sorted_in_and_equal_ones_keep_their_order() -> None:
    report = ReadReport("x", "y")
    arrivals, lines = through(Reorder(4, report), [[0, 5, 3, 5], [4, 5, 9]])
    assert arrivals == [0, 3, 4, 5, 5, 5, 9]
    assert lines == [1, 3, 5, 2, 4, 6, 7]
    assert report.repaired[Repair.REORDERED].lines == [3, 5]


def test_rows_later_than_the_buffer_are_refused() -> None:
    report = ReadReport("x", "y")
    arrivals, lines = through(Reorder(1, report), [[0, 10, 20, 30], [5, 40]])
    assert arrivals == [0, 10, 20, 30, 40]
    assert report.rejected[Reject.OUT_OF_ORDER].lines == [5]
    assert lines == [1, 2, 3, 4, 6]


def test_ticks_are_found_only_where_stamps_are_quantised() -> None:
    rng = np.random.default_rng(0)
    poisson = np.cumsum(rng.exponential(0.3, 5000))
    assert find_tick(poisson) == 0
    assert find_tick(np.round(poisson, 3)) == 0
    assert find_tick(np.floor(poisson / 3) * 3) == pytest.approx(3)
    jittered = np.floor(poisson / 3) * 3 + np.floor(poisson / 3) % 2 * 0.001
    assert find_tick(jittered) == pytest.approx(3, rel=0.01)
    assert find_tick(np.floor(poisson)) == 1
    assert find_tick(np.zeros(100)) == 0


def test_spreading_undoes_quantisation() -> None:
    rng = np.random.default_rng(1)
    true = np.cumsum(rng.exponential(0.3, 20_000))
    stamps = np.floor(true / 3) * 3
    arrivals, lines = through(TickSpread(None, np.random.default_rng(0), ReadReport("x", "y")), [stamps.tolist()])
    found = np.array(arrivals)
    gaps = np.diff(found)
    assert lines == list(range(1, 20_001))
    assert np.all(gaps >= 0)
    assert np.all((found >= stamps) & (found < stamps + 3.0001))
    assert gaps.std() / gaps.mean() == pytest.approx(1.0, abs=0.03)


@pytest.mark.parametrize("size", [1, 7, 100])
def test_spreading_does_not_depend_on_the_chunks(size: int) -> None:
    stamps = [float(row // 5 * 3) for row in range(200)]
    parts = [stamps[place : place + size] for place in range(0, 200, size)]
    whole, _ = through(TickSpread(3.0, np.random.default_rng(0), ReadReport("x", "y")), [stamps])
    found, _ = through(TickSpread(3.0, np.random.default_rng(0), ReadReport("x", "y")), parts)
    assert found == whole


def test_an_overfull_tick_is_spread_in_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order, "TICK_ROWS", 10)
    stage = TickSpread(3.0, np.random.default_rng(0), ReadReport("x", "y"))
    arrivals, _ = through(stage, [[0.0] * 8] * 10 + [[3.0] * 5])
    assert len(arrivals) == 85
    assert arrivals == sorted(arrivals)
    assert arrivals[79] < 3 <= arrivals[80] < arrivals[-1] < 6


def test_hash_mixing_agrees_with_the_published_generator() -> None:
    # First outputs of SplitMix64 seeded with 0.
    assert mix_one(0) == 0xE220A8397B1DCDAF
    assert mix_one(0x9E3779B97F4A7C15) == 0x6E789E6AA1B965F4
    values = np.arange(100, dtype=np.uint64) * np.uint64(2**57 + 1)
    assert mix(values).tolist() == [mix_one(int(value)) for value in values]
    assert len(set(salted(values, 1).tolist()) | set(salted(values, 2).tolist())) == 200


def test_chained_ids_are_equal_exactly_where_prefixes_are() -> None:
    rows = [[1, 2, 3], [], [1, 2, 4], [2, 2, 3], [1], [1, 2, 3, 1]]
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    ids = np.array([one for row in rows for one in row], dtype=np.uint64)
    found = chain(offsets, ids).tolist()
    by_prefix: dict[tuple[int, ...], int] = {}
    for row, start in zip(rows, offsets.tolist(), strict=False):
        for stop in range(1, len(row) + 1):
            assert by_prefix.setdefault(tuple(row[:stop]), found[start + stop - 1]) == found[start + stop - 1]
    assert len(set(by_prefix.values())) == len(by_prefix)
    assert not are_prefix_ids(offsets, ids)
    assert are_prefix_ids(offsets, np.array(found, dtype=np.uint64))


def test_lines_in_blocks_with_their_numbers(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_bytes(b"a\r\n\r\nb\n\n\nc")
    report = ReadReport("x", "y")
    blocks = list(TextSource(path).blocks(report, rows=2))
    assert [line for block in blocks for line in block.lines] == [b"a", b"b", b"c"]
    assert [number for block in blocks for number in block.numbers.tolist()] == [1, 3, 6]
    assert report.blank_lines == 3


@pytest.mark.parametrize("piece", [1, 2, 3, 7, 1000])
def test_lines_do_not_depend_on_the_pieces(tmp_path: Path, piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "ä1\nlonger line\n\n€\r\nlast"
    monkeypatch.setattr(source, "PIECE_BYTES", piece)
    for encoding in ("utf-8", "utf-16"):
        path = tmp_path / encoding
        path.write_bytes(gzip.compress(text.encode(encoding)))
        if encoding == "utf-16" and piece < 4:
            continue
        blocks = list(TextSource(path).blocks(ReadReport("x", "y")))
        lines = [line.decode() for block in blocks for line in block.lines]
        assert lines == ["ä1", "longer line", "€", "last"]


@pytest.mark.parametrize("piece", [3, 16, 1000])
@pytest.mark.parametrize("place", ["first", "middle", "last", "last, ended"])
def test_an_endless_line_is_refused_without_being_held(
    tmp_path: Path, piece: int, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "PIECE_BYTES", piece)
    monkeypatch.setattr(source, "LINE_BYTES", 20)
    long = b"x" * 5000
    lines = {"first": [long, b"a", b"b"], "middle": [b"a", long, b"b"]}.get(place, [b"a", b"b", long])
    path = tmp_path / "t"
    path.write_bytes(b"\n".join(lines) + (b"" if place == "last" else b"\n"))
    report = ReadReport("x", "y")
    found = [line for block in TextSource(path).blocks(report) for line in block.lines]
    assert found == [b"a", b"b"]
    assert report.rejected[Reject.LINE_TOO_LONG].lines == [lines.index(long) + 1]


@pytest.mark.parametrize("damage", ["cut", "flipped", "trailing"])
def test_damaged_gzip_is_an_error(tmp_path: Path, damage: str) -> None:
    packed = gzip.compress(np.random.default_rng(0).bytes(200_000))
    changed = {
        "cut": packed[:-100],
        "flipped": packed[:1000] + b"\xff\x00\xff\x00" + packed[1004:],
        "trailing": packed + b"\x1f\x8bjunk",
    }
    path = tmp_path / "t.gz"
    path.write_bytes(changed[damage])
    with pytest.raises(TraceError, match="cannot be read to its end"):
        list(TextSource(path).blocks(ReadReport("x", "y")))


def test_what_cannot_be_opened(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(TraceError, match="cannot be opened"):
            TextSource(path)


@pytest.mark.parametrize(
    "wrong",
    [
        {"time_unit": "min"},
        {"batch_rows": 0},
        {"zero_output": "keep"},
        {"block_tokens": 0},
        {"max_rows": 0},
        {"seed": -1},
        {"tick_s": 0},
        {"rate_scale": float("nan")},
    ],
)
def test_options_out_of_range(wrong: dict[str, object]) -> None:
    with pytest.raises(SettingError) as caught:
        TraceOptions(**wrong)  # type: ignore[arg-type]
    assert caught.value.field == next(iter(wrong))


def test_columns_can_be_replaced() -> None:
    rows = chunk([0.0, 1.0]).rows
    assert with_columns(rows, output_tokens=np.array([7, 8])).output_tokens.tolist() == [7, 8]
