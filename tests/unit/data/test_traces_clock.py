"""Time stamps: F139 (precision and date forms) and F143 (time unit)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from data.errors import TraceError
from data.traces.clock import infer_unit, parse_stamp
from data.traces.options import TimeUnit, TraceOptions
from data.traces.registry import open_trace
from data.traces.report import ReadReport

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16T18:15:46.681Z,396,109
2023-11-16 18:15:50,879,55
2023-11-16T19:15:50.5+01:00,91,16
"""


def arrivals(path: Path, options: TraceOptions | None = None) -> tuple[np.ndarray, ReadReport]:
    reader = open_trace(path, options=options)
    found = [batch.arrival_s for batch in reader.batches()]
    return np.concatenate(found) if found else np.zeros(0), reader.report


def test_f139_dates_keep_microseconds_and_take_all_forms(tmp_path: Path) -> None:
    path = tmp_path / "azure.csv"
    path.write_text(AZURE)
    found, report = arrivals(path)
    assert report.accepted == 4
    assert report.rejected_rows == 0
    np.testing.assert_allclose(found, [0, 0.000410, 3.319410, 3.819410], atol=1e-9)


def test_f139_neighbours_a_millisecond_apart_stay_apart(tmp_path: Path) -> None:
    path = tmp_path / "azure.csv"
    rows = "".join(f"2023-11-16 18:15:46.{ms:03d},10,10\n" for ms in (1, 2, 9, 11))
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + rows)
    found, _ = arrivals(path)
    np.testing.assert_allclose(np.diff(found), [0.001, 0.007, 0.002], atol=1e-9)


@pytest.mark.parametrize("digits", range(10))
def test_f139_any_number_of_fractional_digits(digits: int) -> None:
    fraction = "123456789"[:digits]
    text = "2023-11-16 18:15:46" + ("." + fraction if digits else "")
    value, is_date = parse_stamp(text.encode())
    assert is_date
    assert value == 1700158546 * 10**9 + int((fraction or "0").ljust(9, "0"))


@pytest.mark.parametrize(
    "text",
    ["2023-11-16T18:15:46Z", "2023-11-16 18:15:46+00:00", "2023-11-16 10:15:46-08", "2023-11-16 23:45:46 +0530"],
)
def test_zones_and_none_name_the_same_moment(text: str) -> None:
    assert parse_stamp(text.encode()) == parse_stamp(b"2023-11-16 18:15:46")


NO_DATES = ["2023-13-01 00:00:00", "2023-01-01 24:00:00", "0023-11-16 18:15:46"]


@pytest.mark.parametrize("text", ["", "x", "nan", "inf", "1e30", "1_000", *NO_DATES])
def test_what_is_no_stamp(text: str) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        parse_stamp(text.encode())


def mooncake(path: Path, stamps: list[object]) -> Path:
    path.write_text(
        "".join(
            f'{{"timestamp": {at}, "input_length": 600, "output_length": 5, "hash_ids": [0, {row + 1}]}}\n'
            for row, at in enumerate(stamps)
        )
    )
    return path


def test_f143_fractional_stamps_are_seconds_and_both_readings_are_reported(tmp_path: Path) -> None:
    path = mooncake(tmp_path / "s.jsonl", [round(0.2 * row, 1) for row in range(10_000)])
    found, report = arrivals(path)
    assert report.time_unit == "s"
    assert "inferred" in report.time_unit_reason
    readings = {one.unit: one for one in report.clock_readings}
    assert readings["s"].rate_per_s == pytest.approx(5, rel=1e-3)
    assert readings["ms"].rate_per_s == pytest.approx(5000, rel=1e-3)
    assert found[-1] == pytest.approx(1999.8)


def test_f143_a_declared_unit_overrides(tmp_path: Path) -> None:
    path = mooncake(tmp_path / "s.jsonl", [round(0.2 * row, 1) for row in range(10_000)])
    found, report = arrivals(path, TraceOptions(time_unit="ms"))
    assert (report.time_unit, report.time_unit_reason) == ("ms", "declared")
    assert found[-1] == pytest.approx(1.9998)


def test_f143_an_implausible_rate_is_refused(tmp_path: Path) -> None:
    path = mooncake(tmp_path / "whole.jsonl", [row // 5 for row in range(10_000)])
    with pytest.raises(TraceError, match=r"time unit is in doubt.*req/s read as ms") as caught:
        arrivals(path)
    assert caught.value.exit_code == 2
    _, report = arrivals(path, TraceOptions(time_unit="s", spread_ticks=False))
    assert report.accepted == 10_000


def test_f143_a_rate_that_only_turns_implausible_later_is_refused_too(tmp_path: Path) -> None:
    slow = [row * 1000 for row in range(9000)]
    path = mooncake(tmp_path / "later.jsonl", [*slow, *(slow[-1] + (row + 1) * 10**9 for row in range(1000))])
    with pytest.raises(TraceError, match="time unit is in doubt"):
        arrivals(path)


@pytest.mark.parametrize(("unit", "ticks"), [("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)])
def test_stamps_that_count_from_1970_tell_their_unit(unit: TimeUnit, ticks: int) -> None:
    stamps = (1_700_000_000 + np.arange(200)) * ticks
    assert infer_unit(stamps, "ms", "x")[0] == unit


def test_nanosecond_stamps_lose_nothing(tmp_path: Path) -> None:
    path = mooncake(tmp_path / "ns.jsonl", [1_700_000_000_000_000_001, 1_700_000_000_000_000_501])
    found, _ = arrivals(path)
    assert found[1] == pytest.approx(500e-9, rel=1e-12)


def test_stamps_as_text_and_mixed_clocks(tmp_path: Path) -> None:
    path = mooncake(tmp_path / "t.jsonl", ['"2023-11-16T18:15:46Z"', 5, '"2023-11-16T18:15:47.25Z"'])
    found, report = arrivals(path)
    np.testing.assert_allclose(found, [0, 1.25])
    assert report.rejected["mixed_clocks"].lines == [2]  # type: ignore[index]


def test_no_rebase_keeps_the_clock_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "azure.csv"
    path.write_text(AZURE)
    found, report = arrivals(path, TraceOptions(rebase=False))
    assert found[0] == pytest.approx(1700158546.68059, abs=1e-6)
    assert report.span_s == pytest.approx(3.819410, abs=1e-6)
