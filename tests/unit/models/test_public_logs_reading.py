"""Text of public logs: line ends, byte-order marks, gzip, bad values."""

import gzip
from collections import Counter

import pytest

from data.errors import LogError
from models.public_logs.reading import csv_rows, find, json_lines, json_value, numbers, read_text


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_csv_with_any_line_end_and_byte_order_mark(tmp_path, end, last, mark):
    path = tmp_path / "a.csv"
    path.write_bytes((mark + f"t,x{end}1,2{end}3,4" + end * last).encode())
    assert list(csv_rows(path, ("t", "x"))) == [{"t": "1", "x": "2"}, {"t": "3", "x": "4"}]


def test_gzip_is_found_beside_the_plain_name_and_plain_wins(tmp_path):
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"packed"))
    assert read_text(find(tmp_path, "a.csv")) == "packed"
    (tmp_path / "a.csv").write_text("plain")
    assert read_text(find(tmp_path, "a.csv")) == "plain"


def test_a_missing_file_names_what_was_expected(tmp_path):
    with pytest.raises(LogError, match=r"a\.csv or a\.csv\.gz"):
        find(tmp_path, "a.csv")


@pytest.mark.parametrize("content", [gzip.compress(b"x" * 9000)[:40], b"not gzip"])
def test_broken_gzip_is_an_error_that_names_the_file(tmp_path, content):
    path = tmp_path / "a.csv.gz"
    path.write_bytes(content)
    with pytest.raises(LogError, match=r"a\.csv\.gz"):
        read_text(path)


def test_a_missing_column_is_named(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("t,x\n1,2\n")
    with pytest.raises(LogError, match="y: missing column"):
        list(csv_rows(path, ("t", "y")))


def test_bad_json_lines_are_counted_and_bad_json_is_an_error(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 1}\n\n{"a": \n[1]\n{"a": 2}')
    dropped = Counter()
    assert [one["a"] for one in json_lines(path, dropped)] == [1, 2]
    assert dropped == {"bad_line": 2}
    with pytest.raises(LogError, match="not JSON"):
        json_value(path)


@pytest.mark.parametrize("bad", ["", "x", None, "nan", "inf"])
def test_numbers_are_finite_or_nothing(bad):
    assert numbers({"a": "1.5", "b": 2}, ("a", "b")) == [1.5, 2.0]
    assert numbers({"a": "1.5", "b": bad}, ("a", "b")) is None
    assert numbers({"a": "1.5"}, ("a", "b")) is None
