"""CSV traces: Azure and the header variants of BurstGPT, in all the ways such files come."""

from __future__ import annotations

from pathlib import Path

import pytest

from data.errors import TraceError
from data.traces.csv_lines import count_of
from data.traces.options import TraceOptions
from data.traces.registry import TraceReader, open_trace
from data.types import NO_PARENT, Request

AZURE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
    "2023-11-16 18:17:03.9799600,4808,10\r\n"
    "2023-11-16 18:17:04.0319600,3180,8"
)
SIX = (
    "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "5,ChatGPT,472,18,490,Conversation log\n"
    "45,GPT-4,1087,0,1087,API log\n"
    "118,GPT-4,417,276,693,API log\n"
)
EIGHT = (
    "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "100.0,s-1,43,GPT-4,906,446,1352,Conversation log\n"
    "110.0,s-2,2,ChatGPT,36,29,65,Conversation log\n"
    "160.0,s-1,5,GPT-4,1400,12,1412,Conversation log\n"
    "163.0,s-1,,GPT-4,1500,100,1600,Conversation log\n"
    "170.0,s-1,1,GPT-4,1600,10,1610,Conversation log\n"
)
OTHER_ORDER = (
    "Log Type,timestamp,Request_Tokens,Response_Tokens,Total_Tokens,Model\nAPI log,5,472,18,490,ChatGPT\n"
)


def read(path: Path, text: str | bytes, **options: object) -> tuple[TraceReader, list[Request]]:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    reader = open_trace(path, options=TraceOptions(**options))  # type: ignore[arg-type]
    return reader, [row for batch in reader.batches() for row in batch.rows()]


def test_azure_with_crlf_and_without_last_line_end(tmp_path: Path) -> None:
    reader, rows = read(tmp_path / "a.csv", AZURE)
    assert reader.format.name == "azure"
    assert [(row.input_tokens, row.output_tokens) for row in rows] == [(4808, 10), (3180, 8)]
    assert rows[1].arrival_s == pytest.approx(0.052, abs=1e-9)
    assert rows[0].block_hashes == ()


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-8-sig"])
def test_other_encodings(tmp_path: Path, encoding: str) -> None:
    reader, rows = read(tmp_path / "a.csv", AZURE.encode(encoding))
    assert len(rows) == 2
    assert reader.report.rejected_rows == 0


def test_burstgpt_of_six_columns(tmp_path: Path) -> None:
    reader, rows = read(tmp_path / "b.csv", SIX)
    assert reader.format.name == "burstgpt"
    assert [(row.arrival_s, row.model, row.workload_class) for row in rows] == [
        (0, "ChatGPT", "conversation"),
        (113, "GPT-4", "api"),
    ]
    assert {str(reason): tally.lines for reason, tally in reader.report.rejected.items()} == {"zero_output": [3]}


def test_burstgpt_of_eight_columns_open_and_closed(tmp_path: Path) -> None:
    _, rows = read(tmp_path / "b.csv", EIGHT)
    assert [row.session_id for row in rows] == ["s-1", "s-2", "s-1", "s-1", "s-1"]
    assert all(row.parent_id == NO_PARENT for row in rows)
    reader, rows = read(tmp_path / "b.csv", EIGHT, closed_loop=True, assumed_tpot_s=0.03)
    assert [row.parent_id for row in rows] == [NO_PARENT, NO_PARENT, 0, 2, 3]
    assert [row.think_time_s for row in rows] == pytest.approx([0, 0, 17, 0, 4])
    assert reader.report.repaired["think_time_derived"].count == 3  # type: ignore[index]


def test_burstgpt_with_columns_in_another_order_and_spelling(tmp_path: Path) -> None:
    reader, rows = read(tmp_path / "b.csv", OTHER_ORDER)
    assert "6 columns" in reader.report.notes[0]
    assert (rows[0].input_tokens, rows[0].output_tokens, rows[0].model) == (472, 18, "ChatGPT")


def test_bad_csv_rows_are_counted(tmp_path: Path) -> None:
    text = (
        SIX + '1,2\n200,m,x,5,5,API log\n201,m,5.0,6.0,11,API log\n202,m,-1,5,4,\n,m,5,5,5,\n203,"m,n",5,5,5,z\n'
    )
    reader, rows = read(tmp_path / "b.csv", text, spread_ticks=False)
    found = {str(reason): tally.lines for reason, tally in reader.report.rejected.items()}
    assert found == {"zero_output": [3], "bad_columns": [5], "bad_field": [6], "failed": [8], "bad_stamp": [9]}
    assert rows[2].input_tokens == 5
    assert rows[3].model == "m,n"
    assert reader.report.rows == reader.report.accepted + reader.report.rejected_rows == 9


def test_an_unclosed_quote_spoils_one_row_only(tmp_path: Path) -> None:
    reader, rows = read(tmp_path / "b.csv", SIX.replace("118,GPT-4", '118,"GPT-4') + "300,GPT-4,1,2,3,API log\n")
    assert len(rows) == 2
    assert reader.report.rejected["bad_columns"].lines == [4]  # type: ignore[index]


@pytest.mark.parametrize(("name", "text"), [("azure", ""), ("azure", "a,b\n1,2\n"), ("burstgpt", AZURE)])
def test_a_wrong_header_is_an_error_that_names_the_columns(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / "x.csv"
    path.write_text(text)
    with pytest.raises(TraceError, match="tokens"):
        list(open_trace(path, name).batches())


@pytest.mark.parametrize(
    ("cell", "value"), [(b"12", 12), (b" 12 ", 12), (b"12.0", 12), (b"1e3", 1000), (b"-1", -1)]
)
def test_whole_numbers_in_any_spelling(cell: bytes, value: int) -> None:
    assert count_of(cell) == value


@pytest.mark.parametrize("cell", [b"", b"x", b"1.5", b"inf", b"nan", b"1_0", b"9" * 30, b"++1"])
def test_what_is_no_whole_number(cell: bytes) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        count_of(cell)


def test_max_rows_counts_rows_read(tmp_path: Path) -> None:
    reader, rows = read(tmp_path / "b.csv", SIX, max_rows=2)
    assert (reader.report.rows, len(rows)) == (2, 1)
